"""Imports of large modules, for a program that may run for days."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_THREADS = "OPENBLAS_NUM_THREADS"


class _Absent(ModuleType):
    """Stands for a module of which others import names that nobody here uses: empty classes."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


_UNUSED: dict[str, Any] = {
    "ssl": None,  # asyncio does without: 4.5 MB and 7 ms for connections that nobody here makes
    "ctypes": None,  # numpy does without: 0.3 MB for arrays that nobody hands to C by it
    "textual.command": _Absent("textual.command"),  # 1.2 MB and 18 ms until somebody opens it
    "numpy._core._add_newdocs": _Absent("numpy._core._add_newdocs"),  # 0.2 MB and 6 ms: docstrings
}
"""What is not found by the modules that are imported, but can be imported later."""


@contextmanager
def lean() -> Iterator[None]:
    """Imports in the block leave nothing to collect: looking for it again and again would take a
    tenth of their time, and later as much at each collection. What nobody here needs yet is not
    found. And numpy starts no threads, one for each CPU, for products of matrices that nobody here
    forms: each of them spins for some ms. Commands that are started later are not told."""
    modules: dict[str, Any] = sys.modules
    mine = _THREADS not in os.environ
    if mine:
        os.environ[_THREADS] = "1"
    hidden = {name: stands for name, stands in _UNUSED.items() if name not in modules}
    modules.update(hidden)
    gc.disable()
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]
        if mine:
            del os.environ[_THREADS]
        gc.freeze()
        gc.enable()

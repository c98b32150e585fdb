"""The build_ext of perftop: finds the C files, writes the cffi glue from the headers, compiles.

`[tool.setuptools.cmdclass]` names it. The glue is written among the objects, not in the tree.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from cffi import FFI
from setuptools.command import build_ext as setuptools_build_ext

CSRC = Path(__file__).parent / "csrc"
HEADERS = "pp_*.h"
"""What Python may call, by subject; perfprobe.h includes all of them."""
SOURCES = "[!_]*.c"
"""Earlier builds wrote their glue here, as _native.c; a tree may still have it."""
BEGIN, END = "/* cffi: begin */", "/* cffi: end */"
GLUE = """
#pragma GCC diagnostic ignored "-Wconversion"
#include "perfprobe.h"
"""
"""What precedes cffi's functions, which convert without casts."""


def declarations(headers: Iterable[Path]) -> str:
    """What lies between the two marks of each header."""
    texts = (path.read_text() for path in headers)
    return "".join(text.partition(BEGIN)[2].partition(END)[0] for text in texts)


def files(pattern: str) -> list[str]:
    """Files of csrc, relative to the project, in which setuptools runs."""
    return sorted(os.path.relpath(path) for path in CSRC.glob(pattern))


def missing() -> str | None:
    """What this machine lacks to compile, as one line for the user."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    include = sysconfig.get_path("include")
    if shutil.which(shlex.split(compiler)[0]) is None:
        return "perftop: no C compiler found; install it: apt install gcc python3-dev"
    if not Path(include, "Python.h").exists():
        return "perftop: no Python.h found; install it: apt install python3-dev"
    return None


class build_ext(setuptools_build_ext.build_ext):  # noqa: N801 - setuptools' name for it
    def finalize_options(self) -> None:
        """Sources and headers stand in the extension from here on: an sdist asks for them, too."""
        super().finalize_options()
        for extension in self.extensions:
            extension.sources = files(SOURCES)
            extension.depends = [*files("*.h"), os.path.relpath(__file__)]

    def run(self) -> None:
        problem = missing()
        if problem is not None:
            raise SystemExit(problem)
        ffi = FFI()
        ffi.cdef(declarations(sorted(CSRC.glob(HEADERS))))
        ffi.set_source("perfprobe._native", GLUE)
        glue = Path(self.build_temp, "_native.c")
        glue.parent.mkdir(parents=True, exist_ok=True)
        ffi.emit_c_code(str(glue))  # leaves the file alone if it would be the same
        for extension in self.extensions:
            extension.sources = [str(glue), *extension.sources]
        super().run()

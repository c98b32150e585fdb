"""The build_ext of perftop: writes the cffi glue from the header, then compiles.

`[tool.setuptools.cmdclass]` names it. Nothing generated is kept in git.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from pathlib import Path

from cffi import FFI
from setuptools.command import build_ext as setuptools_build_ext

CSRC = Path(__file__).parent / "csrc"
HEADERS = [
    "perfprobe.h",
    "known.h",
    "ramp.h",
    "timers.h",
]
"""What Python may call. One a line."""
BEGIN, END = "/* cffi: begin */", "/* cffi: end */"


def declarations(header: str) -> str:
    """What lies between the two marks."""
    return header.partition(BEGIN)[2].partition(END)[0]


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
    def run(self) -> None:
        problem = missing()
        if problem is not None:
            raise SystemExit(problem)
        ffi = FFI()
        for header in HEADERS:
            ffi.cdef(declarations((CSRC / header).read_text()))
        includes = "\n".join(f'#include "{header}"' for header in HEADERS)
        ffi.set_source("perfprobe._native", includes)
        ffi.emit_c_code(str(CSRC / "_native.c"))  # leaves the file alone if it would be the same
        super().run()

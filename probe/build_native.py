"""The setuptools command `build_ext` of perftop: generates cffi's glue code from the C headers, and
compiles it with the C files of csrc into perfprobe._native.

pyproject.toml names the command (`[tool.setuptools.cmdclass]`). The glue is written to the build
directory. Run as a program, this file writes the type stub perfprobe/_native.pyi.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sysconfig
from pathlib import Path

from cffi import FFI
from setuptools.command import build_ext as setuptools_build_ext

CSRC = Path(__file__).parent / "csrc"
STUB = Path(__file__).parent / "perfprobe" / "_native.pyi"
STUB_WIDTH = 100
"""Maximum line length of the type stub, in characters; the same as ruff's."""
HEADERS = "pp_*.h"
"""Headers that declare the C functions that Python may call; perfprobe.h includes all of them."""
C_SOURCES = "[!_]*.c"
"""C files to compile, without a `_native.c` that an older build may have left in csrc."""
CFFI_BEGIN, CFFI_END = "/* cffi: begin */", "/* cffi: end */"
GLUE = """
#pragma GCC diagnostic ignored "-Wconversion"
#include "perfprobe.h"
"""
"""C lines before the functions that cffi generates; these convert integers without casts."""


def cffi_declarations() -> str:
    """Returns the C declarations for cffi: the text between CFFI_BEGIN and CFFI_END of each
    header."""
    texts = (path.read_text() for path in sorted(CSRC.glob(HEADERS)))
    return "".join(text.partition(CFFI_BEGIN)[2].partition(CFFI_END)[0] for text in texts)


def type_stub(text: str) -> str:
    """Returns the type stub (.pyi) for C declarations: a method for each function. Constants are
    integers, and all pointers have one type."""
    functions = re.findall(r"^(\w[\w *]*?)\b(pp_\w+)\(([^)]*)\);", text, re.MULTILINE)
    lines = [
        "# Written by `python probe/build_native.py` from the headers in csrc.",
        "",
        "from _cffi_backend import FFI",
        "from _cffi_backend import _CDataBase as Data",
        "",
        "class _Lib:",
        "    def __getattr__(self, name: str) -> int: ...  # PP_",
    ]
    for result, name, parameters in sorted(functions, key=lambda function: function[1]):
        declared = (parameter.split() for parameter in parameters.split(",") if parameter != "void")
        pairs = [(" ".join(words[:-1]), words[-1]) for words in declared]
        given = [f"{name.lstrip('*')}: {_python_type(type_ + name)}" for type_, name in pairs]
        lines += _method_lines(f"def {name}", ["self", *given], _python_type(result))
    return "\n".join([*lines, "", "ffi: FFI", "lib: _Lib", ""])


def _python_type(c_type: str) -> str:
    return "Data" if "*" in c_type else "None" if c_type.strip() == "void" else "int"


def _method_lines(start: str, parameters: list[str], result: str) -> list[str]:
    line = f"    {start}({', '.join(parameters)}) -> {result}: ..."
    if len(line) <= STUB_WIDTH:
        return [line]
    return [f"    {start}(", f"        {', '.join(parameters)}", f"    ) -> {result}: ..."]


def csrc_paths(pattern: str) -> list[str]:
    """Returns the files of csrc that match, relative to the project's root, where setuptools
    runs."""
    return sorted(os.path.relpath(path) for path in CSRC.glob(pattern))


def missing_requirement() -> str | None:
    """Returns a message if the compiler or Python.h is missing; None if both exist."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    include = sysconfig.get_path("include")
    if shutil.which(shlex.split(compiler)[0]) is None:
        return "perftop: no C compiler found; install it: apt install gcc python3-dev"
    if not Path(include, "Python.h").exists():
        return "perftop: no Python.h found; install it: apt install python3-dev"
    return None


class build_ext(setuptools_build_ext.build_ext):  # noqa: N801 - setuptools' name for it
    def finalize_options(self) -> None:
        """Adds sources and headers to the extension; an sdist needs both."""
        super().finalize_options()
        for extension in self.extensions:
            extension.sources = csrc_paths(C_SOURCES)
            extension.depends = [*csrc_paths("*.h"), os.path.relpath(__file__)]

    def require_compiler(self) -> None:
        """Ends the build with a message of one line if the compiler or Python.h is missing."""
        problem = missing_requirement()
        if problem is not None:
            raise SystemExit(problem)

    def run(self) -> None:
        self.require_compiler()
        ffi = FFI()
        ffi.cdef(cffi_declarations())
        ffi.set_source("perfprobe._native", GLUE)
        glue = Path(self.build_temp, "_native.c")
        glue.parent.mkdir(parents=True, exist_ok=True)
        ffi.emit_c_code(str(glue))  # keeps the file if its content would not change
        for extension in self.extensions:
            extension.sources = [str(glue), *extension.sources]
        super().run()


if __name__ == "__main__":
    STUB.write_text(type_stub(cffi_declarations()))

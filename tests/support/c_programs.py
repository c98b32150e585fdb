"""Compiles the C programs of tests/native in several ways and runs them, and lists machine code of
probe/csrc."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from roots import ROOT, TESTS
from waiting import MAX_WAIT_S

HERE = TESTS / "native"
PROBE = ROOT / "probe"
SKIPPED_STATUS = 77
TIMEOUT_S = 120
COMMON_OPTIONS = [
    "-std=c11",
    "-g1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
    f"-I{PROBE / 'csrc'}",
]
PACKAGE_OPTIONS = ["-Wshadow", "-Wconversion", "-fvisibility=hidden"]
"""The package's compiler options."""
BUILDS = {
    "plain": ["-O2"],
    "asan-ubsan": ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "tsan": ["-O0", "-fsanitize=thread"],
}
DAILY = ("cc", "asan-ubsan"), ("cc", "tsan")
"""Builds that run by day. The plain build finds nothing that these miss, except faults that only
its speed shows; the plain build and the other compiler run at night."""
PROGRAMS = {path.stem for path in HERE.glob("test_*.c")}
SINGLE_THREADED = {
    "test_idle",
    "test_idle_load",
    "test_loops",
    "test_perf",
    "test_proc_stat",
    "test_slot",
}
"""Programs of one thread, which have no races."""
RACE_TESTS = {"test_idle_race"}
"""Programs that test only for races: test_idle checks the same memory."""
EXCLUDED = {"plain": set[str](), "asan-ubsan": RACE_TESTS, "tsan": SINGLE_THREADED}


def compile_source(compiler: list[str], *arguments: str | Path) -> None:
    subprocess.run([*compiler, *arguments], check=True, timeout=TIMEOUT_S)


def run(program: Path) -> tuple[int, str]:
    result = subprocess.run(
        [program], check=False, timeout=TIMEOUT_S, capture_output=True, text=True, errors="replace"
    )
    return result.returncode, result.stderr


def compiler_works(compiler: list[str], where: Path) -> bool:
    """Whether an empty program can be built by this compiler and run."""
    (where / "empty.c").write_text("int main(void) { return 0; }\n")
    try:
        compile_source(compiler, where / "empty.c", "-o", where / "empty")
    except (subprocess.CalledProcessError, FileNotFoundError):
        return False
    return run(where / "empty")[0] == 0


def wrap_options(source: Path) -> list[str]:
    """Linker options that make a program's __wrap_ functions replace functions of the C library."""
    text = source.read_text()
    for header in re.findall(r'#include "(\w+_play\.h)"', text):
        text += (HERE / header).read_text()
    names = sorted(set(re.findall(r"\b__wrap_(\w+)", text)))
    return [f"-Wl,--wrap={name}" for name in names]


def build_all(compiler: list[str], where: Path, names: set[str]) -> None:
    """Compiles every source of csrc into an archive, and links the programs with it."""
    sources = sorted((PROBE / "csrc").glob("[!_]*.c"))
    objects = [where / f"{source.stem}.o" for source in sources]
    archive = where / "csrc.a"

    def add(source: Path, target: Path) -> None:
        compile_source(compiler, *PACKAGE_OPTIONS, "-c", source, "-o", target)

    def link(name: str) -> None:
        source = HERE / f"{name}.c"
        compile_source(compiler, source, archive, *wrap_options(source), "-o", where / name)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(add, sources, objects))
        subprocess.run(["ar", "rcs", archive, *objects], check=True, timeout=TIMEOUT_S)
        list(pool.map(link, sorted(names)))


def directory(cc: str, build: str, shared: Path) -> Path:
    """The directory of a build's programs, below a directory that all workers of pytest-xdist
    share. The first worker that needs the programs builds them."""
    if shutil.which(cc) is None:
        pytest.skip(f"no {cc} here")
    compiler = [cc, *COMMON_OPTIONS, *BUILDS[build]]
    where = shared / f"native-{cc}-{build}"
    where.mkdir(exist_ok=True)
    result, useless = where / "done", where / "useless"
    with (where / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists() and not useless.exists():
            usable = compiler_works(compiler, where)
            if usable:
                build_all(compiler, where, PROGRAMS - EXCLUDED[build])
            (result if usable else useless).touch()
    if useless.exists():
        pytest.skip(f"{' '.join(compiler)} makes no program that runs here")
    return where


def cases() -> Iterator[Any]:
    """Compiler, build and program of each case; all except the daily builds run at night."""
    for cc, build in product(("cc", "clang"), BUILDS):
        for program in sorted(PROGRAMS - EXCLUDED[build]):
            marks = [] if (cc, build) in DAILY else [pytest.mark.nightly]
            yield pytest.param(cc, build, program, marks=marks)


def assert_success(cc: str, build: str, program: str, base: Path) -> None:
    """Runs the program; `base` is pytest's directory of this worker."""
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    status, errors = run(directory(cc, build, shared) / program)
    if status == SKIPPED_STATUS:
        pytest.skip(errors.strip() or program)
    assert status == 0, errors


CSRC = ROOT / "probe" / "csrc"


def listing(source: str, directory: Path) -> str:
    """objdump's listing of a file of probe/csrc, compiled like the package."""
    for tool in ("cc", "objdump"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} here")
    code = directory / "code.o"
    flags = ["-std=c11", "-O2", "-pthread", f"-I{CSRC}", "-c"]
    subprocess.run(["cc", *flags, CSRC / source, "-o", code], check=True, timeout=MAX_WAIT_S)
    return subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", code],
        capture_output=True, text=True, check=True, timeout=MAX_WAIT_S,
    ).stdout  # fmt: skip

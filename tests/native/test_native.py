"""The C programs here, compiled in several ways and run; the header, the glue, the stub."""

from __future__ import annotations

import ast
import fcntl
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import perfprobe
from perfprobe import wire
from perfprobe._native import lib

HERE = Path(__file__).parent
PROBE = HERE.parents[1] / "probe"
SKIPPED = 77
TIMEOUT_S = 120
ALWAYS = ["-std=c11", "-g1", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{PROBE / 'csrc'}"]
STRICT = ["-Wshadow", "-Wconversion", "-fvisibility=hidden"]
"""As the package is compiled."""
BUILDS = {
    "plain": ["-O2"],
    "asan-ubsan": ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "tsan": ["-O1", "-fsanitize=thread"],
}
DAILY = ("cc", "asan-ubsan"), ("cc", "tsan")
"""What these do not find, the plain build does not find either, but for what only its speed shows;
it and the other compiler are for the night."""
PROGRAMS = {path.stem for path in HERE.glob("test_*.c")}
ALONE = {"test_idle", "test_idle_load", "test_known", "test_perf", "test_plan", "test_proc_stat",
         "test_slot"}  # fmt: skip
"""Programs of one thread, in which there are no races to be found."""
CONTEND = {"test_idle_race"}
"""Programs that only look for races: their memory is that of test_idle."""
LEFT_OUT = {"plain": set[str](), "asan-ubsan": CONTEND, "tsan": ALONE}
QUIET = {"test_idle_load"}
"""Programs that prove less on a CPU that others keep busy: it never goes idle."""


def compiled(compiler: list[str], *arguments: str | Path) -> None:
    subprocess.run([*compiler, *arguments], check=True, timeout=TIMEOUT_S)


def run(program: Path) -> tuple[int, str]:
    done = subprocess.run(
        [program], check=False, timeout=TIMEOUT_S, capture_output=True, text=True, errors="replace"
    )
    return done.returncode, done.stderr


def works(compiler: list[str], where: Path) -> bool:
    """Whether an empty program can be built so and run."""
    (where / "empty.c").write_text("int main(void) { return 0; }\n")
    try:
        compiled(compiler, where / "empty.c", "-o", where / "empty")
    except (subprocess.CalledProcessError, FileNotFoundError):
        return False
    return run(where / "empty")[0] == 0


def wrapped(source: Path) -> list[str]:
    """Linker options by which a program's __wrap_ functions replace functions of the C library."""
    text = source.read_text()
    for header in re.findall(r'#include "(\w+_play\.h)"', text):
        text += (HERE / header).read_text()
    names = sorted(set(re.findall(r"\b__wrap_(\w+)", text)))
    return [f"-Wl,--wrap={name}" for name in names]


def build_all(compiler: list[str], where: Path, names: set[str]) -> None:
    """Every source of csrc once, in an archive, and the programs, linked against it."""
    sources = sorted((PROBE / "csrc").glob("[!_]*.c"))
    objects = [where / f"{source.stem}.o" for source in sources]
    archive = where / "csrc.a"

    def add(source: Path, target: Path) -> None:
        compiled(compiler, *STRICT, "-c", source, "-o", target)

    def link(name: str) -> None:
        source = HERE / f"{name}.c"
        compiled(compiler, source, archive, *wrapped(source), "-o", where / name)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(add, sources, objects))
        subprocess.run(["ar", "rcs", archive, *objects], check=True, timeout=TIMEOUT_S)
        list(pool.map(link, sorted(names)))


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all workers of pytest-xdist have."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest, shared: Path) -> Path:
    """Where the programs of a build are. The first worker that needs them makes them."""
    cc, build = request.param
    if shutil.which(cc) is None:
        pytest.skip(f"no {cc} here")
    compiler = [cc, *ALWAYS, *BUILDS[build]]
    where = shared / f"native-{cc}-{build}"
    where.mkdir(exist_ok=True)
    done, useless = where / "done", where / "useless"
    with (where / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() and not useless.exists():
            usable = works(compiler, where)
            if usable:
                build_all(compiler, where, PROGRAMS - LEFT_OUT[build])
            (done if usable else useless).touch()
    if useless.exists():
        pytest.skip(f"{' '.join(compiler)} makes no program that runs here")
    return where


def cases() -> Iterator[Any]:
    for cc, build in product(("cc", "clang"), BUILDS):
        for program in sorted(PROGRAMS - LEFT_OUT[build]):
            marks = [] if (cc, build) in DAILY else [pytest.mark.nightly]
            marks += [pytest.mark.machine] if program in QUIET else []
            yield pytest.param((cc, build), program, id=f"{cc}-{build}-{program}", marks=marks)


@pytest.mark.parametrize(("programs", "program"), cases(), indirect=["programs"])
def test_program(programs: Path, program: str) -> None:
    status, errors = run(programs / program)
    if status == SKIPPED:
        pytest.skip(errors.strip() or program)
    assert status == 0, errors


@pytest.mark.parametrize("name", [n for n in vars(wire) if n.startswith("ROW_")] + ["HEAD"])
def test_header_agrees_with_the_wire(name: str) -> None:
    assert getattr(lib, f"PP_{name}") == getattr(wire, name)


def test_stub_has_the_functions_of_the_library() -> None:
    stub = ast.parse(Path(perfprobe.__file__).with_name("_native.pyi").read_text())
    (cls,) = (node for node in stub.body if isinstance(node, ast.ClassDef))
    functions = [node for node in cls.body if isinstance(node, ast.FunctionDef)]
    functions = [node for node in functions if node.name.startswith("pp_")]
    for node in functions:
        prototype = (inspect.getdoc(getattr(lib, node.name)) or "").splitlines()[0]
        count = 0 if "()" in prototype else prototype.count(",") + 1
        assert len(node.args.args) - 1 == count, prototype
    names = [name for name in dir(lib) if name.startswith("pp_")]
    assert sorted(node.name for node in functions) == sorted(names)


@pytest.fixture
def build_native() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_native", PROBE / "build_native.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_only_the_marked_region_is_declared(build_native: ModuleType) -> None:
    text = build_native.declarations((PROBE / "csrc" / "perfprobe.h").read_text())
    assert "pp_drain" in text
    assert "#" not in text


def test_the_build_names_what_is_missing(
    build_native: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    assert build_native.missing() == (
        "perftop: no C compiler found; install it: apt install gcc python3-dev"
    )
    monkeypatch.setenv("CC", "true")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    assert build_native.missing() == (
        "perftop: no Python.h found; install it: apt install python3-dev"
    )
    (tmp_path / "Python.h").touch()
    assert build_native.missing() is None

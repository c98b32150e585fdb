"""The C programs here, compiled in several ways and run; the header, the glue, the stub."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import shutil
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

import perfprobe
from perfprobe import wire
from perfprobe._native import lib

HERE = Path(__file__).parent
PROBE = HERE.parents[1] / "probe"
SKIPPED = 77
TIMEOUT_S = 60
ALWAYS = ["-std=c11", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{PROBE / 'csrc'}"]
BUILDS = {
    "plain": ["-O2"],
    "asan-ubsan": ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "tsan": ["-O1", "-fsanitize=thread"],
    "no-tsc": ["-O2", "-DPP_NO_TSC"],  # what other architectures compile
}
PROGRAMS = sorted(path.stem for path in HERE.glob("test_*.c"))


def compile_and_run(cc: str, source: Path, target: Path, flags: list[str]) -> tuple[int, str]:
    subprocess.run(
        [cc, *ALWAYS, *flags, str(source), "-o", str(target)],
        check=True,
        timeout=TIMEOUT_S,
    )
    done = subprocess.run(
        [target], check=False, timeout=TIMEOUT_S, capture_output=True, text=True, errors="replace"
    )
    return done.returncode, done.stderr


@pytest.fixture(scope="session", params=["cc", "clang"])
def cc(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"no {name} here")
    return name


@pytest.fixture(scope="session", params=BUILDS)
def flags(
    request: pytest.FixtureRequest, cc: str, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """The flags of a build, if an empty program can be built so and run."""
    flags = BUILDS[request.param]
    where = tmp_path_factory.mktemp("empty")
    (where / "empty.c").write_text("int main(void) { return 0; }\n")
    try:
        status, _ = compile_and_run(cc, where / "empty.c", where / "empty", flags)
    except subprocess.CalledProcessError:
        status = 1
    if status:
        pytest.skip(f"{cc} {' '.join(flags)} makes no program that runs here")
    return flags


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program: str, cc: str, flags: list[str], tmp_path: Path) -> None:
    status, errors = compile_and_run(cc, HERE / f"{program}.c", tmp_path / program, flags)
    if status == SKIPPED:
        pytest.skip(errors.strip() or program)
    assert status == 0, errors


@pytest.mark.parametrize("name", [n for n in vars(wire) if n.startswith("ROW_")] + ["HEAD"])
def test_header_agrees_with_the_wire(name: str) -> None:
    assert getattr(lib, f"PP_{name}") == getattr(wire, name)


def test_stub_has_the_names_of_the_library() -> None:
    stub = ast.parse(Path(perfprobe.__file__).with_name("_native.pyi").read_text())
    (cls,) = (node for node in stub.body if isinstance(node, ast.ClassDef))
    names = []
    for node in cls.body:
        if isinstance(node, ast.FunctionDef):
            names.append(node.name)
            prototype = (inspect.getdoc(getattr(lib, node.name)) or "").splitlines()[0]
            count = 0 if "()" in prototype else prototype.count(",") + 1
            assert len(node.args.args) - 1 == count, prototype
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    assert sorted(names) == sorted(dir(lib))


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

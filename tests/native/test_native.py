"""The header, the glue and the stub of the C helper."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest
from roots import ROOT

import perfprobe
from perfprobe import wire
from perfprobe._native import lib

PROBE = ROOT / "probe"


@pytest.mark.parametrize("name", [n for n in vars(wire) if n.startswith("ROW_")] + ["HEAD"])
def test_header_agrees_with_the_wire(name: str) -> None:
    assert getattr(lib, f"PP_{name}") == getattr(wire, name)


def python_type(c_type: str) -> str:
    """The type in the stub for a type of the header."""
    return "Data" if "*" in c_type else "None" if c_type.strip() == "void" else "int"


def test_the_stub_declares_all_library_functions_with_their_types() -> None:
    stub = ast.parse(Path(perfprobe.__file__).with_name("_native.pyi").read_text())
    (cls,) = (node for node in stub.body if isinstance(node, ast.ClassDef))
    functions = [node for node in cls.body if isinstance(node, ast.FunctionDef)]
    functions = [node for node in functions if node.name.startswith("pp_")]
    for node in functions:
        prototype = (inspect.getdoc(getattr(lib, node.name)) or "").splitlines()[0]
        result, _, rest = prototype.partition(f"{node.name}(")
        given = [python_type(each) for each in rest.rstrip(");").split(",") if each]
        written = [ast.unparse(each.annotation) for each in node.args.args[1:] if each.annotation]
        assert node.returns is not None
        assert [*written, ast.unparse(node.returns)] == [*given, python_type(result)], prototype
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
    headers = sorted((PROBE / "csrc").glob(build_native.HEADERS))
    text = build_native.declarations(headers)
    included = re.findall(r'#include "(pp_\w+\.h)"', (PROBE / "csrc/perfprobe.h").read_text())
    assert included == [path.name for path in headers]
    assert "pp_drain" in text
    assert "#" not in text


def test_the_build_names_missing_tools(
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

"""The header, glue code and stub of the C helper."""

from __future__ import annotations

import importlib.util
import re
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest
from roots import ROOT

from perfprobe import wire
from perfprobe._native import lib

PROBE = ROOT / "probe"


@pytest.mark.parametrize("name", [n for n in vars(wire) if n.startswith("ROW_")] + ["HEAD"])
def test_header_agrees_with_the_wire(name: str) -> None:
    assert getattr(lib, f"PP_{name}") == getattr(wire, name)


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
    text = build_native.cffi_declarations()
    included = re.findall(r'#include "(pp_\w+\.h)"', (PROBE / "csrc/perfprobe.h").read_text())
    assert included == [path.name for path in headers]
    assert "pp_drain" in text
    assert "#" not in text


def test_the_stub_is_written_from_the_headers_and_has_all_functions(
    build_native: ModuleType,
) -> None:
    text = build_native.STUB.read_text()
    assert text == build_native.type_stub(build_native.cffi_declarations()), (
        "run probe/build_native.py"
    )
    functions = [name for name in dir(lib) if name.startswith("pp_")]
    assert re.findall(r"    def (pp_\w+)\(", text) == sorted(functions)


def test_the_build_names_missing_tools(
    build_native: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    assert build_native.missing_requirement() == (
        "perftop: no C compiler found; install it: apt install gcc python3-dev"
    )
    monkeypatch.setenv("CC", "true")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    assert build_native.missing_requirement() == (
        "perftop: no Python.h found; install it: apt install python3-dev"
    )
    (tmp_path / "Python.h").touch()
    assert build_native.missing_requirement() is None

"""The layers: who may import what. Asked of fresh interpreters, because an import inside a function
is seen by no linter."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

APP = Path(__file__).parents[1] / "app" / "perftop"
PROBE = Path(__file__).parents[1] / "probe" / "perfprobe"

MODEL = ["counters", "metrics", "evaluate", "calibrate", "smt", "gates", "summary",
         "session", "format", "filter", "believe", "history", "interval", "limits", "packing",
         "trail", "tabular", "moment", "playhead", "detect.detection", "detect.spells",
         "recording", "seekable"]  # fmt: skip
HEADLESS = [*MODEL, "export", "report", "stat", "stream", "tree", "doctor", "failed", "keys",
            "config", "launch", "job", "timers", "histogram"]  # fmt: skip


def loaded(code: str) -> set[str]:
    """Top-level modules after this code."""
    show = "\nimport sys; print(' '.join({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code + show], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("name", HEADLESS)
def test_the_model_needs_no_screen(name: str) -> None:
    assert not loaded(f"import perftop.{name}") & {"textual", "rich"}


def test_the_probe_is_small() -> None:
    code = "import perfprobe.__main__, perfprobe.sources.os.procfs, perfprobe.serve"
    assert not loaded(code) & {"numpy", "textual", "rich", "perftop", "psutil", "asyncio"}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["--default-config"], ["stat", "--help"]]
)
def test_help_is_quick(arguments: list[str]) -> None:
    code = (
        "import contextlib, io\nfrom perftop.cli import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        f"    main({arguments!r})"
    )
    assert not loaded(code) & {"textual", "numpy", "rich", "asyncio", "msgpack"}


def source(name: str) -> Path:
    return APP / f"{name.replace('.', '/')}.py"


def imports(path: Path) -> set[str]:
    """Every module that a file names in an import, at any depth."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    return names


def test_the_app_takes_only_the_wire_from_the_probe() -> None:
    allowed = {"perfprobe", "perfprobe.wire"}
    for path in APP.rglob("*.py"):
        taken = {n for n in imports(path) if n.startswith("perfprobe")}
        extra = {n for n in taken if not n.startswith("perfprobe.wire") and n not in allowed}
        assert not extra, f"{path.name} imports {extra}"


def test_nothing_imports_upward() -> None:
    """Screens do not know the app, widgets neither screens nor streams, the model no asyncio."""
    forbidden = {
        "screens": {"perftop.tui.app", "perftop.cli", "perftop.process.probe_stream"},
        "widgets": {
            "perftop.tui.app",
            "perftop.cli",
            "perftop.screens",
            "perftop.process.probe_stream",
            "perftop.tui.screen.messages",
        },
    }
    for folder, names in forbidden.items():
        for path in (APP / folder).rglob("*.py"):
            found = {
                n for n in imports(path) if any(n == f or n.startswith(f + ".") for f in names)
            }
            assert not found, f"{folder}/{path.name} imports {found}"
    for name in MODEL:
        assert not imports(source(name)) & {"asyncio", "socket", "subprocess", "textual"}


def test_the_probe_knows_no_app() -> None:
    for path in PROBE.rglob("*.py"):
        assert not {n for n in imports(path) if n.startswith("perftop")}, path.name
        if "sim" not in path.parts:
            assert not {n for n in imports(path) if n.startswith("numpy")}, path.name


def test_this_test_sees_imports() -> None:
    """A guard whose extractor finds nothing passes everything."""
    assert "perfprobe.wire" in imports(APP / "session.py")
    assert "numpy" in loaded("import perftop.session.session")
    assert HEADLESS
    assert all(source(name).exists() for name in HEADLESS)

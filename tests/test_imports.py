"""Folders are layers, each with the folders that it may import. Imports are read from the syntax
tree, even inside functions; a new interpreter lists the modules that an import loads."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest
from command import python
from roots import ROOT

VIEW_IMPORTS = "base model detect session output draw tui/shared wire"
"""Modules used by views."""
VIEWS = "tui/overview tui/views"
MAY_IMPORT = {
    # --- perftop, from the lowest layer up; a folder includes all modules below it
    "base": "",
    "draw": "base",
    "docs": "base",
    "process": "base wire perfprobe.native.batches",
    "model": "base wire",
    "detect": "base model",
    "session": "base model detect wire",
    "recording": "base model session wire",
    "output": "base process model session wire",
    "output/compare": "base model session output wire",
    "output/export": "base process model session output wire",
    "tui/shared": "base model detect session output draw wire",
    **dict.fromkeys(VIEWS.split(), VIEW_IMPORTS),
    "tui/frame": f"{VIEW_IMPORTS} process {VIEWS}",
    "tui": "base model process session recording output draw tui/shared tui/frame wire",
    "verbs": "base docs draw process model session recording output tui wire"
    " perfprobe.stream_options",
    "perftop": "base docs tui verbs",
    # --- perfprobe
    "wire": "",
    "cpu": "wire",
    "native": "wire cpu",
    "kernel": "wire cpu native",
    "polled": "wire cpu native kernel",
    "machine": "wire cpu native kernel polled",
    "perf": "wire cpu native kernel machine",
    "registers": "wire cpu native kernel machine",
    "programming": "wire cpu native kernel machine registers",
    "sources": "wire",
    "sources/sim": "wire cpu native kernel polled perfprobe.perf.event_names",
    "instruments": "wire cpu native kernel machine polled perf registers programming",
    "instruments/selftest": "wire native polled sources instruments",
    "perfprobe": "wire cpu native kernel machine perf registers programming sources instruments",
}
ALLOWED_EVERYWHERE = ["perfprobe.errors", "perftop.draw.columns"]
"""Modules that any module may import: errors of the probe, and printing of tables."""
HEADLESS = "model detect session recording output process verbs"
"""Folders without a screen, which work without Textual and Rich."""
PATHS = {
    ".".join(path.relative_to(ROOT / base).with_suffix("").parts): path
    for base in ("app", "probe")
    for path in (ROOT / base).glob("perf*/**/*.py")
}


def folder(module: str) -> str:
    """The folder in the package; for files of the package itself, its name."""
    package, *inner = module.split(".")[:-1]
    return "/".join(inner) or package


def modules(folders: str) -> list[str]:
    return [
        name.removesuffix(".__init__")
        for name in PATHS
        if any(f"{folder(name)}/".startswith(f"{each}/") for each in folders.split())
    ]


@functools.cache
def statements(source: str) -> list[ast.Import | ast.ImportFrom]:
    return [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Line and module of each import of our packages, except their `__init__`, which has only the
    version."""
    for node in statements(source):
        base = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for name in (base + alias.name for alias in node.names):
            tried = (name, f"{name}.__init__", base[:-1], f"{base}__init__")
            found = next((module for module in tried if module in PATHS), "")
            if found.count(".") > 1 or (found and not found.endswith("__init__")):
                yield node.lineno, found


def forbidden_imports(module: str, source: str) -> list[str]:
    """Imports of the module that the table does not allow."""
    here, may = folder(module), MAY_IMPORT[folder(module)].split() + ALLOWED_EVERYWHERE
    return [
        f"{PATHS[module].relative_to(ROOT)}:{line}: {here} must not import {found}"
        for line, found in imports(source)
        if folder(found) != here
        and found not in may
        and not any(f"{folder(found)}/".startswith(f"{each}/") for each in may)
    ]


def loaded_modules(code: str) -> set[str]:
    """Top-level modules that are loaded after this code."""
    show = "\nimport sys; print(' '.join({m.partition('.')[0] for m in sys.modules}))"
    done = python(code + show)
    return set(done.stdout.split())


def test_the_table_lists_the_existing_folders() -> None:
    assert {folder(module) for module in PATHS} == MAY_IMPORT.keys()


def test_no_import_runs_upward() -> None:
    found = [
        line for m, path in PATHS.items() for line in forbidden_imports(m, path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


def test_no_files_and_no_folders_import_each_other() -> None:
    files: dict[str, set[str]] = {}
    folders: dict[str, set[str]] = {}
    for module, path in PATHS.items():
        for _, found in imports(path.read_text("utf-8")):
            files.setdefault(module, set()).add(found)
            if folder(found) != folder(module) and found not in ALLOWED_EVERYWHERE:
                folders.setdefault(folder(module), set()).add(folder(found))
    for graph in (files, folders):
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            pytest.fail(" -> ".join(reversed(error.args[1])))


def test_imports_inside_functions_are_seen() -> None:
    """If no import were found, the tests above would always pass."""
    source = "def f():\n    from perftop.tui import app\n    import perftop.base.text\n"
    assert forbidden_imports("perftop.session.session", source) == [
        "app/perftop/session/session.py:2: session must not import perftop.tui.app"
    ]
    assert "perftop.model.counters" in modules("model")
    assert "numpy" in loaded_modules("import perftop.session.session")


def test_all_imports_name_the_package() -> None:
    for path in PATHS.values():
        for node in statements(path.read_text("utf-8")):
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: relative"


def test_verbs_without_a_screen_need_no_textual() -> None:
    found = modules(HEADLESS)
    drawing = {m for m in found if m.startswith("perftop.verbs.ramp")}
    assert not loaded_modules(f"import {', '.join(sorted({*found} - drawing))}") & {
        "textual",
        "rich",
    }


def test_the_first_picture_loads_no_library() -> None:
    """It is shown while numpy and Textual are imported."""
    found = loaded_modules(
        "import perftop.cli, perftop.tui.config, perftop.tui.config\nimport perftop.process.launch"
    )
    assert not found & {"numpy", "textual", "rich", "asyncio", "msgpack"}


def test_verbs_that_read_a_recording_need_no_event_loop() -> None:
    """Without asyncio, `summary` of a short recording takes a tenth less time."""
    modules_of_verbs = (
        "perftop.verbs.measuring, perftop.verbs.headless, perftop.recording.file, "
        "perftop.output.compare.text, perftop.output.compare.readings, "
        "perftop.output.export.json_lines, perftop.output.export.tables"
    )
    assert "asyncio" not in loaded_modules(f"import {modules_of_verbs}")


def test_the_first_numbers_load_only_one_view() -> None:
    code = (
        "import perftop.tui.stream, sys\n"
        "print(*(name for name in sys.modules if name.startswith('perftop.tui')))"
    )
    done = python(code)
    there = {folder(module) for module in done.stdout.split()}
    assert there & set(VIEWS.split()) == set()


def test_the_screen_loads_no_module_that_it_does_not_use() -> None:
    """These take 7 MB. Later imports must find the modules that `fast_imports` hides."""
    code = (
        "import sys\nfrom perftop.verbs.options import fast_imports\nwith fast_imports():\n"
        "    import perftop.tui.stream, perftop.session.loss_history as loss_history\n"
        "    import numpy, perftop.detect.ramps as ramps, perftop.output.why_text\n"
        "ramps.median(numpy.ones((3, 2)))\n"
        "history = loss_history.LossHistory([0, 0])\n"
        "history.between(loss_history.history_edges(10**12, 60))\n"
        "unused = {'ssl', 'ctypes', 'json', 'statistics', 'numpy.ma'} & sys.modules.keys()\n"
        "import ssl, ctypes\nprint(unused, 'asyncio' in sys.modules)"
    )
    assert python(code).stdout == "set() True\n"


def test_the_probe_is_small() -> None:
    """Only sim imports numpy, and no stream needs psutil or shutil."""
    found = {m for m in PATHS if m.startswith("perfprobe") and not m.endswith("__main__")}
    found -= {"perfprobe._native"}
    rest = {m.removesuffix(".__init__") for m in found if folder(m) != "sources/sim"}
    code = f"import {', '.join(sorted(rest))}\nfrom perfprobe import __main__\n__main__._parser()"
    unused = {"numpy", "textual", "rich", "perftop", "psutil", "asyncio", "shutil"}
    assert not loaded_modules(code) & unused


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["--default-config"], ["stat", "--help"]]
)
def test_help_is_quick(arguments: list[str]) -> None:
    code = (
        "import contextlib, io\nfrom perftop.cli import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        f"    main({arguments!r})"
    )
    assert not loaded_modules(code) & {"textual", "numpy", "rich", "asyncio", "msgpack"}

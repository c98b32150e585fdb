"""Runs the fast part of the suite with the oldest and with the newest versions of perftop's
dependencies that pyproject.toml allows, on several versions of Python.

Each combination is installed in a separate environment, with a copy of the committed files.
Prints a line for each. An interpreter that is not installed, or for which the oldest versions have
no binary package, is reported but is not a failure; --strict makes it one.

Run by hand: python tests/bench/versions.py [--strict] [PYTHON:oldest|newest …] [-- PYTEST-WORD …]
             (default: 3.11 to 3.14, each with the oldest and the newest versions)
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
FIRST_WITH_BINARIES = {
    "3.13": {"numpy": "2.1.0", "msgpack": "1.1.0", "pyarrow": "18.0.0"},
    "3.14": {"cffi": "2.0.0", "numpy": "2.3.2", "msgpack": "1.1.2", "pyarrow": "22.0.0"},
}
"""The oldest versions with binary packages for a version of Python, if those of pyproject.toml have
none."""
FAST = (
    "tests/test_imports.py", "tests/app/base", "tests/app/draw", "tests/app/model",
    "tests/app/detect", "tests/app/session", "tests/app/recording", "tests/app/output",
    "tests/app/tui/frame", "tests/app/tui/views", "tests/app/tui/overview", "tests/app/tui/shared",
    "tests/probe/wire", "tests/probe/perf", "tests/probe/native", "tests/golden",
)  # fmt: skip
NOT_OLDEST = tuple(
    f"--deselect=tests/golden/test_golden.py::test_outputs_are_as_expected[{group}]"
    for group in ("data", "file-job")
)
"""Percentiles of the oldest numpy differ in the last of seven digits."""


def oldest_constraints(python: str) -> list[str]:
    """Each dependency at the lowest version that pyproject.toml allows, as pip's constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["parquet"]]
    lowest = dict(re.findall(r"([\w-]+)>=([\d.]+)", "\n".join(wanted)))
    lowest |= FIRST_WITH_BINARIES.get(python, {})
    return [f"{name}=={version}" for name, version in lowest.items()]


def tools() -> list[str]:
    """Returns the packages that the tests need, without the pinned version of Textual for comparing
    pictures."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tests = project["optional-dependencies"]["test"]
    return [name for name in tests if not re.match(r"textual|mypy|ruff|types", name)]


def run(place: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)


def suite_result(python: str, which: str, pytest: list[str], place: Path) -> tuple[str, str]:
    """Returns the result, as a sign and a text."""
    program = shutil.which(f"python{python}")
    if program is None or run(ROOT, program, "-V").returncode:
        return "-", f"there is no python{python} here"
    place.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x"], cwd=place, input=archive.stdout, check=True)
    subprocess.run([program, "-m", "venv", ".venv"], cwd=place, check=True)
    (place / "constraints").write_text(
        "\n".join(oldest_constraints(python) if which == "oldest" else [])
    )
    install = ".venv/bin/pip", "install", "-q", "--only-binary=:all:", "-c", "constraints"
    result = run(place, *install, "-e", ".", *tools())
    if result.returncode:
        last = result.stderr.strip().splitlines()[-1]
        return ("-" if "No matching distribution" in result.stderr else "✗"), last
    listed = run(place, ".venv/bin/pip", "list", "--format=freeze").stdout
    names = "numpy|textual|msgpack|cffi|psutil"
    versions = " ".join(re.findall(rf"^(?:{names})==.*$", listed, re.MULTILINE))
    more = NOT_OLDEST if which == "oldest" else ()
    # Hypothesis counts references, which Python 3.14 shares with local variables.
    warning = "-W", "ignore:It looks like `register_random`"
    command = ".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *warning
    result = run(place, *command, *pytest, *more)
    lines = result.stdout.strip().splitlines() or [result.stderr.strip()[-300:]]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR", "E  "))]
    return ("✗" if result.returncode else "✓"), "\n    ".join([f"{versions}: {lines[-1]}", *failed])


def main(words: list[str]) -> int:
    split = words.index("--") if "--" in words else len(words)
    own, pytest = words[:split], words[split + 1 :] or [*FAST]
    strict = "--strict" in own
    pairs = [word.split(":") for word in own if word != "--strict"]
    pairs = pairs or [[python, which] for python in PYTHONS for which in ("oldest", "newest")]
    bad = 0
    for python, which in pairs:
        with tempfile.TemporaryDirectory(prefix="versions-") as directory:
            sign, text = suite_result(python, which, pytest, Path(directory) / which)
        bad += sign == "✗" or (strict and sign == "-")
        print(f"{sign} Python {python}, {which}: {text}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

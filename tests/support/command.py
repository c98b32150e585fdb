"""Runs perftop's commands as a user would, with a time limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

TIMEOUT_S = 60
Line = dict[str, Any]


def argv(*arguments: str, program: str = "perftop") -> list[str]:
    return [sys.executable, "-m", program, *arguments]


def run(*arguments: str, program: str = "perftop", **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv(*arguments, program=program),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=os.environ | {"LC_ALL": "C.UTF-8"},
        **more,
    )


def lines(text: str, kind: str | None = None) -> list[Line]:
    found = [json.loads(line) for line in text.splitlines()]
    return [line for line in found if kind is None or line["type"] == kind]


def stat(*arguments: str) -> list[Line]:
    """The lines of a `stat --json`, which must succeed."""
    done = run("stat", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return lines(done.stdout)

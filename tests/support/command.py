"""Runs perftop's commands as a user would, with a time limit."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from typing import Any

from waiting import MOST_S

from perftop import cli

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


def python(
    code: str, *through: str, check: bool = True, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Code in an interpreter of its own; `through`: a program, with options, that starts it."""
    return subprocess.run(
        [*through, sys.executable, "-c", code],
        capture_output=True, text=True, timeout=MOST_S, check=check, **more,
    )  # fmt: skip


def here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The same for perftop in this process, which spares the start of an interpreter; its probe is
    a child. Not for what ends perftop, nor for what a CMD prints."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = cli.main([*arguments])
        except SystemExit as ended:  # of argparse
            assert isinstance(ended.code, int)
            status = ended.code
    said, complained = (each.detach().getvalue().decode() for each in (out, err))
    return subprocess.CompletedProcess(arguments, status, said, complained)


def lines(text: str, kind: str | None = None) -> list[Line]:
    found = [json.loads(line) for line in text.splitlines()]
    return [line for line in found if kind is None or line["type"] == kind]


def stat(*arguments: str) -> list[Line]:
    """The lines of a `stat --json`, which must succeed."""
    done = here("stat", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return lines(done.stdout)

"""The programs on the page about automation run unchanged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from shown_output import TEXTS
from waiting import MAX_WAIT_S

PROGRAMS = re.findall(
    r"^```python\n(.*?)^```",
    TEXTS["automate"].read_text(encoding="utf-8"),
    re.DOTALL | re.MULTILINE,
)
PRINTED = (r".*lmp.*backup.*\n *\d+\.\d%  .*backup.*\(measured\); task.*\n(.*\n)*not measured: .*",
           r"CPU 0: busy \d+%, steal \d\.\d%\nCPU 1: busy \d+%, steal \d\.\d%")  # fmt: skip


@pytest.mark.parametrize(("program", "printed"), [*zip(PROGRAMS, PRINTED, strict=True)])
def test_programs_of_the_page_run(program: str, printed: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=os.environ | {"PATH": path},
        check=False, capture_output=True, text=True, timeout=MAX_WAIT_S,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(printed, done.stdout.strip()), done.stdout


def test_programs_for_a_notebook_are_short() -> None:
    assert all(len(re.findall(r"^.+$", program, re.MULTILINE)) <= 10 for program in PROGRAMS)

"""Machine code that the compiler made of our C."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from roots import ROOT
from waiting import MOST_S

CSRC = ROOT / "probe" / "csrc"


def listing(source: str, directory: Path) -> str:
    """objdump's listing of a file of probe/csrc, compiled like the package."""
    for tool in ("cc", "objdump"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} here")
    code = directory / "code.o"
    flags = ["-std=c11", "-O2", "-pthread", f"-I{CSRC}", "-c"]
    subprocess.run(["cc", *flags, CSRC / source, "-o", code], check=True, timeout=MOST_S)
    return subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", code],
        capture_output=True, text=True, check=True, timeout=MOST_S,
    ).stdout  # fmt: skip

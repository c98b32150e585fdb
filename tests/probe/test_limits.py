"""What the probe does where the kernel limits it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trees

CPUS = 40
FEW = 64
"""Open files: fewer than that many CPUs need."""


@pytest.mark.parametrize("source", ["auto", "os"])
def test_a_machine_of_many_cpus_needs_no_higher_limit_of_open_files(
    source: str, tmp_path: Path
) -> None:
    """The soft limit is too low, the hard one is not."""
    trees.machine(tmp_path, CPUS)
    for cpu in range(CPUS):
        for state in range(3):
            trees.put(tmp_path, f"{trees.CPU}/cpu{cpu}/cpuidle/state{state}/time", "1000\n")
            trees.put(tmp_path, f"{trees.CPU}/cpu{cpu}/cpuidle/state{state}/name", f"C{state}\n")
    code = (
        "import resource, sys; from perfprobe import __main__ as probe\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW}, hard))\n"
        "sys.exit(probe.main(sys.argv[1:]))"
    )
    words = ["stream", "--source", source, "--sysroot", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        input=b"",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"hello" in done.stdout

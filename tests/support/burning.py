"""Processes that would have a CPU for themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from started import going

BURN = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
open("/proc/self/comm", "w").write(sys.argv[2])
print(flush=True)
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(10**6): pass
"""
"""It ends if the test is killed."""


@contextmanager
def burning(cpu: int, name: str = "burns") -> Iterator[int]:
    """The PID of one of that name, once it is on that CPU."""
    command = [sys.executable, "-c", BURN, str(cpu), name]
    with going(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid

"""Whether any task was born, which the kernel tells with less work than who there is.

The last word of /proc/loadavg is the number of the task that was born last in this PID namespace,
thread or process. Numbers are given in turn, so it stays the same only if none was born. Tasks of a
restored checkpoint get the numbers they had; they are known at the next birth of another.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from perfprobe.kernel.process_stat import LIMIT, opened


class Births:
    def __init__(self, proc: str) -> None:
        self._last = 0
        """The last task that was born; 0: not known."""
        self._fd = -1
        with suppress(OSError):
            self._fd = opened(f"{proc}/loadavg")
            # A container may have a file there that somebody else writes now and then.
            if os.fstat(self._fd).st_dev != Path(proc).stat().st_dev:
                self.close()

    def any(self) -> bool:
        """Whether a task may have been born since the last call."""
        before, self._last = self._last, 0
        with suppress(OSError, ValueError, IndexError):
            self._last = int(os.pread(self._fd, LIMIT, 0).split()[-1])
        return self._last == 0 or self._last != before

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

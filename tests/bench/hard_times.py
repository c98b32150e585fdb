"""Tests perftop when the machine fails, and prints a table of expected and actual results. The
failures: a full disk, a removed directory, a limit of file sizes, a probe or an app that is stopped
for ten seconds, a clock that is set back and forward by an hour. Each occurs while perftop records,
prints to a file, replays, exports, or shows the screen.

In every case there must be at most one line about the failure, a documented status, and no wrong or
torn output. The full disk is a tmpfs of 1 MB in a private namespace; these cases are skipped
without root. The clock is set for perftop only.

Run by hand:
  python tests/bench/hard_times.py [WORD …]   only cases that have these words; quick: "clock"
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / part) for part in ("support", "bench")]

import failing_writes  # noqa: E402
import no_room  # noqa: E402
import refused  # noqa: E402
import upset_times  # noqa: E402
from hard_tools import Result, write_sources  # noqa: E402

PRIVATE_MOUNTS = "PERFTOP_BENCH_APART"
AT_ONCE = 4


def enter_private_mounts() -> None:
    """Restarts the program in a private mount namespace, whose mounts end with it."""
    if os.geteuid() == 0 and PRIVATE_MOUNTS not in os.environ:
        os.environ[PRIVATE_MOUNTS] = "1"
        command = ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv]
        os.execvp(command[0], command)  # noqa: S606


def result_of(case: Callable[[Path], Result], directory: Path) -> Result:
    try:
        return case(directory)
    except Exception as error:  # noqa: BLE001 - reported as the result
        return Result(fault=f"{type(error).__name__}: {error}")


def main(words: list[str]) -> int:
    root = Path(tempfile.mkdtemp(prefix="hard-"))
    write_sources(root)
    chosen = [
        case
        for case in (
            *no_room.CASES,
            *upset_times.CASES,
            *refused.CASES,
            *failing_writes.CASES,
        )
        if all(word in f"{case.trouble} {case.verb}" for word in words)
    ]
    print(f"{'':2}{'trouble':32}{'verb':12}{'must happen':58}what happened")
    bad = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = pool.map(lambda case: result_of(case.act, root / case.name), chosen)
        for case, result in zip(chosen, results, strict=True):
            mark = "-" if result.skipped else "✗" if result.fault else "✓"
            bad += bool(result.fault)
            print(f"{mark} {case.trouble:32}{case.verb:12}{case.must:58}{result}", flush=True)
    print(f"{len(chosen)} cases, {bad} went wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    enter_private_mounts()
    sys.exit(main(sys.argv[1:]))

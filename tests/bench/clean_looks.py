"""Runs `why` on a machine on which no task loses time: idle, calm (a task that works for a fifth of
the time) and busy (one task on each CPU). Prints a line for each report, and exits with 1 if any
names a cause.

Run by hand, without other work on the machine: python tests/bench/clean_looks.py (25 min). With
simulated machines instead: PYTHONPATH=tests/support python tests/bench/clean_looks.py --sim
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

SPANS = (10, 20), (60, 5)
"""Length in s and number of the measurements with each kind of load."""
MIN_SHARE = 0.01
CALM = "import time\nwhile True:\n end = time.time() + 0.02\n while time.time() < end: pass\n"
LOADS: dict[str, list[str]] = {
    "idle": [],
    "calm": [CALM + " time.sleep(0.08)"],
    "busy": [f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
             for cpu in sorted(os.sched_getaffinity(0))],
}  # fmt: skip
SIMULATED = {"idle": "idle", "calm": "jitter", "busy": "steady"}


@contextmanager
def running(programs: list[str]) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measured_report(seconds: int) -> dict[str, Any]:
    argv = [sys.executable, "-m", "perftop", "why", "--json", "--duration", f"{seconds}s"]
    answer: dict[str, Any] = json.loads(subprocess.check_output(argv))
    return answer


def simulated_report(scenario: str, seconds: int, seed: int) -> dict[str, Any]:
    from sim_truth import play_episodes

    from perftop.output.why_report import report
    from perftop.output.why_text import why_json

    spec = f"{scenario},cpus=8,packages=1,seed={seed}"
    session, _ = play_episodes(spec, 100_000_000, float(seconds))
    return why_json(session, report(session, session.run.start_ns), None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sim", action="store_true", help="use simulated machines")
    most = max(looks for _, looks in SPANS)
    parser.add_argument("--looks", type=int, default=most, help="at most so many of each kind")
    options = parser.parse_args()
    is_simulated, count = options.sim, 0
    for (seconds, looks), (load, programs) in product(SPANS, LOADS.items()):
        for number in range(min(looks, options.looks)):
            if is_simulated:
                answer = simulated_report(SIMULATED[load], seconds, number + 1)
            else:
                with running(programs):
                    answer = measured_report(seconds)
            named = [c["text"] for c in answer["causes"] if c["lost_ratio"] >= MIN_SHARE]
            count += bool(named)
            print(f"{load}, {seconds} s, look {number + 1}: {'; '.join(named) or 'no name'}"
                  f" ({answer['answer']})", flush=True)  # fmt: skip
    return min(count, 1)


if __name__ == "__main__":
    raise SystemExit(main())

"""The worst errors of `stat --source msr` against a fake kernel that knows what it did: six models,
three scenes, some runs of each. A line a model and scene: the worst error of utilisation and of a
state over all intervals and CPUs, and how many of those above a hundredth were not marked.

Needs /dev/fuse. Run by hand: python tests/bench/fake_kernel_errors.py [RUNS] [MODEL …]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent.parent / part) for part in ("", "support")]

from command import lines, run  # noqa: E402
from fakekernel.client import FakeKernel  # noqa: E402

MODELS = ("haswell-ep", "skylake-sp", "xeon-w", "ice-lake-sp", "sapphire-rapids", "zen3")
STATES = ("neither", "lp0", "lp1", "both")
FAR = 0.01
CLOCK_HZ = 3_000_000_000
BUSY, REST = [30_000, "U", 1500], [20_000, "I", 0]
SCENES: dict[str, list[list[list[object]]]] = {
    "overlap": [[BUSY, REST] * 2, [[21_000, "U", 900], [49_000, "I", 0], [30_000, "U", 900]]],
    "alone": [[[90_000, "U", 2000], [10_000, "I", 0]], [[2_000, "K", 700], [98_000, "I", 0]]],
    "short": [
        [[700, "U", 1200], [300, "I", 0]] * 100,
        [[400, "K", 800], [850, "I", 0]] * 80,
    ],
}
"""By logical processor, over a tenth of a second: µs, what it does, and instructions in a thousand
cycles."""


def measured(model: str, plan: list[list[list[object]]], root: Path) -> list[tuple[float, bool]]:
    """Errors of one run: how far a number was off, and whether it was marked."""
    found: list[tuple[float, bool]] = []
    clock = [{"us": 100_000, "hz": CLOCK_HZ}]
    spec: dict[str, Any] = {"cores": 2, "plans": [{"lps": plan, "clock": clock}] * 2}
    with FakeKernel(root, model=model, **spec) as kernel:
        offset = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
        done = run("stat", "--json", "--source", "msr", "--sysroot", str(root), "-i", "1s",
                   "-n", "3")  # fmt: skip
        if done.returncode:
            sys.exit(done.stderr)
        for line in lines(done.stdout, "interval"):
            end_s = line["time"] - offset
            truth = kernel.truth(end_s - line["elapsed_s"], end_s)
            lps = {lp["cpu"]: lp for core in truth["cores"] for lp in core["lps"]}
            suspect = {row["cpu"] for row in line["cpus"] if row["suspect"]}
            for row in line["cpus"]:
                if row["util"] is not None:
                    off = abs(row["util"] - lps[row["cpu"]]["util"])
                    found.append((off, row["cpu"] in suspect))
            for row, core in zip(line["cores"], truth["cores"], strict=True):
                for state in STATES:
                    if row["smt"][state] is not None:
                        off = abs(row["smt"][state] - core["smt"][state])
                        found.append((off, not suspect.isdisjoint(row["cpus"])))
    return found


if __name__ == "__main__":
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_RUNTIME_DIR"] = directory
        for model in sys.argv[2:] or MODELS:
            for scene, plan in SCENES.items():
                found: list[tuple[float, bool]] = []
                for number in range(runs):
                    root = Path(directory) / f"{model}-{scene}-{number}"
                    found += measured(model, plan, root)
                worst = max(off for off, _ in found)
                unmarked = sum(off > FAR and not marked for off, marked in found)
                print(f"{model:16} {scene:8} {runs:3} runs  {len(found):5} numbers  worst"
                      f" {worst:.5f}  above {FAR}, unmarked: {unmarked}", flush=True)  # fmt: skip

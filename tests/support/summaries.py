"""Summaries of runs in the form of `stat --json`."""

from __future__ import annotations

from typing import Any


def line(wall_s: float, status: int = 0, **more: Any) -> dict[str, Any]:
    """A summary of `stat --json`; `more` are the values that differ from the defaults."""
    run = {"wall_s": wall_s, "status": status, "user_s": 30.0, "sys_s": 1.0}
    job = {"waited_s": 0.1, "disk_s": 0.0} | more.pop("job", {})
    results: dict[str, Any] = {
        "type": "summary", "elapsed_s": wall_s + 0.1, "run": run | more.pop("run", {}), "job": job,
        "machine": dict.fromkeys(("util", "busy_hz", "lost_ratio", "ipc", "kernel_cycles",
                                  "involuntary", "steal")),
        "totals": {},
        "energy_j": None, "cpus": [], "cores": [], "episodes": {}, "causes": [], "state": {},
    }  # fmt: skip
    return results | more

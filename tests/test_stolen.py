"""A hypervisor that steals time, simulated by a changing /proc/stat."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import command
import pytest
import trees
from attempts import up_to_three_attempts
from nightly import cases_by_day
from waiting import MAX_WAIT_S, wait_for

TICK_S = 0.01
STEAL_FROM_S, STEAL_TO_S, ALL_S = 1.0, 3.0, 4.5


class Guest:
    """Two CPUs that are always busy; for some time, two in five ticks of the second CPU are
    stolen."""

    def __init__(self, root: Path) -> None:
        self.root = root
        trees.write_machine(root, 2)
        trees.put(root, "proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n")
        self.write_stat(0.0)

    def write_stat(self, now_s: float) -> None:
        """Writes /proc/stat in place, because the probe keeps it open."""
        ticks = int(now_s / TICK_S)
        stolen_s = min(max(now_s - STEAL_FROM_S, 0.0), STEAL_TO_S - STEAL_FROM_S)
        steal = int(0.4 * stolen_s / TICK_S)
        rows = [(ticks, 0), (ticks - steal, steal)]
        cpus = [
            f"cpu{i} {1000 + u:06} 0 0 000500 0 0 0 {s:06} 0 0" for i, (u, s) in enumerate(rows)
        ]
        text = "\n".join(["cpu  0 0 0 0 0 0 0 0 0 0", *cpus, "ctxt 0", ""])
        path = self.root / "proc/stat"
        if not path.exists():
            trees.put(self.root, "proc/stat", text)
        with path.open("r+b") as file:
            file.write(text.encode())


@pytest.mark.parametrize("sample", cases_by_day(["100ms", "500ms"], ["100ms"]))
@up_to_three_attempts
def test_stolen_time_is_an_episode(tmp_path: Path, sample: str) -> None:
    guest = Guest(tmp_path)
    arguments = ["stat", "--json", "--sysroot", str(tmp_path), "--sample", sample, "-i", "500ms",
                 "--duration", f"{ALL_S}"]  # fmt: skip
    out = tmp_path / "out"
    with (
        out.open("w") as file,
        subprocess.Popen(
            command.argv(*arguments), stdout=file, stderr=subprocess.PIPE, text=True
        ) as stat,
    ):
        wait_for(lambda: out.stat().st_size or stat.poll() is not None, "it has begun")
        begun = last = time.monotonic()
        held_s = 0.0  # longest delay of a write by other programs

        def ended() -> bool:
            nonlocal last, held_s
            now = time.monotonic()
            held_s, last = max(held_s, now - last), now
            guest.write_stat(now - begun)
            return stat.poll() is not None

        wait_for(ended, "the command ends")
        _, problem = stat.communicate(timeout=MAX_WAIT_S)
    assert stat.returncode == 0, problem
    found = [e for e in command.lines(out.read_text(), "episode") if e["kind"] == "steal"]
    assert len(found) == 1 or held_s > 0.05
    for episode in found:
        assert episode["cpus"] == [1]
        assert episode["cause"] == "hypervisor"
    stolen_s = sum(e["depth"] * (e["end"] - e["start"]) for e in found)
    assert stolen_s == pytest.approx(0.4 * (STEAL_TO_S - STEAL_FROM_S), abs=0.2)
    length_s = found[-1]["end"] - found[0]["start"]
    assert length_s == pytest.approx(STEAL_TO_S - STEAL_FROM_S, abs=1.1 + held_s)
    (summary,) = command.lines(out.read_text(), "summary")
    assert summary["episodes"]["steal"] == {"hypervisor": len(found)}
    assert summary["cpus"][1]["steal"]["max"] > 0.3
    assert summary["cpus"][0]["steal"]["max"] == 0

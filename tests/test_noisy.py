"""A noisy neighbour on this machine, which the command detects and names. By day
tests/incidents/test_staged.py finds one beside other tests, and test_watch_stream.py a watched
task."""

from __future__ import annotations

import os
import time
from pathlib import Path

import command
import pytest
from attempts import up_to_three_attempts
from command import burning_cpu
from priority import raised_priority

pytestmark = [pytest.mark.machine, pytest.mark.nightly]

MAX_SHARE_OF_OTHERS = 0.25
"""If other tasks use more than this share of the CPU, perftop may correctly name one of them
first."""


def run_and_waited_ns(pid: int) -> tuple[int, int]:
    """Returns the running and waiting time of the process so far, as counted by the kernel."""
    ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(ran), int(waited)


class Contention:
    """Two busy tasks on one CPU, and perftop's episodes of the watched one."""

    def __init__(self, cpu: int, by: str) -> None:
        with (
            raised_priority(),
            burning_cpu(cpu, "pt-victim") as self.victim,
            burning_cpu(cpu, "pt-noisy") as self.noisy,
        ):
            watch = str(self.victim) if by == "pid" else "pt-victim"
            start_ns, before = time.monotonic_ns(), self._ran_and_waited()
            arguments = ["--source", "os", "--watch", watch, "-n", "3"]
            self.episodes = command.lines(
                command.run("stat", "--json", *arguments).stdout, "episode"
            )
            span_ns = time.monotonic_ns() - start_ns
            ran, self.waited, noisy_ran, _ = (
                b - a for a, b in zip(before, self._ran_and_waited(), strict=True)
            )
        self.ran = ran
        self.others = 1 - (ran + noisy_ran) / span_ns

    def longest_episode(self) -> command.Line:
        own = [e for e in self.episodes if e["kind"] == "neighbour" and e["cause"] == "scheduler"]
        assert own, self.episodes
        return max(own, key=lambda e: (e["end"] or 1e12) - e["start"])

    def _ran_and_waited(self) -> list[int]:
        return [*run_and_waited_ns(self.victim), *run_and_waited_ns(self.noisy)]


@pytest.mark.parametrize("by", ["pid", "name"])
@up_to_three_attempts
def test_the_task_that_takes_the_cpu_from_a_job_is_named(by: str) -> None:
    cpu = max(os.sched_getaffinity(0))
    for _ in range(3):
        contention = Contention(cpu, by)
        longest = contention.longest_episode()
        who = longest["evidence"]["who"]
        if "pt-noisy" in who or contention.others < MAX_SHARE_OF_OTHERS:
            break
    else:
        pytest.skip(f"others took {contention.others:.0%} of CPU {cpu}, and were named")
    ran, waited = contention.ran, contention.waited
    assert longest["cpus"] == [cpu]
    assert longest["depth"] == pytest.approx(waited / (ran + waited), abs=0.15)
    assert "pt-noisy" in who
    assert str(contention.noisy) in who
    assert str(contention.victim) not in who

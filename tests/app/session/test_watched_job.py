"""What a watched job did in each interval, and who ran: against the truth of a simulation."""

from __future__ import annotations

import re

import pytest

from perfprobe.sources.sim.source import open_sim
from perftop.output import stat_json
from perftop.output.stat_table import StatTable
from perftop.session.session import Session

S = 1_000_000_000


@pytest.fixture(scope="module")
def lines() -> list[stat_json.Line]:
    """Six seconds of a job that has CPU 0 to itself."""
    source = open_sim("sim:neighbour,cpus=4,speed=max", S // 5, watch="lmp")
    session = Session(source.hello)
    found: list[stat_json.Line] = []
    while len(found) < 6:
        for message in source.poll():
            session.apply(message)
            if session.span_ns >= S:
                interval = session.take()
                line = stat_json.interval_line(session, interval)
                line["text"] = StatTable(session, ["util", "task"]).lines(interval)
                found.append(line)
    return found


def test_its_times_are_those_of_the_cpu_that_it_has_for_itself(lines: list[stat_json.Line]) -> None:
    for line in lines[1:]:
        watched, cpu = line["watched"], line["cpus"][0]
        assert watched["job"] == "lmp"
        assert watched["threads"] == 1
        assert watched["cpus"] == [0]
        assert watched["run_s"] == pytest.approx(cpu["util"] * line["elapsed_s"], abs=0.05)
        assert watched["wait_s"] < 0.05
        assert cpu["task"] == {"pid": 4000, "comm": "lmp", "share": pytest.approx(1.0, abs=0.05)}
        assert "task" not in line["cpus"][1]


def test_the_table_tells_it_above_the_cpus_and_who_ran_beside_them(
    lines: list[stat_json.Line],
) -> None:
    text = lines[-1]["text"]
    (job,) = (line for line in text if line.startswith("job lmp: ran "))
    assert re.search(r"preempted( (once|\d+ times))?$", job)
    (row,) = (line for line in text if line.split()[:1] == ["0"])
    assert row.endswith(" lmp:4000")

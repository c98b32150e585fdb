"""Time of cores: whatever is read when, and however cores are regrouped, none is lost or made."""

from __future__ import annotations

import dataclasses

import made
import numpy as np
import pytest
from scraped import fed, named, shown

from perfprobe import wire
from perftop.model.cores import Cores
from perftop.output.exporter.page import Page
from perftop.output.exporter.sums import CoreTime
from perftop.session.session import Session

STEP = int(made.TSC_HZ / 10)
UNREAD = 0


def stream(flags: dict[int, int], samples: int = 20) -> list[wire.Message]:
    """Two cores of one thread that run for half of the time. `flags`: of the first core, by
    sample."""
    hello = made.hello([made.REF], cores=2, threads=1)
    found: list[wire.Message] = [hello]
    for seq in range(samples + 1):
        values = {"ref": [STEP // 2 * seq] * 2}
        found.append(made.frame(hello, seq, values, flags=[flags.get(seq, 1), wire.ROW_SAMPLED]))
    return found


def printed(page: Page) -> dict[str, float]:
    return {labels[-1]: value for labels, value in named(shown(page), "perftop_smt_seconds_total")
            if labels[0] == "0" and value}  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "unknown_s"),
    [
        ({}, 0.0),
        (dict.fromkeys(range(5, 12), UNREAD), 0.0),  # the next read covers it all
        ({5: wire.ROW_SAMPLED | wire.ROW_WIDE}, 0.0),
        ({5: wire.ROW_SAMPLED | wire.ROW_REBASED}, 0.1),
        (dict.fromkeys(range(5, 9), UNREAD) | {9: wire.ROW_SAMPLED | wire.ROW_REBASED}, 0.5),
    ],
)
def test_time_without_a_read_is_unknown(flags: dict[int, int], unknown_s: float) -> None:
    _, page = fed(stream(flags), "core")
    found = printed(page)
    assert found.get("unknown", 0.0) == pytest.approx(unknown_s, abs=1e-9)
    assert found["neither"] == found["lp0"] == pytest.approx((2.0 - unknown_s) / 2)
    assert sum(found.values()) == pytest.approx(2.0)


def test_time_is_not_that_of_a_core_that_is_off() -> None:
    given = stream(dict.fromkeys(range(11, 16), wire.ROW_OFFLINE))
    at = [1 + 11, 1 + 16]
    for place, online in zip(at[::-1], (True, False), strict=True):
        frame = given[place]
        assert isinstance(frame, wire.Frame)
        data = {"cpu": 0, "online": online}
        given.insert(place, wire.Note("hotplug", frame.time_ns - 1, data=data))
    found = printed(fed(given, "core")[1])
    assert sum(found.values()) == pytest.approx(1.0 + 0.5, abs=0.11)


def test_a_core_keeps_its_time_when_cores_are_regrouped() -> None:
    """One gets another place, one is joined to another, one is gone."""
    hello = made.hello([made.REF], cores=4, threads=1)
    time = CoreTime(Session(hello))
    time.seconds[:, 0] = [1, 2, 4, 8]
    time._regroup(Cores(hello, [[2, 1], [0]]))
    assert time.seconds[:, 0].tolist() == [6, 1]
    assert time.gone[:, 0].tolist() == [8, 0]


def test_cores_with_the_same_number_are_distinguished() -> None:
    hello = made.hello([made.REF], cores=4, threads=1)
    numbers = [0, 0, 1, None]
    topology = [
        dataclasses.replace(row, core=core)
        for row, core in zip(hello.topology, numbers, strict=True)
    ]
    hello = dataclasses.replace(hello, topology=topology)
    frames = [made.frame(hello, seq, {"ref": [STEP // 2 * seq] * 4}) for seq in range(3)]
    found = shown(fed([hello, *frames], "core")[1])
    names = {labels[0] for labels, _ in named(found, "perftop_smt_seconds_total")}
    assert names == {"cpu0", "cpu1", "1", "cpu3"}


def test_cpus_without_a_package_have_no_package_label() -> None:
    hello = made.hello([made.REF], cores=2, threads=1)
    hello = dataclasses.replace(hello, packages=[[0]])
    frames = [made.frame(hello, seq, {"ref": [STEP // 2 * seq] * 2}) for seq in range(3)]
    _, page = fed([hello, *frames])
    found = shown(page)
    busy = dict(named(found, "perftop_cpu_seconds_total"))
    assert busy == pytest.approx({("busy", "0"): 0.1, ("busy",): 0.1})
    assert np.isclose(found["perftop_smt_seconds_total", "lp0"], 0.1)

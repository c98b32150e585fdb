"""Stops by CPU quotas, from simulated records; no other task is blamed for them."""

from __future__ import annotations

from typing import Any

import made
import pytest
from record_streams import PER_S, RecordStream

from perftop.output.sentences import sentence, text

GROUP = "/kubepods/burstable/pod0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9/web"
SAMPLE_NS = made.SAMPLE_NS
OTHER = [4001, "stream", 0.5]


class Limited(RecordStream):
    """A job with one thread on CPU 0, whose quota is half a CPU. Tasks and quotas have a record a
    second."""

    run_ns = wait_ns = throttled_us = periods = 0

    def limit(self, *, stopped: float, waited: float = 0.0, quota: bool = True) -> None:
        """`stopped`: share of the time for which the quota stops the job; `waited`: share for which
        it waits for another task."""
        wait = stopped + waited

        def record(throttled: int) -> dict[str, Any]:
            counts = [0.5, self.periods, throttled, self.throttled_us]
            return {"quotas": {"groups": {GROUP: counts}, "pids": {"4000": [GROUP]}}}

        def records() -> dict[str, Any]:
            self.run_ns += round((1 - wait) * SAMPLE_NS)
            self.wait_ns += round(wait * SAMPLE_NS)
            self.throttled_us += round(stopped * SAMPLE_NS / 1000)
            self.periods += 1
            thread = [4000, "web", 0, self.run_ns, self.wait_ns, 0, 0]
            watched = {"watched": {"threads": {"4000": thread}, "more": 0}}
            if self.seq % PER_S == 0:
                task = [4000, "web", 1 - wait]
                watched |= {"tasks": {"0": task}, "others": {"0": [task, OTHER]}}
            is_due = quota and (self.seq == 1 or self.seq % PER_S == 0)
            return watched | (record(0 if self.seq == 1 else self.periods // 2) if is_due else {})

        self.second({}, records)


def test_a_stop_is_an_episode_with_owner_and_share() -> None:
    job = Limited()
    for stopped in (0, 0.5, 0.5, 0, 0):
        job.limit(stopped=stopped)
    (result,) = job.episodes("quota")
    assert (result.cause, result.cpus, result.confidence) == ("quota", [0], "measured")
    assert result.depth == pytest.approx(0.5, abs=0.01)
    second_ns = PER_S * SAMPLE_NS
    assert (result.start_ns, result.end_ns) == (second_ns, 3 * second_ns)
    assert result.lost_s(job.session.now_ns) == pytest.approx(1.0, abs=0.02)
    assert result.evidence == {
        "owner": "pod 0a1b2c3d", "group": GROUP, "CPUs_allowed": 0.5, "throttled_periods": 10,
        "periods": 20, "throttled_s": 1.0,
    }  # fmt: skip
    words = text(sentence(job.session.topology, [result], over=True))
    assert words == "pod 0a1b2c3d was stopped by its CPU quota for 50 % of the time"


def test_an_episode_ends_when_the_quota_is_removed() -> None:
    job = Limited()
    for quota in (True, True, False):
        job.limit(stopped=0.5, quota=quota)
    (result,) = job.episodes("quota")
    assert result.end_ns == 2 * PER_S * SAMPLE_NS


def test_no_task_is_blamed_for_waits_caused_by_a_quota() -> None:
    job = Limited(watch="web")
    for _ in range(4):
        job.limit(stopped=0.5)
    assert len(job.episodes("quota")) == 1
    assert job.episodes("neighbour") == []


def test_the_reported_wait_excludes_the_time_of_the_quota() -> None:
    job = Limited(watch="web")
    for _ in range(5):
        job.limit(stopped=0.3, waited=0.3)
    (result,) = job.episodes("neighbour")
    assert result.cause == "scheduler"
    assert result.depth == pytest.approx(0.3 / 0.7, abs=0.02)
    assert [one.comm for one in result.evidence["who"]] == ["stream"]
    assert len(job.episodes("quota")) == 1


def test_waits_are_evaluated_each_sample_after_a_quota_is_removed() -> None:
    job = Limited(watch="web")
    job.limit(stopped=0, quota=True)
    for _ in range(2):
        job.limit(stopped=0, waited=0.4, quota=False)
    (result,) = job.episodes("neighbour")
    assert result.depth == pytest.approx(0.4, abs=0.02)

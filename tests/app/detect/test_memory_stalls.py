"""Tasks that are stalled for memory, from simulated records."""

from __future__ import annotations

import pytest
from record_streams import RecordStream

from perftop.model.kinds import Episode
from perftop.output.sentences import sentence, text
from perftop.session.session import Session

POD = "/kubepods/burstable/pod0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9/web"
AT_LIMIT = {
    "stalled_us": 400_000, "counts": {"workingset_refault_file": 9000},
    "groups": {POD: [63_000_000, 900, 9000, 300_000]}, "pids": {"4000": POD},
}  # fmt: skip


def episodes(*memory: object) -> tuple[Session, list[Episode]]:
    """The episodes of a stream with such a record each second, while process 4000 runs on CPU 1."""
    stream = RecordStream()
    for record in memory:
        records = {"tasks": {"1": [4000, "web", 0.5]}}
        stream.second(records | ({} if record is None else {"memory": record}))
    return stream.session, stream.episodes("memory-stall")


def test_a_group_at_its_limit_reports_the_stall_time_of_its_tasks() -> None:
    session, (result,) = episodes(None, AT_LIMIT, AT_LIMIT, None, None)
    assert (result.cause, result.cpus, result.confidence) == ("memory-limit", [1], "measured")
    assert result.depth == pytest.approx(0.3)
    assert result.lost_s(session.now_ns) == pytest.approx(0.6)
    assert result.evidence == {
        "owner": "pod 0a1b2c3d", "group": POD, "stalled_s": 0.6, "memory_limit_mb": 63,
        "at_limit": 1800, "pages_read_back": 18_000,
    }  # fmt: skip
    words = text(sentence(session.topology, [result], over=True))
    assert words == "The memory limit of pod 0a1b2c3d stopped its tasks for 30 % of the time"


@pytest.mark.parametrize(
    ("cause", "counts"),
    [
        ("reclaim", {"allocstall_normal": 40, "pgscan_direct": 5000}),
        ("compaction", {"compact_stall": 60, "thp_fault_fallback": 7}),
        ("read-back", {"pswpin": 4000, "workingset_refault_anon": 4000}),
        ("numa-balancing", {"numa_hint_faults": 90_000, "numa_pages_migrated": 20_000}),
    ],
)
def test_counts_of_the_kernel_name_the_cause(cause: str, counts: dict[str, int]) -> None:
    stalled_us = 0 if cause == "numa-balancing" else 300_000
    _, (result,) = episodes(None, {"stalled_us": stalled_us, "counts": counts})
    assert result.cause == cause
    assert result.depth == pytest.approx(0.28 if cause == "numa-balancing" else 0.3)
    assert result.confidence == "inferred"


@pytest.mark.parametrize(
    "record",
    [
        {"stalled_us": 300_000, "counts": {}},  # the reason is unknown
        {"stalled_us": 20_000, "counts": {"allocstall_normal": 40}},
        {"stalled_us": 300_000, "counts": {"workingset_refault_file": 90_000}},  # a file is read
        {"stalled_us": -5, "counts": {"allocstall_normal": 40}},
        {"stalled_us": 300_000, "counts": {"allocstall_normal": "x"}},
        {"stalled_us": 300_000, "counts": {}, "groups": {POD: [None, 900, 1, 1]}, "pids": 7},
        7,
    ],
)
def test_stalls_for_files_or_unknown_reasons_cause_no_episode(record: object) -> None:
    assert episodes(None, record, record)[1] == []

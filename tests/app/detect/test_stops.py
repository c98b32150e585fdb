"""A watched job whose threads are stopped, from simulated records."""

from __future__ import annotations

from functools import partial

import made
import pytest
from record_streams import RecordStream

from perftop.model.kinds import Episode
from perftop.output.sentences import losers, sentence, text
from perftop.session.session import Session


def episodes(states: str, active: float = 1.0) -> tuple[Session, list[Episode]]:
    """The episodes of a job with one thread, whose state changes once a second as listed; it is
    active for this share of the time while it is running or asleep."""
    stream, run_ns = RecordStream(watch="job"), 0

    def records(state: str) -> dict[str, object]:
        nonlocal run_ns
        run_ns += round(active * made.SAMPLE_NS) if state in "RS" else 0
        threads = {"7": [7, "job", 1, run_ns, 0, 0, 0]}
        return {"watched": {"threads": threads, "more": 0, "states": {"7": state}}}

    for state in states:
        stream.second({}, partial(records, state))
    return stream.session, stream.episodes("stopped")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("T", "SIGSTOP kept job from running"),
        ("t", "A debugger kept job from running"),
        ("F", "A frozen group kept job from running"),
    ],
)
def test_a_stop_lasts_from_record_to_record(state: str, words: str) -> None:
    session, (result,) = episodes(f"RR{state}{state}R")
    assert (result.cause, result.cpus, result.confidence) == ("stopped", [1], "measured")
    assert result.end_ns is not None
    assert (result.end_ns - result.start_ns) / 1e9 == pytest.approx(2.0, abs=0.01)
    assert result.lost_s(session.now_ns) == pytest.approx(2.0, abs=0.15)
    names = losers(session, [result], {})
    assert text(sentence(session.topology, [result], names, over=True)) == words


def test_a_stopped_thread_loses_its_previous_activity() -> None:
    _, (result,) = episodes("SSTT", active=0.25)
    assert result.depth == pytest.approx(0.25, abs=0.03)
    assert episodes("SSTT", active=0.01)[1] == []
    assert episodes("SSDD")[1] == []

"""`perftop why` on simulated machines: the scripted cause stands first, and nothing on those that
are well."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from nights import by_day
from truths import PLAYED_S, SMALL, found

from perftop.draw import theme
from perftop.model.episode import Episode
from perftop.output import stat_json
from perftop.output import why_text as json_line
from perftop.output import why_text as text
from perftop.output.sentences import SIGNS
from perftop.output.why_report import MOST_TOLD, TOLD, Report, _length_s, report
from perftop.output.why_text import answer
from perftop.session.losses import OTHER, STEAL, WAIT, Cause, Sums
from perftop.session.session import Session

SAMPLE_NS = 100_000_000
SICK: list[tuple[str, str | None, float, Cause]] = [
    ("turbo-drop", None, PLAYED_S, ("turbo-drop", "power-pl1")),
    ("license", None, PLAYED_S, ("turbo-drop", "license")),
    ("throttle", None, PLAYED_S, ("throttle", "thermal")),
    ("neighbour", None, PLAYED_S, ("neighbour", "sibling")),
    ("neighbour", "lmp", PLAYED_S, ("neighbour", "sibling")),
    ("guest", None, PLAYED_S, WAIT),
    ("guest", "postgres", 60, WAIT),
    ("demo", None, PLAYED_S, ("neighbour", "sibling")),
]
WELL = ["steady", "idle", "jitter", "smt-mix", "hybrid", "hotplug", "warmup"]
WELL_BY_DAY = ("jitter", "hybrid", "hotplug", "warmup")
EVERY = [*((s, w, t) for s, w, t, _ in SICK), *((s, None, PLAYED_S) for s in WELL_BY_DAY)]


def seen(
    scenario: str, seconds: float = PLAYED_S, watch: str | None = None
) -> tuple[Session, Report]:
    session, _ = found(f"{scenario},{SMALL}", SAMPLE_NS, seconds, watch)
    return session, report(session, session.run.start_ns)


def told(session: Session, made: Report) -> list[str]:
    return text.lines(session, made, colour=False, unicode=True)


@pytest.mark.parametrize(("scenario", "watch", "seconds", "cause"), SICK)
def test_the_scripted_cause_stands_first(
    scenario: str, watch: str | None, seconds: float, cause: Cause
) -> None:
    session, made = seen(scenario, seconds, watch)
    assert made.findings[0].cause == cause
    assert made.findings[0].share >= TOLD
    first = told(session, made)[0]
    name = watch or ("This guest" if session.hello.virtualisation else "This machine")
    assert first.startswith(name)
    assert made.findings[0].by in first


@pytest.mark.parametrize("scenario", by_day(WELL, WELL_BY_DAY))
def test_nothing_is_named_on_a_machine_that_is_well(scenario: str) -> None:
    session, made = seen(scenario)
    assert made.told == []
    assert answer(session, made).startswith(("Nothing holds this machine back", "This machine had"))
    assert not any("ruled out" in line for line in told(session, made))


def test_what_cannot_be_read_is_not_said_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    session, made = seen("idle", 3)
    whole = session.whole()
    monkeypatch.setattr(whole.values, "over", lambda *_: float("nan"))
    monkeypatch.setattr(session, "whole", lambda: whole)
    none = np.zeros(8)
    first, *rest = told(session, replace(made, sums=Sums(none, none, {})))
    assert first.startswith("It is not known whether this machine had work")
    assert not any(line.startswith("It rests") for line in rest)


def test_a_job_that_nobody_saw_is_not_said_to_be_well() -> None:
    """Its name may be mistyped; a PID that was there when we began has ended."""
    session, made = seen("steady", 3, "lmpp")
    first, *rest = told(session, made)
    assert first.startswith("No process named lmpp was seen")
    assert not any(line.startswith("It works") for line in rest), "the machine does, not the job"
    session.neighbours.watching.name = "4711"
    assert answer(session, replace(made, job="process 4711")).startswith("process 4711 ended")


def test_what_acted_before_the_look_is_no_part_of_its_length() -> None:
    second = 1_000_000_000
    episode = Episode("steal", [0], 0, 11 * second)
    assert _length_s([episode], now_ns=20 * second, span_ns=10 * second) == 1.0


def test_waits_that_were_not_told_are_not_none() -> None:
    """A short look knows nothing of them yet, so it does not say that all is well."""
    session, made = seen("steady")
    session.run_times.waits_told = False
    assert answer(session, made).startswith("Nothing that was seen holds this machine back.")
    session.run_times.waits_told = True
    assert answer(session, made).startswith("Nothing holds this machine back")


def test_halts_of_less_than_a_percent_are_the_first_that_have_a_name() -> None:
    _, made = seen("halts")
    named = [one.cause for one in made.findings if one.cause[1] != OTHER]
    assert named[:2] == [("involuntary-halt", "clock-change"), ("involuntary-halt", "smm")]


def test_each_cause_has_its_evidence_and_what_may_help() -> None:
    _, made = seen("turbo-drop")
    limit = made.findings[0]
    assert limit.confidence == "measured"
    assert any("150 of 150 W" in piece for piece in limit.evidence)
    assert limit.hint
    assert limit.for_s == pytest.approx(2 * 4.1, abs=0.2)
    assert not limit.running


def test_what_took_time_is_told_with_the_time_it_took() -> None:
    _, made = seen("neighbour", watch="lmp")
    steal = next(one for one in made.findings if one.cause == STEAL)
    assert steal.for_s == pytest.approx(8, abs=0.3)
    assert "1.60 s on CPU 0" in steal.evidence[0]


def test_a_guest_tells_what_cannot_be_seen_and_what_that_hides() -> None:
    session, made = seen("guest")
    lines = told(session, made)
    assert "clock" in next(line for line in lines if line.startswith("not seen"))
    assert any("A low clock or a busy sibling outside" in line for line in lines)


@pytest.mark.parametrize(("scenario", "watch", "seconds"), EVERY)
def test_all_of_it_fits_into_80_columns(scenario: str, watch: str | None, seconds: float) -> None:
    session, made = seen(scenario, seconds, watch)
    lines = told(session, made)
    assert max(map(len, lines)) <= 80
    assert lines[1] == ""
    labels = [line.split("  ")[0] for line in lines]
    assert {"not seen", "seen"} <= {*labels}
    assert ("ruled out" in labels) == bool(made.told)
    plain = text.lines(session, made, colour=False, unicode=False)
    assert all(line.isascii() for line in plain)


def test_only_what_still_runs_is_red() -> None:
    session, made = seen("turbo-drop", 10)
    assert made.findings[0].running
    lines = text.lines(session, made, colour=True, unicode=True)
    assert lines[0].startswith("\x1b[1m")
    assert any(line.startswith("\x1b[31m▼") for line in lines)
    assert any("\x1b[34m" in line for line in lines if "try:" in line)
    over, made = seen("turbo-drop")
    assert not any("\x1b[31m" in line for line in text.lines(over, made, colour=True, unicode=True))


def test_what_a_recording_tells_is_over() -> None:
    session, _ = seen("turbo-drop", 10)
    assert not report(session, session.run.start_ns, past=True).findings[0].running


def test_more_than_four_causes_are_counted() -> None:
    session, made = seen("neighbour")
    many = Report(**{key: getattr(made, key) for key in Report.__match_args__} | {
        "findings": made.findings[:1] * (MOST_TOLD + 2)})  # fmt: skip
    assert any(line.strip() == "+ 2 more" for line in told(session, many))


def test_the_signs_are_those_of_the_screen() -> None:
    assert {kind: theme.EPISODES[kind] for kind in SIGNS} == SIGNS


@pytest.mark.parametrize(("scenario", "watch", "seconds"), EVERY)
def test_json_has_its_keys_and_adds_up(scenario: str, watch: str | None, seconds: float) -> None:
    session, made = seen(scenario, seconds, watch)
    line = json.loads(stat_json.text(json_line.line(session, made, None)))
    assert [*line] == ["type", "answer", "job", "lost_ratio", "wanted_s", "causes", "looked_for",
                       "not_seen", "seen", "run"]  # fmt: skip
    shares = [cause["lost_ratio"] for cause in line["causes"]]
    assert shares == sorted(shares, reverse=True)
    if shares:
        assert sum(shares) == pytest.approx(line["lost_ratio"], abs=1e-4)
        assert line["lost_ratio"] <= 1
    assert line["job"] == watch

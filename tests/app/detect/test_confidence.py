"""The rule that decides whether a cause is `measured`, for all causes of all detectors."""

from __future__ import annotations

import ast
from math import nan
from pathlib import Path

import pytest
from sim_truth import PLAYED_S, SECOND, SMALL, found_episodes

import perftop
from perftop.detect import low_clock_causes, standstill
from perftop.model.confidence import COUNTED_QUANTITIES, GroupTraffic, confidence, evidence_json
from perftop.model.kinds import CAUSES, KINDS, NEIGHBOURS

ROOT = Path(perftop.__file__).parent
FOLDERS = "detect", "model", "session", "output"
BY_RECORDS = {"quota", "stopped", "interrupt", "memory-stall"}
"""Kinds whose causes are found neither in a table of the detector nor in its code."""
BY_KEY = {"suspect", "mark"}
"""Kinds whose cause is the key of a counter, and the kind of episodes that a user marks."""
SCENARIOS = ("turbo-drop", "license", "throttle", "halts", "neighbour", "memory", "guest", "demo",
             "warmup", "hotplug")  # fmt: skip


def causes_in_code() -> set[tuple[str, str]]:
    """The kinds and causes that a detector passes to the rule as constants."""
    pairs = set[tuple[str, str]]()
    for path in (ROOT / "detect").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    ast.Name("confidence"), [ast.Constant(kind), ast.Constant(cause)]
                ) | ast.Call(
                    ast.Attribute(_, "begin"), [ast.Constant(kind), ast.Constant(cause), *_]
                ):
                    pairs.add((str(kind), str(cause)))
                case ast.Call(ast.Name("_cause_verdict"), [ast.Constant(cause)]):
                    pairs.add(("turbo-drop", str(cause)))
    return pairs


def nameable_causes() -> set[tuple[str, str]]:
    """The kinds and causes that the tables and the code of all detectors can name."""
    clues = {clue.cause for clue in low_clock_causes.CLUES} - {low_clock_causes.UNKNOWN_POWER}
    return causes_in_code() | {
        *(("turbo-drop", cause) for cause in clues | {*low_clock_causes.POWER_LIMITS}),
        *(("throttle", cause) for cause in standstill.THROTTLE_CAUSES),
        *(("involuntary-halt", sign.cause) for sign in standstill.MARKERS.values()),
        *(("neighbour", cause) for cause in NEIGHBOURS),
    }


def test_all_causes_of_all_detectors_have_a_counted_quantity() -> None:
    names = nameable_causes()
    assert names <= {*COUNTED_QUANTITIES}
    rest = {kind for kind, _ in {*COUNTED_QUANTITIES} - names}
    assert rest == BY_RECORDS | BY_KEY
    assert {kind for kind, _ in COUNTED_QUANTITIES} - {"mark"} == {*KINDS}
    facts = {"-", "*", "hotplug", "firmware"}
    assert {cause for _, cause in COUNTED_QUANTITIES} - facts <= {*CAUSES}


@pytest.mark.parametrize(("kind", "cause"), [*COUNTED_QUANTITIES])
def test_measured_requires_that_the_cause_itself_is_counted_with_a_small_error(
    kind: str, cause: str
) -> None:
    best = "measured" if COUNTED_QUANTITIES[kind, cause].is_cause else "inferred"
    assert confidence(kind, cause) == best
    assert confidence(kind, cause, error=0.1, effect=0.2) == best
    for lacking in (
        confidence(kind, cause, counted=False),
        confidence(kind, cause, error=0.2, effect=0.2),
        confidence(kind, cause, error=nan, effect=0.2),
    ):
        assert lacking == "inferred"


def test_traffic_of_groups_is_worded_in_gigabytes() -> None:
    traffic = [GroupTraffic("batch", 35.04e9), GroupTraffic("(default)", 0.26e9)]
    assert evidence_json({"l3_groups": traffic}) == {
        "L3 groups": "batch 35.0 GB/s, (default) 0.3 GB/s"
    }


@pytest.mark.parametrize("kind", ["turbo-drop", "involuntary-halt", "neighbour", "other"])
def test_a_missing_cause_is_unknown(kind: str) -> None:
    assert confidence(kind, "unknown") == confidence(kind, "newer") == "unknown"


def test_only_the_rule_decides_what_is_measured() -> None:
    """No detector or report states a confidence itself; all call the rule."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            if path.name == "confidence.py":
                continue
            words = [node for node in ast.walk(ast.parse(path.read_text()))
                     if isinstance(node, ast.Constant) and node.value in ("measured", "inferred")
                     ]  # fmt: skip
            assert words == [], f"{path}, line {words[0].lineno}"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_simulated_episode_claims_more_than_was_counted(scenario: str) -> None:
    _, episodes = found_episodes(f"{scenario},{SMALL}", SECOND // 10, PLAYED_S)
    assert episodes
    for episode in episodes:
        pair = episode.kind, episode.cause
        best = confidence(*pair)
        assert best != "unknown" or episode.cause == "unknown", pair
        assert episode.confidence in {best, "inferred"}, pair
        if episode.cause == "sibling":
            assert episode.confidence == "inferred", "it came once"


def test_the_trust_page_lists_all_causes_with_their_counters() -> None:
    page = (ROOT / "docs/trust.md").read_text(encoding="utf-8")
    for (kind, cause), entry in COUNTED_QUANTITIES.items():
        best = "measured" if entry.is_cause else "inferred"
        rows = [line for line in page.splitlines() if line.startswith(f"| `{kind}` |")]
        name = "any" if cause == "*" else f"`{cause}`"
        quantity = entry.quantity + (
            f"; inferred if {entry.inferred_if}" if entry.inferred_if else ""
        )
        assert any(name in row and row.endswith(f"| {quantity} | {best} |") for row in rows), kind

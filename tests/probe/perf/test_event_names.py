"""Parsing of the event list of -e, and errors in it."""

from __future__ import annotations

import pytest

from perfprobe.perf.event_names import MAX_EVENTS, EventRequest, nearest_names, parse_groups


def names(text: str) -> list[list[str]]:
    return [[request.name for request in group] for group in parse_groups(text)]


def test_commas_separate_events_but_not_terms_and_groups() -> None:
    text = "context-switches,cpu/event=0xd1,umask=0x01,name=l1_hit/,{cycles,instructions}:u,r1a2"
    assert names(text) == [
        ["context-switches"],
        ["l1_hit"],
        ["cycles:u", "instructions:u"],
        ["r1a2"],
    ]
    first, (terms,), _, _ = parse_groups(text)
    assert first == [EventRequest("context-switches", "context-switches")]
    assert (terms.pmu, terms.terms, terms.key) == ("cpu", "event=0xd1,umask=0x01", "e.l1_hit")


@pytest.mark.parametrize(("text", "name", "user", "kernel"), [
    ("cycles:u", "cycles:u", True, False),
    ("cycles:k", "cycles:k", False, True),
    ("cycles:uk", "cycles:uk", False, False),
    ("cpu/event=1/u", "cpu/event=1/:u", True, False),
    ("cpu/event=1/:k", "cpu/event=1/:k", False, True),
    ("mem_load_retired.l1_hit", "mem_load_retired.l1_hit", False, False),
    ("MEM_LOAD_RETIRED:L1_HIT", "MEM_LOAD_RETIRED:L1_HIT", False, False),
])  # fmt: skip
def test_rings_are_letters_after_the_name(text: str, name: str, user: bool, kernel: bool) -> None:
    ((result,),) = parse_groups(text)
    assert (result.name, result.user_only, result.kernel_only) == (name, user, kernel)


@pytest.mark.parametrize("text", [
    "", "a,", "{a,b", "a}", "cpu/event=1", "a b", "{a}x", "cpu/name=\x1b[31m,event=1/",
    "a,a", ",".join(f"r{i}" for i in range(MAX_EVENTS + 1)), "cpu/event=1/z",
])  # fmt: skip
def test_invalid_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^-e"):
        parse_groups(text)


@pytest.mark.parametrize(("word", "name"), [
    ("contxt", "context-switches"), ("contxt-switches", "context-switches"),
    ("Page_fault", "page-faults"), ("retird", "mem_load_retired.l1_hit"),
])  # fmt: skip
def test_a_wrong_name_suggests_similar_names(word: str, name: str) -> None:
    assert name in nearest_names(
        word, ["context-switches", "page-faults", "mem_load_retired.l1_hit"]
    )
    assert nearest_names("zzz", ["context-switches"]) == []

"""The events that names select on several machines, encoded by the formats that their kernels
list."""

from __future__ import annotations

import errno
import json
import subprocess
from pathlib import Path
from typing import Any

import fakeperf
import pytest
import trees

from perfprobe.perf import event_catalogue
from perfprobe.perf.event_catalogue import Catalogue, ListedEvent, perf_events
from perfprobe.perf.event_names import EventRequest, nearest_names, parse_groups
from perfprobe.perf.perf_events import Event

# --- events by machine ----------------------------------------------------------------------------


def test_generic_events_have_the_numbers_of_perf_event_h() -> None:
    """In the order of PERF_COUNT_HW_* and PERF_COUNT_SW_*; software event 9 is a dummy."""
    hardware = [(event.name, event.config) for event in event_catalogue.HARDWARE_EVENTS]
    assert hardware == [
        ("cycles", 0), ("instructions", 1), ("cache-references", 2), ("cache-misses", 3),
        ("branches", 4), ("branch-misses", 5), ("bus-cycles", 6), ("stalled-cycles-frontend", 7),
        ("stalled-cycles-backend", 8), ("ref-cycles", 9),
    ]  # fmt: skip
    clocks = {e.name for e in event_catalogue.SOFTWARE_EVENTS if (e.unit, e.scale) == ("s", 1e-9)}
    assert clocks == {"cpu-clock", "task-clock"}, "the kernel counts ns"
    software = {event.config: event.name for event in event_catalogue.SOFTWARE_EVENTS}
    assert [software.get(number) for number in range(12)] == [
        "cpu-clock", "task-clock", "page-faults", "context-switches", "cpu-migrations",
        "minor-faults", "major-faults", "alignment-faults", "emulation-faults", None,
        "bpf-output", "cgroup-switches",
    ]  # fmt: skip


OFFCORE = "cpu/event=0xb7,umask=0x1,offcore_rsp=0x3fbfc00001/"


def words(root: Path, text: str) -> dict[str | None, tuple[int, int, int]]:
    """Returns the type, config and config1 of the event, by PMU."""
    result = Catalogue(root).find(parse_groups(text)[0][0])
    assert {event.config2 for event in result.events.values()} == {0}
    return {pmu: (e.type, e.config, e.config1) for pmu, e in result.events.items()}


@pytest.mark.parametrize(("machine", "text", "expected_words"), [
    ("skylake-sp", "cpu/event=0x3c,umask=0x0,any=1/", {"cpu": (4, 0x20003C, 0)}),
    ("skylake-sp", OFFCORE, {"cpu": (4, 0x1B7, 0x3FBFC00001)}),
    ("skylake-sp", "cpu/event=0xc6,umask=0x1,frontend=0x400206/", {"cpu": (4, 0x1C6, 0x400206)}),
    ("skylake-sp", "cpu/event=0xa3,umask=0x14,cmask=20/", {"cpu": (4, 0x140014A3, 0)}),
    ("skylake-sp", "mem-loads", {"cpu": (4, 0x1CD, 3)}),
    ("skylake-sp", "cpu/mem-loads,ldlat=30/", {"cpu": (4, 0x1CD, 30)}),
    ("ice-lake-sp", "topdown-be-bound", {"cpu": (4, 0x8300, 0)}),
    ("sapphire-rapids", "topdown-mem-bound", {"cpu": (4, 0x8700, 0)}),
    ("sapphire-rapids", "branch-misses", {"cpu": (0, 5, 0)}),
    ("alder-lake", "branch-misses", {"cpu_core": (0, 4 << 32 | 5, 0),
                                     "cpu_atom": (0, 10 << 32 | 5, 0)}),
    ("alder-lake", "topdown-retiring", {"cpu_core": (4, 0x8000, 0), "cpu_atom": (10, 0xC2, 0)}),
    ("alder-lake", "slots", {"cpu_core": (4, 0x400, 0)}),
    ("alder-lake", "cpu_atom/event=0xd0,umask=0x5,ldlat=0x80/", {"cpu_atom": (10, 0x5D0, 0x80)}),
    ("alder-lake", "r4c4", {"cpu_core": (4, 0x4C4, 0), "cpu_atom": (10, 0x4C4, 0)}),
    ("alder-lake", "L1-dcache-load-misses", {"cpu_core": (3, 4 << 32 | 0x10000, 0),
                                             "cpu_atom": (3, 10 << 32 | 0x10000, 0)}),
    ("zen-4", "cpu/event=0x1a0,umask=0x60/", {"cpu": (4, 0x1000060A0, 0)}),
    ("zen-4", "L1-icache-load-misses", {"cpu": (3, 0x10001, 0)}),
    ("zen-4", "LLC-loads", {"cpu": (3, 2, 0)}),
    ("zen-4", "dTLB-store-misses", {"cpu": (3, 0x10103, 0)}),
    ("zen-4", "dTLB-stores", {"cpu": (3, 0x103, 0)}),
    ("zen-4", "iTLB-loads", {"cpu": (3, 4, 0)}),
    ("zen-4", "branch-load-misses", {"cpu": (3, 0x10005, 0)}),
    ("zen-4", "node-prefetches", {"cpu": (3, 0x206, 0)}),
])  # fmt: skip
def test_each_name_resolves_to_its_events(
    tmp_path: Path, machine: str, text: str, expected_words: dict[str, tuple[int, int, int]]
) -> None:
    fakeperf.write_machine(tmp_path, machine)
    assert words(tmp_path, text) == expected_words


@pytest.mark.parametrize(("machine", "text", "message"), [
    ("ice-lake-sp", "cpu/event=0x3c,any=1/", "no term 'any'"),
    ("zen-4", "cpu/event=0xb7,offcore_rsp=1/", "no term 'offcore_rsp'"),
    ("zen-4", "cpu/event=0x10a0f/", "does not fit into its 12 bits"),
    ("alder-lake", "cpu/event=0x3c/", "no PMU 'cpu'; there are: cpu_atom, cpu_core, uncore_imc_0"),
    ("skylake-sp", "topdown-retirng", "no event of that name"),
    ("sapphire-rapids", "topdown-retirng", "nearest: topdown-retiring"),
    ("skylake-sp", "contxt-switches", "nearest: context-switches"),
    ("skylake-sp", "sched:sched_swtch", "no event of that name"),
    ("skylake-sp", "cpu/evnt=1/", "the PMU has no term 'evnt'"),
    ("skylake-sp", "cpu/event=0x100/", "event=0x100 does not fit into its 8 bits"),
    ("skylake-sp", "cpux/event=1/", "there is no PMU 'cpux'; there are: cpu, uncore_imc_0"),
    ("skylake-sp", "uncore_imc_0/event=1/", "uncore_imc_0 does not count CPUs separately"),
])  # fmt: skip
def test_unavailable_events_have_a_reason(
    tmp_path: Path, machine: str, text: str, message: str
) -> None:
    fakeperf.write_machine(tmp_path, machine)
    fakeperf.write_pmu(tmp_path, "uncore_imc_0", 20, mask="0")
    with pytest.raises(ValueError, match=message):
        words(tmp_path, text)


# --- event encodings ------------------------------------------------------------------------------


# Output of `perf list -j`; the keys are perf's (tools/perf/builtin-list.c).
LISTED: list[Any] = [
    {"Unit": "cpu", "EventName": "mem_load_retired.l1_hit", "BriefDescription": "Hits in L1",
     "Encoding": "cpu/event=0xd1,period=1000003,umask=0x1/"},
    {"EventName": "uncore", "Encoding": "uncore_imc/event=4/"},
    {"EventName": "shell", "Encoding": "cpu/event=$(id)/"},
    {"EventName": "broken", "Encoding": 7},
    {"EventName": ["no", "name"], "Encoding": "cpu/event=1/"},
    "not even an event",
]  # fmt: skip


def test_the_output_of_perf_list_is_checked() -> None:
    result = perf_events(lambda: json.dumps(LISTED).encode())
    assert result["mem_load_retired.l1_hit"] == [
        ListedEvent("cpu", "event=0xd1,umask=0x1", "Hits in L1")
    ]
    assert set(result) == {"mem_load_retired.l1_hit", "uncore"}
    for garbage in (b"", b"{", b"[" * 100_000, b"\xff", b"{}"):
        assert perf_events(lambda garbage=garbage: garbage) == {}  # type: ignore[misc]

    def hang() -> bytes:
        raise subprocess.TimeoutExpired("perf", 5)

    assert perf_events(hang) == {}


def test_a_name_of_perf_is_resolved_with_the_kernels_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakeperf.write_pmu(tmp_path, "cpu", 4)
    fakeperf.write_events(tmp_path, "cpu", "config:0-7,32-35", slots=4)
    perf = tmp_path / "bin/perf"
    trees.put(tmp_path, "listing", json.dumps(LISTED))
    trees.put(tmp_path, "bin/perf", f'#!/bin/sh\n[ "$*" = "list -j" ] && cat {tmp_path}/listing\n')
    perf.chmod(0o700)
    monkeypatch.setattr(event_catalogue, "PERF_PATH", f"{perf.parent}:/usr/bin:/bin")
    catalogue = Catalogue(tmp_path)
    with pytest.raises(ValueError, match="no event of that name"):  # the PMU has no umask field
        catalogue.find(parse_groups("MEM_LOAD_RETIRED.L1_HIT")[0][0])
    (tmp_path / fakeperf.DEVICES / "cpu/format/umask").write_text("config:8-15\n")
    result = catalogue.find(parse_groups("MEM_LOAD_RETIRED.L1_HIT:k")[0][0])
    event = result.events["cpu"]
    assert (event.type, event.config, event.kernel_only) == (4, 0x1D1, True)
    assert result.description == "Hits in L1"
    (row,) = event_catalogue.list_events(tmp_path, "hits in")["events"]
    assert (row["name"], row["about"]) == ("mem_load_retired.l1_hit", "Hits in L1")
    assert (row["pmu"], row["unit"], row["scale"], row["open"]) == ("cpu", "1", 1.0, [])


# --- event list -----------------------------------------------------------------------------------


def test_a_hybrid_lists_each_core_type(tmp_path: Path) -> None:
    trees.put(tmp_path, "proc/sys/kernel/nmi_watchdog", "1\n")
    for name, number, cpus in (("cpu_core", 4, "0-3"), ("cpu_atom", 10, "4-7")):
        fakeperf.write_pmu(tmp_path, name, number, cpus)
    fakeperf.write_events(tmp_path, "cpu_core", slots=4)
    trees.put(tmp_path, f"{fakeperf.DEVICES}/cpu_core/events/slots.scale", "0.5\n")
    trees.put(tmp_path, f"{fakeperf.DEVICES}/cpu_core/events/broken", "thresh=?\n")
    answer = event_catalogue.list_events(tmp_path, None)
    rows = {(row["pmu"], row["name"]): row for row in answer["events"]}
    assert [(p["pmu"], p["type"], p["cpus"]) for p in answer["pmus"]] == [
        ("cpu_core", "P", "0-3"), ("cpu_atom", "E", "4-7"),
    ]  # fmt: skip
    assert rows["cpu_core", "slots"]["scale"] == 0.5
    assert Catalogue(tmp_path).find(parse_groups("slots")[0][0]).scale == 0.5
    assert ("cpu_atom", "slots") not in rows
    assert ("cpu_core", "broken") not in rows
    with pytest.raises(ValueError, match="no event of that name"):
        words(tmp_path, "broken")
    assert rows["cpu_atom", "cycles"]["open"] == ["perftop", "NMI watchdog"]
    assert rows["software", "page-faults"]["open"] == []
    assert answer["missing"] == []


def test_a_word_filters_the_list(tmp_path: Path) -> None:
    answer = event_catalogue.list_events(tmp_path, "Another CPU")
    assert [row["name"] for row in answer["events"]] == ["cpu-migrations"]
    assert answer["missing"][0]["why"] == "the kernel offers no core PMU"
    assert {"page-faults", "branches"} & {*Catalogue(tmp_path).names()} == {"page-faults"}


def test_events_that_the_kernel_refuses_are_marked(tmp_path: Path) -> None:
    trees.put(tmp_path, "proc/sys/kernel/perf_event_paranoid", "0\n")
    for name, number, cpus in (("cpu_core", 4, "0-3"), ("cpu_atom", 10, "4-7")):
        fakeperf.write_pmu(tmp_path, name, number, cpus)
    fakeperf.write_events(tmp_path, "cpu_core", slots=4)

    def refuse(event: Event, cpu: int, _host_only: bool) -> int:
        return errno.ENOENT if event.config & 0xFF == 7 or (cpu == 4 and event.type == 3) else 0

    answer = event_catalogue.list_events(tmp_path, None, kernel=fakeperf.Kernel(refuse=refuse))
    why = {(row["pmu"], row["name"]): row["refused"] for row in answer["events"]}
    none = "this CPU, or its hypervisor, has no such event"
    assert why["cpu_core", "stalled-cycles-frontend"] == none
    assert why["cpu_atom", "LLC-loads"] == none
    assert why["software", "context-switches"] is None
    assert why["cpu_core", "LLC-loads"] is why["cpu_core", "slots"] is None
    untried = event_catalogue.list_events(tmp_path, None)
    assert all(row["refused"] is None for row in untried["events"])


# --- names ----------------------------------------------------------------------------------------


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
    ("cycles:uk", "cycles:uk", False, False), ("cycles:ukh", "cycles:ukh", False, False),
    ("cpu/event=1/u", "cpu/event=1/:u", True, False),
    ("cpu/event=1/:k", "cpu/event=1/:k", False, True),
    ("mem_load_retired.l1_hit", "mem_load_retired.l1_hit", False, False),
    ("MEM_LOAD_RETIRED:L1_HIT", "MEM_LOAD_RETIRED:L1_HIT", False, False),
])  # fmt: skip
def test_rings_are_letters_after_the_name(text: str, name: str, user: bool, kernel: bool) -> None:
    ((result,),) = parse_groups(text)
    assert (result.name, result.user_only, result.kernel_only) == (name, user, kernel)
    assert text[:6] != "cycles" or result.catalogue_name == "cycles"


@pytest.mark.parametrize("text", [
    "", "a,", "{a,b", "a}", "cpu/event=1", "a b", "{a}x", "cpu/name=\x1b[31m,event=1/",
    "a,a", ",".join(f"r{i}" for i in range(33)), "cpu/event=1/z",
])  # fmt: skip
def test_invalid_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^-e"):
        parse_groups(text)


def test_a_list_may_have_as_many_events_as_the_limit() -> None:
    assert len(parse_groups(",".join(f"r{i}" for i in range(32)))) == 32


@pytest.mark.parametrize(("word", "name"), [
    ("contxt", "context-switches"), ("contxt-switches", "context-switches"),
    ("Page_fault", "page-faults"), ("retird", "mem_load_retired.l1_hit"),
])  # fmt: skip
def test_a_wrong_name_suggests_similar_names(word: str, name: str) -> None:
    assert name in nearest_names(
        word, ["context-switches", "page-faults", "mem_load_retired.l1_hit"]
    )
    assert nearest_names("zzz", ["context-switches"]) == []

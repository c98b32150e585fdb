"""`-e` with `--source msr`: which bits select an event, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pmu_formats
import pytest
import trees
from fakeperf import DEVICES

from perfprobe.cpu import cpuid, model
from perfprobe.cpu.identity import identity
from perfprobe.errors import Unavailable
from perfprobe.kernel import event_encodings
from perfprobe.registers.counter_draft import General
from perfprobe.registers.counter_plan import Plan
from perfprobe.sources.msr import chosen, opening
from perfprobe.sources.msr.kinds import Kind
from perfprobe.wire import Missing


def machine(root: Path, name: str) -> None:
    pmu_formats.written(root, name)
    for pmu, *_ in pmu_formats.MACHINES[name]:
        for event, terms in (
            ("cpu-cycles", "event=0x3c"),
            ("ref-cycles", "event=0x00,umask=0x03"),
            ("branch-misses", "event=0xc5"),
        ):
            trees.put(root, f"{DEVICES}/{pmu}/events/{event}", f"{terms}\n")


def kind_of(
    number: int, *cpus: int, core_type: str = "P", any_thread: bool = False, gp: int = 8
) -> Kind:
    """CPUs of an Intel model; AMD: `number` is 0."""
    vendor, family = ("GenuineIntel", 6) if number else ("AuthenticAMD", 0x19)
    perfmon = (4 | gp << 8 | 48 << 16, 0, 0, 3 | 48 << 5 | (not any_thread) << 15)

    def leaves(leaf: int, _subleaf: int = 0, /) -> cpuid.Registers:
        return perfmon if leaf == 0xA else (0x16, 0, 0, 0)

    uarch = model.find(vendor, family, number or 0x11, 4, core_type=core_type)
    return Kind([*cpus], [*cpus], uarch, leaves)


def generals(root: Path, text: str, number: int) -> list[General]:
    """What CPU 0 is to count."""
    return chosen.generals(chosen.find(root, text), kind_of(number, 0))


SKX, ICX, ADL, ZEN4 = 0x55, 0x6A, 0x97, 0


@pytest.mark.parametrize(("name", "number", "text", "config", "rings"), [
    ("skylake-sp", SKX, "r01d1", 0x1D1, 3),
    ("skylake-sp", SKX, "r01d1:u", 0x1D1, 1),
    ("skylake-sp", SKX, "cpu/event=0xd1,umask=1/k", 0x1D1, 2),
    ("skylake-sp", SKX, "cpu/event=0xa3,umask=0x14,cmask=20,inv=1,edge=1/", 0x148414A3, 3),
    ("skylake-sp", SKX, "cycles", 0x3C, 3),
    ("skylake-sp", SKX, "branch-misses:u", 0xC5, 1),
    ("alder-lake", ADL, "branch-misses", 0xC5, 3),
    ("alder-lake", ADL, "cpu_core/event=0xd1/", 0xD1, 3),
    ("zen-4", ZEN4, "cpu/event=0x1a0,umask=0x60/", 0x1_0000_60A0, 3),
    ("zen-4", ZEN4, "r00", 0, 3),
])  # fmt: skip
def test_the_bits_of_an_event(
    tmp_path: Path, name: str, number: int, text: str, config: int, rings: int
) -> None:
    machine(tmp_path, name)
    (found,) = generals(tmp_path, text, number)
    assert (found.config, found.rings >> 16) == (config, rings)


def test_any_thread_only_where_the_cpu_has_it(tmp_path: Path) -> None:
    machine(tmp_path, "skylake-sp")
    wanted = chosen.find(tmp_path, "cpu/event=0x3c,any=1/")
    (found,) = chosen.generals(wanted, kind_of(SKX, 0, any_thread=True))
    assert found.config == 0x20003C
    with pytest.raises(ValueError, match="bits 0x200000"):
        generals(tmp_path, "cpu/event=0x3c,any=1/", SKX)


@pytest.mark.parametrize(("name", "number", "text", "told"), [
    ("skylake-sp", SKX, "r01d1,page-faults", "-e page-faults: no counter of a core counts it"),
    ("skylake-sp", SKX, "LLC-loads", "-e LLC-loads: only the kernel knows its code"),
    ("skylake-sp", SKX, "cache-misses", "only the kernel knows its code"),  # it is not listed
    ("skylake-sp", SKX, "ref-cycles", "event 00H"),
    ("skylake-sp", SKX, "mem-loads", "a second register"),
    ("skylake-sp", SKX, "cpu/event=0xc0,in_tx=1/", "bits 0x100000000"),
    ("skylake-sp", SKX, "cpu/event=0xc0,pc=1/", "bits 0x80000"),
    ("skylake-sp", SKX, "r4301d1", "bits 0x430000"),  # rings and enabling bit are ours
    ("skylake-sp", SKX, "mem-load", "nearest: mem-loads"),
    ("skylake-sp", 0x3F, "rd1", "one counter alone cannot count it"),
    ("sapphire-rapids", 0x8F, "topdown-be-bound", "event 00H"),
    ("zen-4", ZEN4, "r03", "one counter alone"),
    ("zen-4", ZEN4, "uncore/x=1/", "no PMU 'uncore'"),
])  # fmt: skip
def test_what_no_counter_counts_is_refused_by_name(
    tmp_path: Path, name: str, number: int, text: str, told: str
) -> None:
    machine(tmp_path, name)
    with pytest.raises(ValueError, match=r"^-e ") as refused:
        generals(tmp_path, text, number)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_uncore_and_tracepoints_are_refused_by_name(tmp_path: Path) -> None:
    machine(tmp_path, "skylake-sp")
    trees.put(tmp_path, f"{DEVICES}/uncore_imc/type", "12\n")
    trees.put(tmp_path, f"{DEVICES}/uncore_imc/cpumask", "0\n")
    trees.put(tmp_path, f"{DEVICES}/uncore_imc/format/event", "config:0-7\n")
    with pytest.raises(ValueError, match="uncore_imc does not count each CPU"):
        chosen.find(tmp_path, "uncore_imc/event=4/")
    trees.put(tmp_path, "sys/kernel/tracing/events/sched/sched_switch/id", "316\n")
    with pytest.raises(ValueError, match="-e sched:sched_switch: it is a tracepoint"):
        chosen.find(tmp_path, "sched:sched_switch")


def test_below_a_directory_this_machines_perf_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(tmp_path, "skylake-sp")
    monkeypatch.setattr(event_encodings, "_listed", lambda: pytest.fail("perf was asked"))
    monkeypatch.setattr(event_encodings, "pfm_code", lambda *_: pytest.fail("libpfm4 was asked"))
    with pytest.raises(ValueError, match="no event of that name"):
        chosen.find(tmp_path, "inst_retired.any")


def plans(root: Path, text: str, kinds: list[Kind]) -> tuple[dict[int, Plan], list[Missing]]:
    """By CPU, and what is missing."""
    wanted = chosen.find(root, text)
    being = opening._Opening(root, identity(root), program=True, method=None, wanted=wanted)
    being._kinds = kinds
    return being._plans(), being.missing


def test_an_event_of_other_cores_is_left_out(tmp_path: Path) -> None:
    machine(tmp_path, "alder-lake")
    big, small = kind_of(ADL, 0, 2), kind_of(ADL, 1, 3, core_type="E")
    found, missing = plans(tmp_path, "cpu_core/event=0xd1,name=p/,r01c2", [big, small])
    keys = [[c.key for c in found[cpu].counted if c.key.startswith("e.")] for cpu in (0, 1)]
    assert keys == [["e.p", "e.r01c2"], ["e.r01c2"]]
    assert [(m.what, m.cpus) for m in missing if m.what.startswith("e.")] == [("e.p", [1, 3])]
    with pytest.raises(Unavailable, match="-e p: cores of this type"):
        plans(tmp_path, "cpu_core/event=0xd1,name=p/", [small])


@pytest.mark.parametrize(("number", "gp", "events", "told"), [
    (SKX, 4, "r01d1,r02d1",
     "-e r02d1: no counter is left for it: perftop's own take 3 of 4 general ones; fewer events"),
    (SKX, 4, "r01c0,r02c0", "-e r02c0: no counter is left for it"),
    (ICX, 8, "r01d1,r02d1,r04d1,r08d1,r10d1",
     "perftop's own take 3 of 8 general ones, and only 0-3 can count it"),
    (0x57, 2, "r01d1", "perftop's own take 2 of 2 general ones"),
])  # fmt: skip
def test_what_finds_no_counter_is_refused_by_name(
    tmp_path: Path, number: int, gp: int, events: str, told: str
) -> None:
    machine(tmp_path, "skylake-sp")
    with pytest.raises(Unavailable) as refused:
        plans(tmp_path, events, [kind_of(number, 0, gp=gp)])
    assert told in str(refused.value)


def test_without_a_core_pmu_there_are_no_codes(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"-e r01d1: .*core PMU"):
        chosen.find(tmp_path, "r01d1")

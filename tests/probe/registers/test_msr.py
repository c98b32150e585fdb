"""Registers of one CPU, and the counter plans of each model."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
import trees
from fakekernel.client import FakeKernel, unavailable

from perfprobe.cpu import files, identity, topology
from perfprobe.cpu import model_tables as uarch
from perfprobe.cpu.model_terms import Budget
from perfprobe.programming import counter_plan
from perfprobe.programming.counter_plan import Change, Plan
from perfprobe.registers import msr, opening
from perfprobe.registers.msr import MsrError, Registers

needs_fuse = pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "it can be mounted")


# --- the driver -----------------------------------------------------------------------------------


@needs_fuse
def test_reading_and_writing(fake: FakeKernel) -> None:
    with Registers(fake.root, 1) as device:
        assert device.read(0xCE) == 21 << 8 | 10 << 40
        with pytest.raises(MsrError, match="MSR 999H cannot be read") as caught:
            device.read(0x999)
        assert caught.value.code == errno.EIO
        with pytest.raises(MsrError, match="opened for reading"):
            device.write(0x186, 1)
    with Registers(fake.root, 1, writable=True) as device:
        device.write(0x186, 0x43003C)
        assert fake.peek(1, 0x186) == 0x43003C
        with pytest.raises(MsrError, match="MSR CEH cannot be written"):
            device.write(0xCE, 1)


@needs_fuse
def test_a_write_counts_when_it_is_read_back(fake: FakeKernel) -> None:
    fake.ask("options", writes="drop")
    with (
        Registers(fake.root, 0, writable=True) as device,
        pytest.raises(MsrError, match="holds 0H after 43003CH") as caught,
    ):
        device.write(0x186, 0x43003C)
    assert caught.value.code == 0


@needs_fuse
@pytest.mark.parametrize(
    ("path", "text", "cause"),
    [
        ("sys/module/msr/parameters/allow_writes", "off\n", "to MSRs .msr.allow_writes=off"),
        ("sys/kernel/security/lockdown", "none [integrity] confidentiality\n", "kernel lockdown"),
        ("sys/kernel/security/lockdown", "[none] integrity confidentiality\n", "lockdown or"),
    ],
)
def test_the_cause_of_a_refused_write(fake: FakeKernel, path: str, text: str, cause: str) -> None:
    fake.ask("file", path=path, text=text)
    fake.ask("options", writes="eperm")
    with (
        Registers(fake.root, 0, writable=True) as device,
        pytest.raises(MsrError, match=cause) as caught,
    ):
        device.write(0x186, 1)
    assert caught.value.fix
    assert caught.value.consequence == "registers can be read, not programmed"


@pytest.mark.parametrize(
    ("guest", "module", "fix"),
    [
        ("KVM", True, "sudo modprobe msr"),
        ("KVM", False, None),
        (None, False, "sudo modprobe msr, on the host"),
    ],
)
def test_modprobe_is_suggested_only_if_the_module_can_exist(
    monkeypatch: pytest.MonkeyPatch, guest: str | None, module: bool, fix: str | None
) -> None:
    monkeypatch.setattr(identity, "virtualisation", lambda _: guest)
    monkeypatch.setattr(Path, "glob", lambda *_: iter([Path("msr.ko")] if module else []))
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory")
    monkeypatch.setattr(files, "numbered", lambda *_: [])
    result = msr._open_trouble(Path("/"), 0, missing)
    assert result.fix == fix
    assert "no /dev/cpu/N/msr" in result.cause


def test_no_driver(tmp_path: Path) -> None:
    with pytest.raises(MsrError, match="not loaded") as caught:
        Registers(tmp_path, 0)
    assert caught.value.fix == "sudo modprobe msr"
    (tmp_path / "dev/cpu/0").mkdir(parents=True)
    (tmp_path / "dev/cpu/0/msr").touch()
    with pytest.raises(MsrError, match="CPU 7 is offline or absent"):
        Registers(tmp_path, 7)


@needs_fuse
def test_an_offline_cpu(fake: FakeKernel) -> None:
    with Registers(fake.root, 3) as device:
        fake.ask("online", cpu=3, online=False)
        with pytest.raises(MsrError, match="CPU 3 is off"):
            device.read(0x10)


@pytest.mark.parametrize(
    ("register", "text"),
    [(0x186, "MSR 186H"), (0xCE, "MSR CEH"), (0xC00000E7, "MSR C00000E7H")],
)
def test_names(register: int, text: str) -> None:
    assert msr.name(register) == text


@needs_fuse
def test_reading_opens_the_device_read_only(fake: FakeKernel) -> None:
    parts, missing, info = opening.open_registers(fake.root, topology.read(fake.root))
    slots = [slot for part in parts for cpu in range(4) for slot in part.open(cpu)]
    flags = [Path(f"/proc/self/fdinfo/{slot.fd}").read_text() for slot in slots]
    assert {int(text.split("flags:")[1].split()[0], 8) & os.O_ACCMODE for text in flags} == {0}
    assert {c.key for part in parts for c in part.counters} >= {
        "tsc", "aperf", "mperf", "smi", "core_c6", "package_pc2",
        "core_thermal", "package_thermal", "limit_reasons", "temperature_c", "turbo_disabled",
        "power_limit_w", "power_limit2_w", "power_throttled_s",
        "modulation", "hwp_epp", "hwp_max", "hwp_highest",
    }  # fmt: skip
    assert {m.what for m in missing} == {"core_c3", "core_c7", "package_pc7"}
    assert info.tsc_hz is not None
    assert info.tsc_hz.hz == pytest.approx(2.1e9, rel=2e-3)
    for part in parts:
        part.close()
    assert fake.writes() == []


def test_unreadable_registers_are_reported_and_not_raised(tmp_path: Path) -> None:
    trees.machine(tmp_path, 1)
    parts, missing, _ = opening.open_registers(tmp_path, topology.read(tmp_path))
    assert parts == []
    assert {m.fix for m in missing} == {"sudo modprobe msr"}


# --- plans ----------------------------------------------------------------------------------------


def planned(model: int, budget: Budget | None = None, *, any_thread: bool = False) -> Plan:
    """The registers of an Intel model, its counters as in the table or as given."""
    result = next(row.uarch for row in uarch.ROWS if row.family == 6 and model in row.models)
    plan = counter_plan.plan(replace(result, budget=budget or result.budget), any_thread=any_thread)
    assert plan is not None
    return plan


def test_selects_of_a_server() -> None:
    plan = planned(0x55)
    assert dict(plan.selects) == {0x186: 0x43023C, 0x187: 0x42003C, 0x188: 0x4200C0}
    assert (plan.fixed, plan.enable, plan.method) == (0x333, 0x7_0000_0007, "one-thread")
    assert [(c.key, c.register) for c in plan.counted] == [
        ("ref", 0x30B), ("cycles", 0x30A), ("instructions", 0x309),
        ("one_thread", 0xC1), ("kernel_cycles", 0xC2), ("kernel_instructions", 0xC3),
    ]  # fmt: skip


def test_short_of_counters_the_smt_event_comes_first() -> None:
    short = planned(0x57, any_thread=True)
    assert dict(short.selects) == {0x186: 0x63013C, 0x187: 0x42003C}
    assert (short.short, short.method) == (("kernel_instructions",), "any-thread")
    assert {c.bits for c in short.counted} == {40}
    none = planned(0x55, Budget(0, 3))
    assert none.short == ("one_thread", "kernel_cycles", "kernel_instructions")
    assert none.method is None


def test_any_thread_only_where_the_cpu_has_it() -> None:
    assert planned(0x1A).method is None
    assert planned(0x1A, any_thread=True).method == "any-thread"
    assert planned(0x6A, any_thread=True).method == "one-thread"


def test_never_more_than_eight_selects() -> None:
    plan = planned(0x6A, Budget(20, 0))
    assert max(register for register in plan.controls if register < 0x200) == 0x18D


def values(plan: Plan, **changed: int) -> dict[int, int]:
    result = dict.fromkeys(plan.controls, 0)
    return result | {int(name[1:], 16): value for name, value in changed.items()}


@pytest.mark.parametrize(
    ("changed", "used"),
    [
        ({"x186": 0x53003C}, False),
        ({"x38F": 0x70000000F}, False),
        ({"x186": 0x53003C, "x38F": 0x70000000E}, False),
        ({"x186": 0x53003C, "x38F": 1}, True),
        ({"x189": 0x43003C, "x38F": 8}, True),
        ({"x186": 0x13003C, "x38F": 1}, False),
        ({"x38D": 0x30, "x38F": 1}, False),
        ({"x38D": 0x30, "x38F": 1 << 33}, True),
        ({"x38D": 0x80}, True),
    ],
)
def test_evidence_of_use(changed: dict[str, int], used: bool) -> None:
    plan = planned(0x55)
    assert (counter_plan.in_use(plan, values(plan, **changed)) is not None) == used


def test_without_a_global_control_the_select_decides() -> None:
    zen3 = next(r.uarch for r in uarch.ROWS if r.uarch.name == "Zen 3")

    assert zen3.bank
    plan = counter_plan.plan(replace(zen3, bank=replace(zen3.bank, control=None)), any_thread=False)
    assert plan
    assert dict(plan.selects) == {
        0xC0010200: 0x430076, 0xC0010202: 0x4300C0, 0xC0010204: 0x420076,
        0xC0010206: 0x4200C0, 0xC0010208: 0x43002B,
    }  # fmt: skip
    assert counter_plan.in_use(plan, values(plan, xC0010204=0x530076)) is not None
    assert counter_plan.in_use(plan, values(plan, xC0010204=0x130076)) is None


def test_the_reference_event_of_zen_4_has_a_long_code() -> None:
    zen4 = next(r.uarch for r in uarch.ROWS if r.uarch.name == "Zen 4")
    plan = counter_plan.plan(zen4, any_thread=False)
    assert plan
    assert plan.selects[0xC0010200] == 1 << 32 | 0x430120
    assert plan.controls[-1] == 0xC0000301


def test_changes_keep_bits_of_others() -> None:
    plan = planned(0x55)
    before = values(plan, x38F=1 << 48 | 8, x38D=0x5000, x187=0x42003C)
    assert counter_plan.changes(plan, before) == {
        0x186: Change(0, 0x43023C),
        0x187: Change(0x42003C, 0x42003C),
        0x188: Change(0, 0x4200C0),
        0x38D: Change(0x5000, 0x5333),
        0x38F: Change(1 << 48 | 8, 1 << 48 | 0x70000000F),
    }


@pytest.mark.parametrize(
    ("register", "change", "now", "after"),
    [
        (0x186, Change(5, 0x43023C), 0x43023C, 5),
        (0x186, Change(5, 0x43023C), 5, 5),
        (0x186, Change(5, 0x43023C), 0, 5),
        (0x186, Change(5, 0x43023C), 0x4300C0, 0x4300C0),  # somebody else's
        (0x38F, Change(8, 0xF), 0x1F, 0x18),
        (0x38D, Change(0, 0x333), 0x3333, 0x3000),
    ],
)
def test_restored_values(register: int, change: Change, now: int, after: int) -> None:
    assert counter_plan.given_back({register: change}, {register: now}) == {register: after}


OURS = {
    0x186: Change(0, 0x43023C),
    0x187: Change(0, 0x42003C),
    0x38D: Change(0, 0x333),
    0x38F: Change(0, 0x700000003),
}
"""Programmed on a machine where nothing was enabled."""


@pytest.mark.parametrize(
    ("theirs", "after"),
    [
        ({}, {}),
        ({0x186: 0x4300C0}, {0x186: 0x4300C0, 0x38F: 0x1}),
        ({0x38D: 0x222}, {0x38D: 0x222, 0x38F: 0x700000000}),
        ({0x38D: 0x733}, {0x38D: 0x700, 0x38F: 0x400000000}),
        ({0x38F: 0x70000000B}, {0x38F: 0x8}),
        ({0x187: 0, 0x38D: 0x033}, {}),
        ({0x187: 0x4300C0, 0x38F: 0x2}, {0x187: 0x4300C0, 0x38F: 0x2}),
    ],
)
def test_counters_of_another_program_stay_enabled(
    theirs: dict[int, int], after: dict[int, int]
) -> None:
    now = {register: change.ours for register, change in OURS.items()} | theirs
    assert counter_plan.given_back(OURS, now) == dict.fromkeys(OURS, 0) | after

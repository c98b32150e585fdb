"""The journal on disk whenever perftop may be killed; the next start restores from it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from capabilities import needs_fuse
from cpu_models import SKYLAKE_SP
from fakekernel.client import FakeKernel
from journals import entries_left

from perfprobe.cpu import identity
from perfprobe.programming import counter_plan, journal
from perfprobe.programming.counter_plan import Change, Changes, CounterPlan
from perfprobe.programming.journal import Journal
from perfprobe.programming.programmer import Programmer
from perfprobe.registers.msr import MsrError, Registers

pytestmark = needs_fuse

SELECT = 0x186
LEFTOVER_CHANGE = Change(0, 0x43003C)
"""The change of the select that a killed session left."""


class SimulatedKill(BaseException):
    """Simulates a kill at this point."""


def plans() -> dict[int, CounterPlan]:
    plan = counter_plan.make_plan(SKYLAKE_SP, any_thread=False)
    assert plan
    return dict.fromkeys(range(4), plan)


def journal_changes(run_dir: Path, kernel: FakeKernel) -> dict[int, Changes]:
    entry = journal.read_journal(run_dir, identity.boot_id(kernel.root), kernel.root)
    return {} if entry is None else entry.cpus


def test_a_new_cpu_is_in_the_journal_before_it_is_programmed(
    fake: FakeKernel, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU was offline at the start, so the first journal does not have it."""
    programmer = Programmer(fake.root, identity.boot_id(fake.root))
    programmer.begin(plans(), range(3))
    assert set(journal_changes(run_dir, fake)) == {0, 1, 2}
    ours = fake.changed()[0]

    def killed(*_: object) -> None:
        raise SimulatedKill

    with monkeypatch.context() as patch, pytest.raises(SimulatedKill):
        patch.setattr(Registers, "write", killed)
        programmer.device(3)
    kept = journal_changes(run_dir, fake)[3]
    assert {r: (c.before, c.written) for r, c in kept.items() if c.before != c.written} == ours
    programmer.end()
    assert (programmer.unrestored, programmer.check(0)) == ("", None)
    assert entries_left(fake.root) == []


def test_restored_registers_are_removed_from_the_journal_at_once(
    fake: FakeKernel, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restoring twice, after another kill, would overwrite values that others have set since. CPU 9
    cannot be restored."""
    forged = Journal(run_dir, identity.boot_id(fake.root), fake.root)
    lasting: dict[int, Changes] = {9: {SELECT: LEFTOVER_CHANGE}}
    forged.write({0: {SELECT: LEFTOVER_CHANGE}} | lasting)
    gone = json.loads(forged.path.read_text()) | {"pid": 2**22 + 1}
    forged.path.write_text(json.dumps(gone))
    fake.poke(0, SELECT, LEFTOVER_CHANGE.written)
    plain, seen = counter_plan.control_values, []

    def observed_values(device: Registers, plan: CounterPlan) -> dict[int, int]:
        seen.append((fake.peek(0, SELECT), journal_changes(run_dir, fake)))
        return plain(device, plan)

    monkeypatch.setattr(counter_plan, "control_values", observed_values)
    programmer = Programmer(fake.root, identity.boot_id(fake.root))
    programmer.begin(plans(), range(4))
    assert seen[0] == (LEFTOVER_CHANGE.before, lasting)
    who = f"perftop (pid {2**22 + 1}, killed) had left"
    assert programmer.notes == [
        f"restored the counter registers that {who}, CPUs 0",
        f"registers that {who} cannot be restored now, CPUs 9",
    ]
    programmer.end()
    assert programmer.unrestored.startswith("counters of CPU 9 stay programmed")
    assert journal_changes(run_dir, fake) == lasting


def test_an_unusable_journal_is_named_with_its_consequence(fake: FakeKernel, run_dir: Path) -> None:
    forged = Journal(run_dir, identity.boot_id(fake.root), fake.root)
    forged.write({0: {SELECT: LEFTOVER_CHANGE}})
    forged.path.write_text(json.dumps(json.loads(forged.path.read_text()) | {"cpus": []}))
    programmer = Programmer(fake.root, identity.boot_id(fake.root))
    programmer.begin(plans(), range(4))
    programmer.end()
    (note,) = programmer.notes
    assert note == (
        f"{forged.path} is not used to restore registers: its content is not a journal; if a "
        "perftop was killed since the last boot, its counters may stay programmed until the next "
        f"one (the file is now {forged.path.stem}.ignored)"
    )
    assert forged.path.with_suffix(".ignored").exists()


@pytest.mark.parametrize("restorable", [True, False])
def test_a_failed_start_claims_restored_registers_only_if_they_are(
    fake: FakeKernel, run_dir: Path, monkeypatch: pytest.MonkeyPatch, restorable: bool
) -> None:
    """The second register that is written fails; without `restorable`, every later write, too."""
    write, writes = Registers.write, itertools.count()

    def failing_write(device: Registers, register: int, value: int) -> None:
        number = next(writes)
        if number == 1 or (number > 1 and not restorable):
            raise MsrError("a write failed", "nothing is programmed")
        write(device, register, value)

    monkeypatch.setattr(Registers, "write", failing_write)
    programmer = Programmer(fake.root, identity.boot_id(fake.root))
    with pytest.raises(MsrError) as raised:
        programmer.begin(plans(), range(4))
    suffix = "; all registers are as before" if restorable else ""
    assert raised.value.consequence == f"nothing is programmed{suffix}"
    assert bool(programmer.unrestored) != restorable
    assert bool(fake.changed()) != restorable


def test_nothing_is_programmed_without_a_directory_for_the_journal(
    fake: FakeKernel, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir.chmod(0o777)
    monkeypatch.setattr(journal, "directories", lambda: [run_dir])
    programmer = Programmer(fake.root, identity.boot_id(fake.root))
    with pytest.raises(MsrError) as raised:
        programmer.begin(plans(), range(4))
    why = f"cannot be saved ({run_dir}: other users may write to it)"
    assert why in raised.value.cause
    assert raised.value.fix is not None
    assert fake.changed() == {}
    run_dir.chmod(0o700)

"""Programs the counters of all CPUs through their MSRs, and restores every register.

No register is written before a journal with the old values is on disk. Only one process at a time
may program counters. Registers that a killed process left programmed are restored first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from perfprobe.cpu import cpu_sets
from perfprobe.errors import error_sentence
from perfprobe.programming import counter_plan, journal
from perfprobe.programming.counter_plan import Changes, CounterPlan
from perfprobe.programming.journal import Journal, JournalEntry, UnusableError
from perfprobe.registers.msr import MsrError, Registers


class InUseError(MsrError):
    """Another program uses the counters."""


class Programmer:
    """Programs and restores counters; the constructor does not open or write anything."""

    def __init__(self, root: Path, boot_id: str | None) -> None:
        self._root, self._boot_id = root, boot_id
        self._plans: Mapping[int, CounterPlan] = {}
        self._devices: dict[int, Registers] = {}
        self._changes: dict[int, Changes] = {}
        self._journal: Journal | None = None
        self.refused_cpus: dict[int, MsrError] = {}
        """CPUs that are not programmed, and the reasons."""
        self.unrestored = ""
        """After `end`: the message about registers that could not be restored, with remedy."""
        self.notes: list[str] = []
        """Messages for the user, one line each."""

    # --- starting ---------------------------------------------------------------------------

    def begin(self, plans: Mapping[int, CounterPlan], online: Iterable[int]) -> None:
        """Programs the online CPUs. Raises InUseError if another program uses the counters of all
        of them, a different MsrError if registers cannot be written; all then have their previous
        values."""
        self._plans = plans
        try:
            self._begin(online)
        except OSError as error:
            self.end()
            raise MsrError(
                f"the registers' values cannot be saved ({error_sentence(error)})",
                "nothing is programmed, because nothing could be restored after a crash",
                "point XDG_RUNTIME_DIR to a directory that only you can write to",
            ) from None
        except MsrError as error:
            self.end()
            error.consequence += "" if self.unrestored else "; all registers are as before"
            raise
        except BaseException:
            self.end()
            raise

    def _begin(self, online: Iterable[int]) -> None:
        directory = journal.prepare_directory()
        with journal.locked_directory(directory):
            self._restore_leftovers(Journal(directory, self._boot_id, self._root))
            for cpu in online:
                plan = self._plans[cpu]
                try:
                    device = self._devices[cpu] = Registers(self._root, cpu, writable=True)
                    values = counter_plan.control_values(device, plan)
                    evidence = counter_plan.counters_in_use(plan, values)
                    if evidence is not None:
                        raise _in_use(cpu, evidence + counter_plan.register_evidence(device))
                except MsrError as error:
                    self.close_cpu(cpu)
                    self.refused_cpus[cpu] = error
                else:
                    self._changes[cpu] = counter_plan.planned_changes(plan, values)
            if self.refused_cpus and not self._devices:
                raise next(iter(self.refused_cpus.values()))
            self._save()
            for cpu, device in self._devices.items():
                counter_plan.program(device, self._changes[cpu])

    # --- registers that a killed process left programmed -------------------------------------

    def _restore_leftovers(self, own_journal: Journal) -> None:
        for directory in journal.directories():
            try:
                entry = journal.read_journal(directory, self._boot_id, self._root)
            except UnusableError as error:
                path = journal.journal_path(directory, self._root)
                ignored_path = path.with_suffix(".ignored")
                with contextlib.suppress(OSError):
                    path.replace(ignored_path)
                self.notes.append(
                    f"{path} is not used to restore registers: {error}; "
                    "if a perftop was killed since the last boot, its counters may stay "
                    f"programmed until the next one (the file is now {ignored_path.name})"
                )
                continue
            if entry is None:
                continue
            if entry.is_live:
                raise InUseError(
                    f"another perftop (pid {entry.pid}) is programming these counters",
                    "two would overwrite each other's registers",
                    f"end it (kill {entry.pid}), or use --source perf, which shares counters",
                )
            self._restore_entry(entry)
            self._journal = own_journal
            self._save()
            if entry.path != own_journal.path:
                entry.path.unlink(missing_ok=True)
        self._journal = own_journal

    def _restore_entry(self, entry: JournalEntry) -> None:
        unrestored: dict[int, Changes] = {}
        for cpu, changes in entry.cpus.items():
            try:
                with Registers(self._root, cpu, writable=True) as device:
                    failed = [register for register, _ in counter_plan.restore(device, changes)]
            except MsrError:
                failed = list(changes)
            if failed:
                unrestored[cpu] = {register: changes[register] for register in failed}
        name = f"perftop (pid {entry.pid}, killed)"
        if restored := set(entry.cpus) - set(unrestored):
            cpus = cpu_sets.format(restored)
            self.notes.append(f"restored the counter registers that {name} had left, CPUs {cpus}")
        if unrestored:
            cpus = cpu_sets.format(unrestored)
            self.notes.append(f"registers that {name} had left cannot be restored now, CPUs {cpus}")
        self._changes.update(unrestored)

    # --- checks while counting ----------------------------------------------------------------

    def device(self, cpu: int) -> Registers | None:
        """Returns the MSRs of a programmed CPU, or None; programs a CPU that came online."""
        if cpu not in self._devices and cpu in self._plans and cpu not in self.refused_cpus:
            try:
                plan, old = self._plans[cpu], self._changes.get(cpu, {})
                device = self._devices[cpu] = Registers(self._root, cpu, writable=True)
                before = counter_plan.control_values(device, plan)
                for register, value in before.items():
                    if register in old and old[register].written == value:
                        before[register] = old[register].before
                if (evidence := counter_plan.counters_in_use(plan, before)) is not None:
                    raise _in_use(cpu, evidence)
                self._changes[cpu] = counter_plan.planned_changes(plan, before)
                self._save()
                counter_plan.program(device, self._changes[cpu])
            except (MsrError, OSError) as error:
                self.close_cpu(cpu)
                reason = error.why if isinstance(error, MsrError) else error_sentence(error)
                fix = f"; {error.fix}" if isinstance(error, MsrError) and error.fix else ""
                self.notes.append(
                    f"CPU {cpu} came back, but its counters are not programmed: {reason}{fix}"
                )
        return self._devices.get(cpu)

    def check(self, cpu: int) -> tuple[list[str], str] | None:
        """Compares a CPU's control registers with the plan. Returns the keys of counters that
        another program has taken, and a message for the user with the evidence (empty without
        any); None if the registers cannot be read now."""
        device = self._devices.get(cpu)
        if device is None:
            return None
        try:
            keys, evidence = counter_plan.foreign_changes(device, self._plans[cpu])
        except MsrError:
            return None  # the CPU has just gone offline
        text = f"CPU {cpu}: another program uses its counters: {evidence}" if evidence else ""
        return keys, text

    # --- ending ------------------------------------------------------------------------------

    def end(self) -> None:
        """Restores all registers, and sets `unrestored` if some could not be. Idempotent."""
        unrestored: dict[int, Changes] = {}
        errors: dict[int, MsrError] = {}
        for cpu, changes in self._changes.items():
            try:
                if cpu not in self._devices:
                    self._devices[cpu] = Registers(self._root, cpu, writable=True)
                failed = dict(counter_plan.restore(self._devices[cpu], changes))
            except MsrError as error:
                failed = dict.fromkeys(changes, error)
            if failed:
                unrestored[cpu] = {register: changes[register] for register in failed}
                errors[cpu] = next(iter(failed.values()))
        self._changes = unrestored
        for cpu in list(self._devices):
            self.close_cpu(cpu)
        with contextlib.suppress(OSError):  # the old journal, which has more registers, stays valid
            self._save()
        if errors:
            # One line on the CPUs whose registers could not be restored, with the remedy.
            offline = [cpu for cpu in sorted(errors) if errors[cpu].is_offline]
            first = next(error for error in errors.values() if error.is_offline == bool(offline))
            steps = [first.fix] if first.fix else []
            if offline:
                names = ",".join(map(str, offline))
                names = f"{{{names}}}" if len(offline) > 1 else names
                online = f"{self._root / 'sys/devices/system/cpu'}/cpu{names}/online"
                steps = [f"echo 1 | sudo tee {online}"]
            sysroot_option = "" if self._root == Path("/") else f" --sysroot {self._root}"
            steps.append(f"perftop stat --source msr -n 1{sysroot_option}")
            cpus_text = f"CPU{'s' if len(errors) > 1 else ''} {cpu_sets.format(errors)}"
            fix = f"to restore them: {'; '.join(steps)}"
            self.unrestored = f"counters of {cpus_text} stay programmed: {first} · {fix}"
        self._changes = {}
        self._journal = None

    def _save(self) -> None:
        """Writes the journal, or removes it if nothing is programmed."""
        if self._journal is None:
            return
        if self._changes:
            self._journal.write(self._changes)
        else:
            self._journal.remove()

    def close_cpu(self, cpu: int) -> None:
        """Closes the MSRs of a CPU that went offline; their old values are kept."""
        device = self._devices.pop(cpu, None)
        if device is not None:
            device.close()


def _in_use(cpu: int, evidence: str) -> InUseError:
    return InUseError(
        f"CPU {cpu}'s counters are in use: {evidence}",
        "they are not touched",
        counter_plan.IN_USE_FIX,
    )

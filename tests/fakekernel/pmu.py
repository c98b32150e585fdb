"""The counters of an LP: selects, enables, widths, overflow. Events are integrals of the
schedule."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from fakekernel.activity import KERNEL, USER, Core, Piece
from fakekernel.models import Model

Count = Callable[[int], int]
Readers = dict[int, Callable[[int], int]]
Writers = dict[int, Callable[[int, int], None]]

USR, OS, EDGE, ANY, EN, INV, CMASK = (
    1 << 16,
    1 << 17,
    1 << 18,
    1 << 21,
    1 << 22,
    1 << 23,
    0xFF << 24,
)
PMI = 1 << 20
FIXED_EVENTS = ("instructions", "cycles", "ref")  # 0x309, 0x30A, 0x30B


class RefusedError(Exception):
    """A general-protection fault, for which the driver returns EIO."""


def count_of(core: Core, model: Model, kind: str, lp: int, rings: str, any_thread: bool) -> Count:
    """Returns the count of an event as a function of time. `rings` are the modes in which it
    counts."""
    tick, nano = model.tick_hz, 10**9

    def enabled_counters(piece: Piece) -> list[int]:
        lps = range(len(piece.modes)) if any_thread else (lp,)
        return [i for i in lps if piece.modes[i] in rings]

    def alone(piece: Piece) -> bool:
        return bool(enabled_counters(piece)) and piece.mask == 1 << lp

    def reference() -> Count:
        crystal_ticks = core.integral(lambda p: bool(enabled_counters(p)), tick, nano)
        return lambda time_ns: crystal_ticks(time_ns) * model.ticks

    makers: dict[str, Callable[[], Count]] = {
        "cycles": lambda: core.integral(lambda p: p.hz if enabled_counters(p) else 0, 1, nano),
        "instructions": lambda: core.integral(
            lambda p: p.hz * sum(p.ipc[i] for i in enabled_counters(p)), 1, 1000 * nano
        ),
        "tick": lambda: core.integral(lambda p: bool(enabled_counters(p)), tick, nano),
        "ref": reference,
        "one": lambda: core.integral(alone, tick, nano),
        "smi": lambda: core.steps(lambda p: p.smi),
    }
    return makers[kind]()


class Counter:
    def __init__(self, width: int) -> None:
        self.mask = (1 << width) - 1
        self.value = 0
        self.mark = 0
        self.source: Count | None = None

    def read(self, t: int) -> int:
        if self.source is None:
            return self.value
        return self.value + self.source(t) - self.mark & self.mask

    def write(self, t: int, value: int) -> None:
        self.settle(t)
        self.value = value & self.mask

    def settle(self, t: int) -> None:
        """Adds the events since the last call to the count."""
        if self.source is not None:
            now = self.source(t)
            self.value, self.mark = self.value + now - self.mark & self.mask, now

    def follow(self, t: int, source: Count | None) -> None:
        self.settle(t)
        self.source = source
        self.mark = source(t) if source else 0


class Pmu:
    def __init__(self, core: Core, model: Model, lp: int, kvm: bool) -> None:
        self.model, self.kvm = model, kvm
        self.any_thread = model.any_thread and not kvm
        self.select = [0] * model.gp
        self.counters = [Counter(model.width) for _ in range(model.gp)]
        self.fixed = [Counter(model.width) for _ in range(model.fixed)]
        self.fixed_control = 0
        self.all = (1 << model.gp) - 1 | ((1 << model.fixed) - 1) << 32
        self.enabled = self.all  # the initial value that Linux sets

        @cache
        def event(kind: str, rings: str, any_thread: bool) -> Count:
            return count_of(core, model, kind, lp, rings, any_thread)

        self._event = event

    # --- counting ------------------------------------------------------------------------------

    def _rings(self, user: int, system: int) -> str:
        return (USER if user else "") + (KERNEL if system else "")

    def _source(self, i: int) -> Count | None:
        select = self.select[i]
        code, umask = select & 0xFF, select >> 8 & 0xFF
        if self.model.amd:
            code |= select >> 24 & 0xF00
        kind = self.model.events.get((code, umask))
        running = select & EN and (not self.model.version or self.enabled >> i & 1)
        odd = select & (EDGE | INV | CMASK)  # this event is not simulated and counts nothing
        if not running or odd or kind is None:
            return None
        any_thread = bool(select & ANY) and self.any_thread
        return self._event(kind, self._rings(select & USR, select & OS), any_thread)

    def _fixed_source(self, i: int) -> Count | None:
        control = self.fixed_control >> 4 * i
        rings = self._rings(control & 2, control & 1)
        running = rings and self.enabled >> 32 + i & 1
        if not running or i >= len(FIXED_EVENTS):
            return None
        any_thread = bool(control & 4) and self.any_thread
        return self._event(FIXED_EVENTS[i], rings, any_thread)

    def _follow(self, t: int) -> None:
        for i, counter in enumerate(self.counters):
            counter.follow(t, self._source(i))
        for i, counter in enumerate(self.fixed):
            counter.follow(t, self._fixed_source(i))

    # --- registers -----------------------------------------------------------------------------

    def _read_select(self, i: int, _t: int) -> int:
        return self.select[i]

    def _write_select(self, i: int, t: int, value: int) -> None:
        if self.kvm and value & ANY:
            raise RefusedError
        self.select[i] = value
        self.counters[i].follow(t, self._source(i))

    def _write_fixed_control(self, t: int, value: int) -> None:
        if self.kvm and any(value >> 4 * i & 4 for i in range(self.model.fixed)):
            raise RefusedError
        self.fixed_control = value
        self._follow(t)

    def _write_enabled(self, t: int, value: int) -> None:
        if value & ~self.all:
            raise RefusedError
        self.enabled = value
        self._follow(t)

    def _in_use(self, _t: int) -> int:
        used = sum(bool(select & 0xFF) << i for i, select in enumerate(self.select))
        used |= sum(
            bool(self.fixed_control >> 4 * i & 3) << 32 + i for i in range(self.model.fixed)
        )
        pmi = any(select & PMI for select in self.select)
        pmi |= any(self.fixed_control >> 4 * i & 8 for i in range(self.model.fixed))
        return used | pmi << 63

    def _amd_registers(self) -> tuple[Readers, Writers]:
        read: Readers = {}
        write: Writers = {}
        for i, counter in enumerate(self.counters):
            read[0xC0010200 + 2 * i] = partial(self._read_select, i)
            write[0xC0010200 + 2 * i] = partial(self._write_select, i)
            read[0xC0010201 + 2 * i] = counter.read
            write[0xC0010201 + 2 * i] = counter.write
        return read, write

    def registers(self) -> tuple[Readers, Writers]:
        if self.model.amd:
            return self._amd_registers()
        read: Readers = {
            0x38D: lambda _: self.fixed_control,
            0x38F: lambda _: self.enabled,
        }
        write: Writers = {
            0x38D: self._write_fixed_control,
            0x38F: self._write_enabled,
        }
        if self.model.version >= 4:
            read[0x392] = self._in_use
        for i, counter in enumerate(self.counters):
            read[0x186 + i] = partial(self._read_select, i)
            write[0x186 + i] = partial(self._write_select, i)
            read[0xC1 + i] = counter.read
            write[0xC1 + i] = counter.write
        for i, counter in enumerate(self.fixed):
            read[0x309 + i], write[0x309 + i] = counter.read, counter.write
        return read, write

    def addresses(self) -> dict[int, Counter]:
        """Counters by address, so that a test can set them at full width."""
        if self.model.amd:
            return {0xC0010201 + 2 * i: counter for i, counter in enumerate(self.counters)}
        return {
            **{0xC1 + i: counter for i, counter in enumerate(self.counters)},
            **{0x309 + i: counter for i, counter in enumerate(self.fixed)},
        }

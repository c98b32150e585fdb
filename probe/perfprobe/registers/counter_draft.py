"""Which counter counts what: events are given to the fixed and the general counters of one CPU."""

from __future__ import annotations

from collections.abc import Iterator

from perfprobe.cpu import event_counters
from perfprobe.cpu.model_terms import Bank, Budget, Event
from perfprobe.frozen import frozen

USR, OS, INTERRUPT, EN = 1 << 16, 1 << 17, 1 << 20, 1 << 22
ALL_RINGS = USR | OS
FIXED_RINGS, FIXED_PMI, NIBBLE = 0x3, 0x8, 4  # FIXED_CTR_CTRL: OS, USR, ANY, PMI for each counter

FIXED_COUNTER = 0x309
MOST_GENERAL = 8
"""Other registers follow after eight selects."""


@frozen
class Counted:
    key: str
    register: int
    bits: int
    origin: str


@frozen
class General:
    """What a general counter is to count."""

    key: str
    config: int
    """Bits of the select, without rings and enable bit."""
    rings: int = ALL_RINGS
    counters: int = event_counters.ALL
    """Bit n: counter n can count it."""

    @property
    def code(self) -> str:
        """Event and umask, as manuals write them."""
        return f"{self.config & 0xFF | self.config >> 24 & 0xF00:X}H/{self.config >> 8 & 0xFF:X}H"


def usable(budget: Budget) -> list[int]:
    """Numbers of the general counters that may be programmed."""
    return [n for n in range(min(budget.gp, MOST_GENERAL)) if not budget.lent >> n & 1]


class Draft:
    """Events on counters. An event that any counter can count makes room for one that only few
    can."""

    def __init__(self, bank: Bank, budget: Budget) -> None:
        self._bank, self._budget = bank, budget
        self.keys: list[str] = []
        self._fixed: dict[str, int] = {}
        """Number of the fixed counter, by key."""
        self._general: dict[int, General] = {}
        """By number of the counter."""

    def add(self, key: str, event: Event, rings: int) -> bool:
        """Gives the event a counter; False: none is left for it."""
        number = event.fixed
        if number is not None and number < self._budget.fixed and rings == ALL_RINGS:
            self._fixed[key] = number
            self.keys.append(key)
            return True
        return event.code != 0 and self.add_general(General(key, event.config, rings))

    def add_general(self, event: General) -> bool:
        """Gives the event a general counter; False: none is left for it."""
        found = self._place(event, set())
        self.keys += [event.key] if found else []
        return found

    def _place(self, event: General, tried: set[int]) -> bool:
        """Finds a counter, a free one first, else one whose event finds another."""
        mine = [n for n in usable(self._budget) if event.counters >> n & 1]
        for number in sorted(mine, key=lambda n: n in self._general):
            if number in tried:
                continue
            tried.add(number)
            held = self._general.get(number)
            if held is None or self._place(held, tried):
                self._general[number] = event
                return True
        return False

    # --- what comes of it

    def counted(self) -> Iterator[Counted]:
        bank, budget = self._bank, self._budget
        numbers = {event.key: number for number, event in self._general.items()}
        for key in self.keys:
            number = self._fixed.get(key)
            if number is not None:
                origin = f"fixed counter {number}"
                yield Counted(key, FIXED_COUNTER + number, budget.fixed_bits, origin)
            else:
                number = numbers[key]
                origin = f"counter {number}: {self._general[number].code}"
                yield Counted(key, bank.counter + bank.step * number, budget.bits, origin)

    def selects(self) -> dict[int, int]:
        """Value by register."""
        return {
            self._bank.select + self._bank.step * number: event.config | event.rings | EN
            for number, event in sorted(self._general.items())
        }

    @property
    def fixed(self) -> int:
        return sum(FIXED_RINGS << NIBBLE * number for number in self._fixed.values())

    @property
    def enable(self) -> int:
        return sum(1 << n for n in self._general) | sum(1 << 32 + n for n in self._fixed.values())

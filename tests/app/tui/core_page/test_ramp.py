"""A ramp on the page of its core."""

from __future__ import annotations

import numpy as np
from cores import charts, line, panel_lines, played_core, text
from fakes import CpuLoad, Machine

from perftop.draw import charts as cells
from perftop.draw import strips
from perftop.draw.charts import rows_of
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.core_page import numbers

FAR = (1.2e9, 1.6e9, 2.0e9, 2.4e9, 2.75e9, 2.8e9, 3.0e9, 3.3e9, 3.3e9, 3.0e9)
"""90 % after 0.4 s, 99 % after 0.6 s, then too much, and steady after 0.9 s."""
FAST = (2.0e9, 3.0e9)


def climbed(clocks: tuple[float, ...], cores: int = 1) -> tuple[Session, Interval]:
    """The first threads slept for 2 s and then worked on these clocks, the last of them to stay."""
    machine = Machine(cores=cores, ceiling_hz=3.4e9)

    def script(_: Machine, seq: int) -> None:
        for cpu in range(2 * cores):
            machine.does[cpu] = CpuLoad(0.01 if cpu < cores else 0.0, 0.8e9, system=0.0)
            if seq > 20 and cpu < cores:
                machine.does[cpu] = CpuLoad(1.0, clocks[min(seq - 21, len(clocks) - 1)])

    return played_core(machine, script)


def test_its_moments_are_below_the_clock_with_what_was_reached() -> None:
    of = charts(*climbed(FAR), size=(200, 45))
    drawn = panel_lines(of, "clock")
    woke = of.history.axis.bin(2_050_000_000)
    at = {word: [row.find(word) for row in drawn] for word in ("90 %", "99 %", "steady")}
    assert [next(x for x in value if x >= 0) for value in at.values()] == [
        woke + samples + 1 for samples in (4, 6, 9)
    ]
    lines = [next(y for y, x in enumerate(value) if x >= 0) for value in at.values()]
    assert lines == [len(drawn) - 3, len(drawn) - 2, len(drawn) - 1]
    assert {drawn[-1][woke + samples] for samples in (4, 6, 9)} == {"│"}


def test_a_climb_is_drawn_from_zero() -> None:
    of = charts(*climbed(FAR), size=(200, 45))
    lines = [strips.text(runs)[: numbers.LABEL_WIDTH].split() for runs in of.panels()]
    assert lines[0] == ["3.40", "GHz"]
    assert lines[len(panel_lines(of, "clock")) - 1] == ["0.00"]


def test_one_within_a_sample_has_a_beginning_and_an_end() -> None:
    of = charts(*climbed(FAST))
    foot = panel_lines(of, "clock")[-1]
    assert foot.count("steady") == 1
    assert foot.index("steady") == of.history.axis.bin(2_150_000_000) + 1
    assert not any("%" in row for row in panel_lines(of, "clock"))


def test_rules_and_words_leave_the_line_alone() -> None:
    values = np.array([0.2] * 6 + [0.9] * 6)
    keys = np.full(12, cells.style_index("clock"))
    plain = cells.graph(values, values * float("nan"), keys, 0.0, 1.0, 4, ascii_=True)
    ruled = cells.with_rules(plain.columns(), {5: "", 6: "ab", 7: "much too long"})
    before, after = ([strips.text(row) for row in of] for of in (plain.lines(), rows_of(ruled)))
    assert before[0][6:] == after[0][6:]
    for then, now in zip("".join(before), "".join(after), strict=True):
        assert then in {" ", now}
    assert after[-1].count("ab") == 0
    assert "".join(after).count("ab") == 1
    assert "much" not in "".join(after)


def test_it_is_shown_with_how_sure_that_is() -> None:
    output = line(text(*climbed(FAR), size=(160, 45)), "╱ ramp").split(maxsplit=3)[3].strip()
    assert output == (
        "steady 3.00 GHz after 900 ms (± 100 ms) · 90 % after 400 ms · 99 % after 600 ms"
        " · from 1.20 · ceiling 3.40 · fell 1× on the way"
    )
    output = (
        line(text(*climbed(FAST, cores=2), size=(120, 45)), "╱ ramp").split(maxsplit=3)[3].strip()
    )
    assert output == (
        "steady 3.00 GHz after at most 100 ms · from below 2.00 · ceiling 3.40 · median of 2 cores"
    )

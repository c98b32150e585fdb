"""The metrics of the machine and its SMT states in one line of text."""

from __future__ import annotations

import pytest
from fakes import CpuLoad, Machine, guest, observe

from perftop.draw import strips, theme
from perftop.model.kinds import Episode
from perftop.tui.frame import machine as machine_line

ALL = list(range(8))


def test_the_machine_line_fits_and_drops_metrics() -> None:
    session, interval = observe(Machine())
    wide = strips.text(machine_line.number_line(session, interval, [], 160))
    assert "busy 50.0 %" in wide
    assert "clock 3.00 of 3.20 GHz" in wide
    assert "IPC 1.25" in wide
    assert "halts 50.0 % idle  0.00 % involuntary" in wide
    for size in range(20, 300):
        line = machine_line.number_line(session, interval, [], size)
        assert strips.width(line) <= size
        assert size < 40 or "busy 50.0 %" in strips.text(line)


@pytest.mark.parametrize(
    ("kind", "cause", "number"),
    [("turbo-drop", "power-pl1", "3.00"), ("neighbour", "sibling", "1.25"),
     ("neighbour", "package", "3.00"), ("involuntary-halt", "smm", "0.00")],
)  # fmt: skip
def test_the_metric_that_most_cpus_lose_is_red(kind: str, cause: str, number: str) -> None:
    session, interval = observe(Machine())

    def red(cpus: list[int]) -> list[str]:
        runs = machine_line.number_line(
            session,
            interval,
            [Episode(kind, cpus, 0, None, 2e8 if kind == "turbo-drop" else 0.1, cause)],
            200,
        )
        return [part.strip() for part, key in runs if key == "alarm" and part.strip()]

    assert number in red(ALL)
    assert red(ALL[:1]) == []


def test_a_sign_does_not_move_other_metrics() -> None:
    session, interval = observe(Machine())
    drop = Episode("turbo-drop", ALL, 0, None, 2e8, "thermal")
    lines = [strips.text(machine_line.number_line(session, interval, e, 160)) for e in ([], [drop])]
    assert lines[0].index("IPC") == lines[1].index("IPC")


def test_a_guest_has_no_smt_states() -> None:
    assert not machine_line.has_states(observe(Machine(threads=1))[0])
    assert machine_line.has_states(observe(Machine())[0])
    session, interval = observe(guest())
    assert "clock" not in strips.text(machine_line.number_line(session, interval, [], 160))


def test_cores_of_more_than_two_threads_have_a_bar_of_any_and_neither() -> None:
    session, interval = observe(Machine(cores=2, threads=4))
    interval.split.states[:, 0] = 0.25
    runs = machine_line.state_line(session, interval, 80)
    text = strips.text(runs)
    assert "any  75  neither  25 %   2.00 of 4 threads active" in text
    assert strips.width(runs) == 80
    bar = text[5 : text.index("  any")]
    assert bar.count(theme.UNKNOWN) == pytest.approx(0.75 * len(bar), abs=1)
    assert set(bar) == {theme.UNKNOWN, theme.NEITHER}


def test_four_uncounted_threads_have_a_range_of_neither() -> None:
    session, interval = observe(
        Machine(cores=2, threads=4, does={i: CpuLoad(0.2) for i in range(8)})
    )
    for width in (40, 80, 160):
        runs = machine_line.state_line(session, interval, width)
        assert strips.width(runs) == width
    assert "neither  20–80  %   0.80 of 4 threads active" in strips.text(runs)

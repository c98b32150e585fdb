"""Rows, bars and heads as text: no app is running here."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from fakes import Does, Machine, guest, seen, tasks

from perfprobe.wire import Note
from perftop.draw import bars, strips, theme
from perftop.output.episode_words import evidence
from perftop.samples.episode import Episode
from perftop.tui.frame import alert, machine_line, top
from perftop.tui.frame.status import Status
from perftop.tui.overview import layout
from perftop.tui.overview.headings import heading
from perftop.tui.overview.lines import Picture, row
from perftop.tui.shared.places import Line, Places
from perftop.tui.shared.sheet_reader import Reader

NAN = math.nan
FIX = "ask for a vPMU, or use a metal instance"


def picture(of: Machine, width: int = 160, order: str = "topology", **more: Any) -> Picture:
    session, interval = seen(of, **more)
    places = Places(session)
    sheet = Reader(session, places).read(interval)
    known = layout.known(session, places, who=bool(session.tasks), steal=False)
    return Picture(places, sheet, layout.layout(known, width - 2), order=order)


def lines(p: Picture) -> list[str]:
    return [strips.text(row(p, i)) for i in range(len(p.places.places))]


def keys(p: Picture, i: int, text: str) -> set[str]:
    """The styles in which a text stands in a row."""
    return {key for part, key in row(p, i) if text in part}


# --- bars


@pytest.mark.parametrize("width", [0, 1, 7, 22, 63])
@pytest.mark.parametrize("states", [(0, 0, 0, 1), (1, 0, 0, 0), (0.21, 0.33, 0.13, 0.33)])
def test_a_bar_is_as_wide_as_asked(width: int, states: tuple[float, ...]) -> None:
    assert strips.width(bars.smt(states, width)) == width


def test_the_four_states_have_four_shapes_in_their_order() -> None:
    assert strips.text(bars.smt((0.25, 0.25, 0.25, 0.25), 8)) == "██▀▀▄▄··"


def test_bounds_are_a_range_between_what_is_certain() -> None:
    # r0 = r1 = 0.75: both at least 0.5, neither at least 0, the rest may be anything.
    assert strips.text(bars.possible([0.0, 0.0, 0.0, 0.5], 8)) == "████▒▒▒▒"


def test_a_single_thread_fills_its_half_or_the_whole_cell() -> None:
    assert strips.text(bars.single(0.5, 4, None)) == "██··"
    assert strips.text(bars.single(0.5, 4, 0)) == "▀▀··"
    assert strips.text(bars.single(0.5, 4, 1)) == "▄▄··"


@pytest.mark.parametrize(
    ("hz", "ceiling", "text"),
    [(2e9, 4e9, "━━━━    ┃"), (2.25e9, 4e9, "━━━━╸   ┃"), (4e9, 4e9, "━━━━━━━━┃"),
     (2e9, NAN, "━━━━     "), (NAN, 4e9, "        ┃")],
)  # fmt: skip
def test_a_clock_is_drawn_against_its_ceiling(hz: float, ceiling: float, text: str) -> None:
    assert strips.text(bars.clock(hz, ceiling, 4e9, 9, "clock")) == text


def test_history_ends_now_and_leaves_gaps() -> None:
    runs = bars.history([0.0, NAN, 1.0], 5, 0, 1, ascii_=False)
    assert strips.text(runs) == "  ▁ █"


def test_a_tall_history_fills_from_below() -> None:
    graph = [strips.text(bars.history([0.25, 0.75, 1.0], 3, y, 2, ascii_=False)) for y in (0, 1)]
    assert graph == [" ▄█", "▄██"]


# --- rows


def test_a_core_tells_its_states_loads_and_clock() -> None:
    m = Machine(cores=2, does={0: Does(1.0), 2: Does(0.5, alone=0.0)})
    text = lines(picture(m, 80))[0].split()
    bar = text.pop(2)
    assert text == ["0", "0,2", "100.0", "50.0", "3.00▼", "25.0", "0.00"]
    assert bar.lstrip(theme.BOTH).strip(theme.LP0) == ""
    assert bar.count(theme.BOTH) == pytest.approx(len(bar) / 2, abs=1)


def test_nothing_moves_when_values_change() -> None:
    low = Machine(cores=4, does={cpu: Does(0.001, 0.8e9, 0.01, 0.0) for cpu in range(8)})
    high = Machine(cores=4, does={cpu: Does(1.0, 3.2e9, 9.99, 1.0) for cpu in range(8)})
    for width in (80, 100, 120, 160, 240):
        a, b = picture(low, width), picture(high, width)
        for column_a, column_b in zip(a.columns, b.columns, strict=True):
            assert column_a == column_b
        assert {len(text) for text in lines(a) + lines(b)} == {width - 1}


def test_columns_are_shed_in_their_order() -> None:
    m = Machine()
    kept = [
        {c.key for c in picture(m, width, records=tasks(["a"])).columns}
        for width in range(200, 60, -1)
    ]
    order = ["who", "net", "kernel", "ceiling", "ipc"]
    gone = [next(i for i, there in enumerate(kept) if key not in there) for key in order]
    assert gone == sorted(gone)
    assert kept[120] == {"core", "cpus", "bar", "util", "busy", "idle", "involuntary"}  # at 80


@pytest.mark.parametrize("width", [80, 120, 160, 240])
def test_titles_stand_over_their_columns(width: int) -> None:
    p = picture(Machine(), width, records=tasks(["a"]))
    title = layout.titles(p.columns)
    assert len(title) == width - 2  # a mark before, the scrollbar after
    at = 0
    for column in p.columns:
        part = title[at : at + column.width]
        assert part.strip() == column.title.strip()
        at += column.width


def test_one_core_below_the_others_reddens_a_whole_package_does_not() -> None:
    one = Machine(cores=4, does={2: Does(0.9, 2.4e9), 6: Does(0.9, 2.4e9)})
    p = picture(one)
    assert keys(p, 2, "2.40") == {"alarm"}
    assert keys(p, 2, theme.DROPPED) == {"alarm"}
    assert keys(p, 1, "3.00 ") <= {"text"}
    every = Machine(cores=4, does={cpu: Does(0.9, 2.4e9) for cpu in range(8)})
    p = picture(every)
    assert keys(p, 2, "2.40") == {"text"}
    assert keys(p, 2, theme.DROPPED) == {"text"}
    told = heading(p, Line("package", 0), 120)
    assert ("2.40", "alarm") in told
    assert theme.DROPPED in strips.text(told)


def test_a_sleeping_core_has_no_drop() -> None:
    p = picture(Machine(does={0: Does(0.02, 1.2e9), 4: Does(0.0)}))
    assert theme.DROPPED not in lines(p)[0]


def test_involuntary_halts_are_those_of_the_worse_sibling_and_stand_out() -> None:
    p = picture(Machine(does={0: Does(0.9, involuntary=0.02)}))
    assert keys(p, 0, "2.00") == {"warn"}
    assert keys(p, 1, "0.00") == {"dim"}


def test_unknown_is_said_not_drawn_as_zero() -> None:
    p = picture(Machine(does={0: Does(0.0), 4: Does(0.0)}))
    assert keys(p, 0, theme.MISSING) == {"faint"}  # no clock where nothing ran


def test_a_source_without_split_shows_ranges() -> None:
    p = picture(Machine(split=False, does={0: Does(0.75), 4: Does(0.75)}))
    bar = lines(p)[0].split()[2]
    assert set(bar) == {theme.BOTH, theme.UNKNOWN}
    assert bar.count(theme.BOTH) == pytest.approx(len(bar) / 2, abs=1)


def test_a_suspect_value_is_marked() -> None:
    m = Machine()
    session, _ = seen(m)
    m.broken = {1}
    for seq in range(6, 9):
        session.apply(m.frame(seq))
    interval = session.take()
    places = Places(session)
    sheet = Reader(session, places).read(interval)
    known = layout.known(session, places, who=False, steal=False)
    p = Picture(places, sheet, layout.layout(known, 120))
    assert theme.SUSPECT in strips.text(row(p, 1))
    assert theme.SUSPECT not in strips.text(row(p, 0))
    assert keys(p, 1, theme.SUSPECT) == {"dim"}


def test_more_than_two_threads_tell_what_is_known() -> None:
    p = picture(Machine(cores=2, threads=4))
    assert [c.title for c in p.columns if c.key == "util"] == ["lp0 %", "lp1 %", "lp2 %", "lp3 %"]
    p = picture(Machine(cores=2, threads=8))
    assert [c.title for c in p.columns if c.key == "util"] == ["util %"]
    assert "50.0" in lines(p)[0]


# --- a guest


def test_a_guest_has_a_row_a_cpu_and_no_column_of_dashes() -> None:
    p = picture(guest({0: Does(0.5, system=0.25, steal=0.25)}), 160)
    assert [c.key for c in p.columns] == [
        "core", "util", "use", "idle", "steal", "user", "system", "iowait", "history",
    ]  # fmt: skip
    text = lines(p)[0]
    assert theme.MISSING not in text
    number, util, bar = text.split()[:3]
    assert (number, util) == ("0", "50.0")
    assert [bar.count(shape) for shape in "█▓╳·"] == pytest.approx([len(bar) / 4] * 4, abs=1)
    assert keys(p, 0, "25.0") >= {"warn"}


def test_a_guest_is_told_once_what_it_cannot_know() -> None:
    session, interval = seen(guest())
    told = strips.text(alert.line(session, interval, Status(0), 160))
    assert told.count("clock") == 1
    assert "IPC" in told
    assert "clock" not in strips.text(machine_line.numbers(session, interval, 160))


# --- the head


def test_the_machine_in_numbers_fits_and_sheds() -> None:
    session, interval = seen(Machine())
    wide = strips.text(machine_line.numbers(session, interval, 160))
    assert "util  50.0 %" in wide
    assert "busy 3.00 of 3.20 GHz" in wide
    assert "IPC 1.25" in wide
    narrow = strips.text(machine_line.numbers(session, interval, 40))
    assert "util  50.0 %" in narrow
    assert len(narrow) <= 40


@pytest.mark.parametrize("width", [40, 80, 120, 160, 240])
def test_the_machines_bar_is_as_wide_as_the_screen(width: int) -> None:
    session, interval = seen(Machine())
    assert strips.width(machine_line.bar(session, interval, width)) == width


def test_more_than_two_threads_have_a_bar_of_any_and_neither() -> None:
    session, interval = seen(Machine(cores=2, threads=4))
    interval.split.states[:, 0] = 0.25
    runs = machine_line.bar(session, interval, 80)
    text = strips.text(runs)
    assert "any  75  neither  25 %   2.00 of 4 threads active" in text
    assert strips.width(runs) == 80
    bar = text[6 : text.index("  any")]
    assert bar.count(theme.UNKNOWN) == pytest.approx(0.75 * len(bar), abs=1)
    assert set(bar) == {theme.UNKNOWN, theme.NEITHER}


def test_of_more_than_two_threads_that_nothing_counts_neither_is_a_range() -> None:
    session, interval = seen(Machine(cores=2, threads=4, does={i: Does(0.2) for i in range(8)}))
    for width in (40, 80, 160):
        runs = machine_line.bar(session, interval, width)
        assert strips.width(runs) == width
    assert "neither  20–80  %   0.80 of 4 threads active" in strips.text(runs)


@pytest.mark.parametrize("width", [80, 120, 160, 240])
def test_who_and_what_and_at_what_cost(width: int) -> None:
    session, interval = seen(Machine())
    text = strips.text(top.identity(session, interval, Status(500_000_000, own=0.021), width))
    assert len(text) == width
    assert " perftop  h " in text
    assert "own  2.1 %" in text
    assert "4 cores / 8 CPUs" in text


def test_a_dead_probe_is_the_worst_there_is() -> None:
    session, interval = seen(Machine())
    told = alert.line(session, interval, Status(0, failed="the probe ended by signal 9"), 80)
    assert told[0] == (" ▼ the probe ended by signal 9", "alarm")
    assert "q quits" in strips.text(told)


@pytest.mark.parametrize(
    ("length", "end"),
    [(41, " · these are the last numbers · q quits "), (65, " · q quits "), (75, "")],
)
def test_of_a_dead_probe_the_reason_is_what_stays(length: int, end: str) -> None:
    session, interval = seen(Machine())
    status = Status(0, failed="the probe ended: ".ljust(length - 4, "x"))
    told = alert.line(session, interval, status, 80)
    assert strips.text(told) == f" ▼ {status.failed}{end}"
    assert strips.width(alert.line(session, interval, status, 30)) == 30


def test_a_warning_is_told_while_it_is_new_and_nothing_is_worse() -> None:
    m = Machine(ceiling_hz=3.0e9)
    session, interval = seen(m)

    def told() -> list[strips.Run]:
        return alert.line(session, interval, Status(0), 80)

    assert told() == []
    at_ns = session.now_ns
    session.apply(Note("warning", at_ns, data={"text": "the clock\x1b was set"}))
    assert told() == [(" ! the clock? was set", "warn")]
    session.detector.hotplug(3, at_ns, online=False)  # no harm: the warning goes before it
    assert told() == [(" ! the clock? was set", "warn")]
    session.detector.running.append(Episode("throttle", [1], at_ns))
    assert "throttle" in strips.text(told())
    session.detector.running.pop()
    session.now_ns = at_ns + alert.NEW_NS
    assert "offline" in strips.text(told())


def test_of_a_past_moment_it_is_told_what_went_on_then() -> None:
    session, interval = seen(Machine(ceiling_hz=3.0e9))
    then_ns = interval.time_ns
    session.ended.append(Episode("throttle", [1], then_ns - 2 * 10**9, then_ns + 1))
    session.detector.running.append(Episode("steal", [2], then_ns + 1))
    session.apply(Note("warning", then_ns + 1, data={"text": "the clock was set"}))
    session.now_ns = then_ns + 60 * 10**9

    def told(status: Status) -> str:
        return strips.text(alert.line(session, interval, status, 160))

    assert told(Status(0)).startswith(" ╳ CPU 2 steal 59.9 s")
    assert told(Status(0, paused=interval.time)).startswith(" ◆ CPU 1 throttle 2.0 s")
    session.ended[:] = [Episode("throttle", [1], then_ns - 10**9, then_ns + 3 * 10**9)]
    # what it rests on is of all of it
    assert told(Status(0, paused=interval.time)).startswith(" ◆ CPU 1 throttle 1.0 s of 4.0 s")
    session.ended.clear()
    assert told(Status(0, paused=interval.time)) == ""
    assert "last numbers" not in told(Status(0, paused=interval.time, failed="it ended"))


def test_the_moment_does_not_take_the_place_of_costs_and_what_is_missed_goes_last() -> None:
    session, interval = seen(Machine())
    session.late = 3
    status = Status(500_000_000, own=0.021, paused=interval.time)
    text = strips.text(top.identity(session, interval, status, 120))
    assert "PAUSED" in text
    assert "own  2.1 %  late 3  lost 0" in text


def test_a_cause_is_told_once() -> None:
    counts = {"ref ran backwards": 3, "steal too": 1}
    assert evidence("ref ran backwards", counts) == "steal too: 1"
    session, interval = seen(Machine(ceiling_hz=3.0e9))
    session.detector.suspects({1: set(counts)}, session.now_ns, 0)
    text = strips.text(alert.line(session, interval, Status(0), 160))
    assert text.endswith("  ref ran backwards · steal too: 1")


def test_text_from_elsewhere_cannot_reach_the_terminal() -> None:
    assert strips.foreign("a\x1b[31m\nb") == "a?[31m?b"
    assert strips.foreign("日本") == "??"
    p = picture(Machine(), records=tasks(["\x1b]0;owned\x07"]))
    assert "\x1b" not in "".join(lines(p))


def test_every_shape_has_a_plain_stand_in_as_wide() -> None:
    p = picture(Machine(does={0: Does(1.0, 2.4e9), 1: Does(0.3)}), records=tasks(["Ünï"]))
    for text in [*lines(p), strips.text(heading(p, Line("package", 0), 100))]:
        assert theme.plain(text).isascii()
        assert len(theme.plain(text)) == len(text)
    assert theme.plain("█▀▄·▒") == "#',.?"


def test_themes_keep_the_order_of_luminance() -> None:
    for dark in (True, False):
        styles = theme.styles("perftop-dark" if dark else "perftop-light")
        colors = [styles[f"heat{i}"].color for i in range(theme.HEAT)]
        light = [
            0.2126 * t.red + 0.7152 * t.green + 0.0722 * t.blue
            for t in (c.get_truecolor() for c in colors if c is not None)
        ]
        assert light == sorted(light, reverse=not dark)


@pytest.mark.parametrize(
    ("width", "end"),
    [(80, "clock, IPC, halts unknown · perftop doctor"),
     (90, "kernel share unknown · perftop doctor"), (160, f"unknown · {FIX}")],
)  # fmt: skip
def test_what_is_missing_is_told_whole_at_any_width(width: int, end: str) -> None:
    machine = guest()
    missing = [replace(m, fix=FIX) for m in machine.hello.missing]
    machine.hello = replace(machine.hello, missing=missing)
    session, interval = seen(machine)
    told = strips.text(alert.line(session, interval, Status(0), width))
    assert len(told) <= width
    assert told.endswith(end)

"""Rows of the overview as text: no app is running here."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import Does, Machine, doubting, guest, seen, tasks

from perftop.base.text import plain
from perftop.draw import strips, theme
from perftop.tui.overview import layout
from perftop.tui.overview.headings import heading
from perftop.tui.overview.lines import Picture, row
from perftop.tui.shared.places import Line, Places
from perftop.tui.shared.sheet import Reader


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
    order = ["who", "net_hz", "kernel_cycles", "turbo_ceiling_hz", "ipc"]
    gone = [next(i for i, there in enumerate(kept) if key not in there) for key in order]
    assert gone == sorted(gone)
    assert kept[120] == {"core", "cpus", "bar", "util", "busy_hz", "idle", "involuntary"}  # at 80


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


@pytest.mark.parametrize(
    ("key", "marked"),
    [("instructions", ["≁1.25"]), ("cycles", ["≁3.00", "≁1.25", "≁10.0"]), ("one_thread", [])],
)
def test_only_numbers_of_a_suspect_counter_are_marked(key: str, marked: list[str]) -> None:
    session, interval = seen(Machine())
    interval = doubting(interval, 1, key)
    places = Places(session)
    known = layout.known(session, places, who=False, steal=False)
    slots = [slot for slot in layout.layout(known, 200) if slot.key != "net_hz"]
    p = Picture(places, Reader(session, places).read(interval), slots)
    assert [word for word in strips.text(row(p, 1)).split() if "≁" in word] == marked
    assert theme.SUSPECT not in strips.text(row(p, 0))
    assert len(strips.text(row(p, 1))) == len(strips.text(row(p, 0)))


def test_more_than_two_threads_tell_what_is_known() -> None:
    p = picture(Machine(cores=2, threads=4))
    assert [c.title for c in p.columns if c.key == "util"] == ["lp0 %", "lp1 %", "lp2 %", "lp3 %"]
    p = picture(Machine(cores=2, threads=8))
    assert [c.title for c in p.columns if c.key == "util"] == ["util %"]
    assert "50.0" in lines(p)[0]


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


def test_text_from_elsewhere_cannot_reach_the_terminal() -> None:
    assert strips.foreign("a\x1b[31m\nb") == "a?[31m?b"
    assert strips.foreign("日本") == "??"
    p = picture(Machine(), records=tasks(["\x1b]0;owned\x07"]))
    assert "\x1b" not in "".join(lines(p))


def test_every_shape_has_a_plain_stand_in_as_wide() -> None:
    p = picture(Machine(does={0: Does(1.0, 2.4e9), 1: Does(0.3)}), records=tasks(["Ünï"]))
    for text in [*lines(p), strips.text(heading(p, Line("package", 0), 100))]:
        assert plain(text).isascii()
        assert len(plain(text)) == len(text)
    assert plain("█▀▄·▒") == "#',.?"

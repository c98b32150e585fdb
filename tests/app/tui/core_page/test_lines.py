"""What the page of a core says in numbers and words."""

from __future__ import annotations

import dataclasses

import pytest
import simulated
from cores import SECOND, busy, charts, line, number_column, page, played_core, runs, text
from fakes import NO_PMU, CpuLoad, Machine, tasks, with_doubt
from played import session_of

from perfprobe.wire import Missing, Rate
from perftop.draw import strips, theme
from perftop.draw.columns import DOUBTED_SIGN, Run
from perftop.model.kinds import Episode
from perftop.session.history import History
from perftop.session.session import Session
from perftop.tui.core_page import numbers
from perftop.tui.core_page.numbers import TRAFFIC, Panel, page_layout
from perftop.tui.shared.choice import Units
from perftop.tui.shared.places import Places

# --- numbers


def test_clocks_in_the_units_that_are_chosen() -> None:
    machine = Machine(cores=1, changes={"base_hz": Rate(2e9, "made")})
    session, interval = played_core(machine)

    def shown(units: Units) -> tuple[str, str]:
        result = text(session, interval, units=units)
        return line(result, "─ clock").split()[-1], next(
            t[:12].strip() for t in result[1:] if t[:12].strip()
        )

    assert shown("GHz") == ("3.00▼", "3.20 GHz")
    assert shown("MHz") == ("3000▼", "3200 MHz")
    assert shown("base") == ("1.50▼", "1.60 ×base")


def test_without_a_base_clock_there_are_no_multiples_of_it() -> None:
    assert line(page(Machine(cores=1), units="base"), "─ clock").split()[-1] == "3.00▼"


@pytest.mark.parametrize(
    ("key", "marked"), [("instructions", {"IPC"}), ("one_thread", {"neither", "both"})]
)
def test_only_numbers_of_a_suspect_counter_are_marked(key: str, marked: set[str]) -> None:
    session, interval = played_core(Machine(cores=1))
    result = text(session, with_doubt(interval, 1, key), size=(120, 45))
    labels = ("busy %", "clock", "IPC", "krn %", "neither", "both")
    assert {label for label in labels if DOUBTED_SIGN in line(result, label)} == marked


# --- words


def test_running_tasks_are_named_with_their_user() -> None:
    records = tasks(["lmp", "evil\x1b[31m\n漢"]) | {
        "details": {"4000": {"user": "ada", "command": 7}}
    }
    text = page(Machine(cores=1), records=records)[1]
    assert text.startswith(" lp0 lmp:4000 90 %  ada")
    assert "lp1 evil?[31m??:4001" in text


@pytest.mark.parametrize("record", [None, [], ["x"], {"a": 1}, [4000, "a", float("nan")], 7])
def test_malformed_task_records_are_drawn(record: object) -> None:
    page(Machine(cores=1), records={"tasks": {"0": record, "1": [1, 2, "3"]}, "details": {"1": 2}})


def test_episodes_are_shown_with_their_evidence() -> None:
    session, interval = played_core(Machine(cores=2, ceiling_hz=3.0e9))
    session.detector.running += [
        Episode("suspect", [0], 3 * SECOND, cause="37 GHz"),
        Episode("turbo-drop", [0, 2], SECOND, cause="power-pl1", evidence={"watts": "150 of 150"}),
        Episode("steal", [1], SECOND, cause="elsewhere"),
        Episode("smi", [0], 9 * SECOND, cause="yet to come"),
    ]
    session.ended[:] = [
        Episode("license", [2], -9 * SECOND, -8 * SECOND, cause="long ago"),
        Episode("license", [2], SECOND, 2 * SECOND, cause="level 2"),
    ]
    result = [strips.text(line).rstrip() for line in runs(session, interval, size=(120, 45))][-3:]
    assert result == [
        " ▼ turbo-drop  since 22:13:21.0  4.0 s  power limit PL1 · watts: 150 of 150",
        " ≁ suspect  since 22:13:23.0  2.0 s  37 GHz",
        " ◊ license  22:13:21.0  1.0 s  level 2",
    ]


def test_stolen_time_is_shown_once() -> None:
    session, interval = played_core(Machine(cores=1, ceiling_hz=3.0e9))
    session.detector.running += [
        Episode("steal", [0], SECOND, None, 0.2, "hypervisor"),
        Episode("neighbour", [0], SECOND, None, 0.2, "hypervisor"),
    ]
    results = [strips.text(line) for line in runs(session, interval, size=(120, 45))]
    assert [line.split()[1] for line in results if line.startswith(" ╳")] == ["neighbour"]


def test_only_the_number_that_an_episode_makes_worse_is_red_and_only_on_its_cpu() -> None:
    session, interval = played_core(busy(Machine(cores=1), 1.0, 1.0))
    session.detector.running[:] = [Episode("neighbour", [0], SECOND, None, 0.3, "sibling")]

    def red(label: str) -> list[bool]:
        result = next(x for x in runs(session, interval, cpu=0) if label in strips.text(x))
        at = next(i for i, (text, _) in enumerate(result) if text.startswith(label))
        return [key == "alarm" for text, key in result[at + 1 :] if "." in text]

    assert red("IPC") == [True, False]
    assert red("clock") == [False, False]


def test_episodes_without_room_are_counted() -> None:
    session, interval = played_core(Machine(cores=1, ceiling_hz=3.0e9))
    session.detector.running += [Episode("smi", [0], i * SECOND, cause="x" * 90) for i in range(3)]
    last = strips.text(runs(session, interval, size=(80, 19))[-1])
    assert len(last) == 80
    assert last.startswith(" ! smi")
    assert last.endswith("…  and 3 more ")


def test_a_guest_has_its_panels_and_one_line_for_what_it_lacks() -> None:
    changes = {"virtualisation": "kvm", "missing": NO_PMU}
    machine = Machine(cores=1, threads=1, counted=False, changes=changes,
                      does={0: CpuLoad(0.5, system=0.25, steal=0.25)})  # fmt: skip
    session, interval = played_core(machine)
    drawn = number_column(charts(session, interval), "account")
    assert [drawn.count(shape) / len(drawn) for shape in "█▓╳"] == pytest.approx(
        [0.25] * 3, abs=0.05
    )
    assert set(drawn) <= set(theme.LEVELS + "╳▓")
    result = text(session, interval, size=(120, 45))
    assert not any(word in text for word in ("─ clock", "IPC ", "invol") for text in result[:-3])
    for number, value in (("busy %", "50.0"), ("idle %", "25.0"), ("steal %", "25.0")):
        (shown,) = (text for text in result if number in text)
        assert shown.split()[-1] == value
    labels = " ".join(text[: numbers.LABEL_WIDTH] for text in result)
    assert "time" in labels
    assert "busy" not in labels
    assert "steal" not in labels
    assert any(
        "clock, IPC, halts, kernel cycles unknown: no core PMU in this guest" in text
        for text in result[-3:]
    )


def test_a_core_that_lacks_what_others_have_shows_why() -> None:
    why = "E cores have no such counter"
    missing = [Missing("cycles", why, None, [1]), Missing("tasks", why, None, [1])]
    machine = Machine(cores=2, threads=1, changes={"missing": missing})
    counters = [
        dataclasses.replace(counter, cpus=[0]) if counter.key == "cycles" else counter
        for counter in machine.hello.blocks[0].counters
    ]
    machine.hello.blocks[0].counters[:] = counters
    session, interval = played_core(machine)
    result = text(session, interval, cpu=1)
    assert (
        "clock, IPC, kernel cycles, task data unknown: E cores have no such counter" in result[-2]
    )
    assert not any("─ clock " in text for text in result)
    assert "E cores" not in "".join(strips.text(line) for line in runs(session, interval, cpu=0))


def test_a_page_without_room_for_words_has_none() -> None:
    result = page(Machine(cores=1, broken={0}), size=(60, 6))
    assert len(result) <= 6
    assert DOUBTED_SIGN not in result[-1]


# --- numbers beside the charts


EVENTS = "branches,branch-misses,cache-misses,cache-references,page-faults"
"""One more than there are counters for; page-faults need none."""


def beside(key: str) -> tuple[numbers.CoreMoment, list[Run]]:
    """The first number of a panel of core 0."""
    hello, messages = simulated.messages_lasting("sim:memory,cpus=2", 12, events=EVENTS)
    session = session_of(Session(hello, History(hello)), messages)
    interval = session.interval_at(session.now_ns, 500_000_000)
    assert interval is not None
    place = Places(session).places[0]
    result = page_layout(numbers.capabilities(session, place, tasks=False), 160, 40)
    moment = numbers.core_moment(session, interval, place, result, "GHz", 0)
    return moment, numbers.panel_numbers(moment, Panel(key, 1, 3))[0]


def test_an_event_that_took_turns_has_its_share_and_the_sign_of_an_estimate() -> None:
    moment, runs = beside("e.branches")
    share = moment.interval.shares["e.branches"][0]
    assert share < 0.99
    assert f" {100 * share:.0f}%" in strips.text(runs)
    assert "≈" in strips.text(runs)
    assert strips.width(runs) == moment.size


def test_one_that_was_counted_all_the_time_has_neither() -> None:
    moment, runs = beside("e.page-faults")
    assert "≈" not in strips.text(runs)
    assert "%" not in strips.text(runs)
    assert strips.width(runs) == moment.size


def test_traffic_is_that_of_the_package() -> None:
    moment, runs = beside(TRAFFIC)
    moved = sum(float(moment.interval.packages[f"memory_{what}_bytes_per_s"][0])
                for what in ("read", "write"))  # fmt: skip
    assert f"{moved / 1e9:.1f}" in strips.text(runs)

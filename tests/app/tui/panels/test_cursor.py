"""The panel at the cursor: numbers, tasks and the episode of the shown moment, beside now."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from fakes import CpuLoad, Machine, guest, queue_records
from played_apps import running_app
from sessions import session_of

from perftop.draw import strips
from perftop.model.kinds import Episode
from perftop.session.history import History
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.core_numbers import core_panel
from perftop.tui.shared.panels import episode_panel
from perftop.tui.shared.row_numbers import ViewSettings
from perftop.tui.shared.verdict import verdict_at

S = 1_000_000_000
STEAL = Episode("steal", [0], S // 2, 3 * S // 2, 0.138, "hypervisor", {"usually_share": 0.018})
HOG_A = queue_records(cpu0=[(11, "hogA", 0.8, 0.4)])
HOG_B = queue_records(cpu0=[(12, "hogB", 0.2, 0.0)])


@pytest.fixture(scope="module")
def changed_guest() -> tuple[Session, Interval]:
    """A guest whose CPU 0 runs hogA, 80 % busy, for 2 s and then hogB, 20 % busy, for 4 s; its last
    interval has 0.5 s."""
    machine = guest({0: CpuLoad(0.8), 1: CpuLoad(0.5)})
    session = Session(machine.hello, History(machine.hello))
    for seq in range(61):
        if seq == 21:
            machine.cpu(0).util = 0.2
        records = (HOG_A if seq <= 20 else HOG_B) if seq % 10 == 0 else {}
        session_of(session, [machine.frame(seq, records=records)])
        if seq == 55:
            session.take_interval()
    session.ended.append(STEAL)
    return session, session.take_interval()


def panel_rows(
    session: Session, interval: Interval, settings: ViewSettings, width: int = 60, height: int = 12
) -> dict[str, list[str]]:
    """Returns the words after the name of each line, by name; checks the size of the panel."""
    rows = dict[str, list[str]]()
    lines = core_panel(session, interval, settings, width, height)
    for line in (strips.text(runs).rstrip() for runs, _ in lines):
        assert len(line) <= width
        rows[line[:22].strip(" ╳")] = line[22:].split()
    assert len(lines) <= height
    return rows


def settings_at(
    session: Session, end_ns: int, span_ns: int = S // 2, now: Interval | None = None
) -> tuple[Interval, ViewSettings]:
    """Returns the interval with this end and length, and the settings with the cursor at it."""
    interval = session.interval_at(end_ns, span_ns)
    assert interval is not None
    return interval, ViewSettings(cpu=0, cursor_ns=interval.time_ns, now=now)


def test_the_numbers_and_tasks_of_the_moment_are_beside_those_of_now(
    changed_guest: tuple[Session, Interval],
) -> None:
    session, now = changed_guest
    interval, settings = settings_at(session, 15 * S // 10, now=now)
    rows = panel_rows(session, interval, settings)
    assert rows["CPU"] == ["0", "then", "0", "now", "1", "then", "1", "now"]
    assert rows["busy"] == ["80.0", "20.0", "50.0", "50.0", "%"]
    assert rows["hogA 11"] == ["80.0", "·", "·", "·", "%"]
    assert rows["hogB 12"] == ["·", "20.0", "·", "·", "%"]
    assert rows["tasks waiting"] == ["0.4", "·", "·", "·"]
    (episode,) = (f"{name} {' '.join(rest)}" for name, rest in rows.items() if "hyperv" in name)
    assert "took 13.8 %" in episode
    assert list(rows).index("tasks waiting") < list(rows).index("hogA 11")


def test_the_numbers_of_now_have_the_length_of_the_selected_range(
    changed_guest: tuple[Session, Interval],
) -> None:
    """Now, 5 s have a mean of 0.9 s of hogA and 4.1 s of hogB."""
    session, now = changed_guest
    interval, settings = settings_at(session, 5 * S, 5 * S, now)
    settings.range_ns = 0, 5 * S
    title, *_ = (strips.text(runs) for runs, _ in core_panel(session, interval, settings, 60, 9))
    assert title.startswith("in A  5.0 s ─")
    then, at_now = panel_rows(session, interval, settings)["busy"][:2]
    assert float(then) == pytest.approx(100 * (2 * 0.8 + 3 * 0.2) / 5, abs=1.3)
    assert float(at_now) == pytest.approx(100 * (1 * 0.8 + 4 * 0.2) / 5, abs=1.3)


@pytest.mark.parametrize(("width", "range_ns", "name", "columns"), [
    (60, None, "CPU", ["0", "then", "0", "now", "1", "then", "1", "now"]),
    (60, (0, 5 * S), "CPU", ["0", "A", "0", "now", "1", "A", "1", "now"]),
    (53, None, "CPU 0", ["then", "now"]), (36, (0, 5 * S), "CPU 0", ["A", "now"]),
])  # fmt: skip
def test_the_headings_name_the_span_of_each_number(
    changed_guest: tuple[Session, Interval],
    width: int,
    range_ns: tuple[int, int] | None,
    name: str,
    columns: list[str],
) -> None:
    """A narrow panel has only the selected CPU."""
    session, now = changed_guest
    interval, settings = settings_at(session, 5 * S, now=now)
    settings.range_ns = range_ns
    assert panel_rows(session, interval, settings, width)[name] == columns


@pytest.mark.parametrize(("height", "names"), [
    (4, ["at the cursor  22:13:2", "CPU", "busy", "tasks waiting"]),
    (6, ["at the cursor  22:13:2", "CPU", "22:13:20  The hyperv", "busy", "user", "tasks waiting"]),
])  # fmt: skip
def test_a_low_panel_has_numbers_and_tasks(
    changed_guest: tuple[Session, Interval], height: int, names: list[str]
) -> None:
    session, now = changed_guest
    interval, settings = settings_at(session, 15 * S // 10, now=now)
    assert list(panel_rows(session, interval, settings, 60, height)) == names


def test_an_episode_at_the_cursor_is_described_as_a_whole(
    changed_guest: tuple[Session, Interval],
) -> None:
    """Its evidence can name tasks that started later, and its depth is that of its whole length."""
    session, _ = changed_guest
    interval, settings = settings_at(session, S)  # it began 0.5 s earlier and ends 0.5 s later
    lines = [strips.text(runs) for runs, _ in episode_panel(session, interval, settings, 80, 8)]
    (line,) = (line for line in lines if "22:13:20" in line)
    assert "The hypervisor took" in line
    assert line.endswith("1.0 s")


def test_in_a_recording_there_is_no_now(changed_guest: tuple[Session, Interval]) -> None:
    session, _ = changed_guest
    rows = panel_rows(session, *settings_at(session, 15 * S // 10))
    assert rows[""] == ["CPU", "0", "CPU", "1"]
    assert rows["busy"] == ["80.0", "50.0", "%"]


async def test_while_paused_now_moves_once_a_second_and_ends_with_the_pause() -> None:
    async with running_app(Machine(loads={0: CpuLoad(0.5)})) as run:

        def now_ns() -> int | None:
            now = run.monitor.settings.now
            return None if now is None else now.time_ns

        await run.send_intervals(10)
        assert now_ns() is None
        run.source.step(-3)
        assert run.source.newest_interval is not None
        assert now_ns() == run.source.newest_interval.time_ns
        shown, times_ns = run.interval, list[int]()
        for _ in range(20):
            await run.send_intervals(1)
            times_ns.append(now_ns() or 0)
        assert run.interval is shown
        steps_ns = {b - a for a, b in pairwise(dict.fromkeys(times_ns))}
        assert S <= min(steps_ns) <= max(steps_ns) <= 2 * S
        run.source.toggle_pause()
        assert now_ns() is None


@pytest.mark.parametrize(("util", "waits", "piece"), [
    (0.5, 0.5, "now: 47.6 % lost"), (0.5, 0.0, "now: nothing lost"),
])  # fmt: skip
def test_the_verdict_on_a_past_moment_says_what_is_lost_now(
    util: float, waits: float, piece: str
) -> None:
    machine = guest({0: CpuLoad(util), 1: CpuLoad(0.0)})
    records = queue_records(cpu0=[(11, "a", util / 2, waits / 2), (12, "b", util / 2, waits / 2)])
    session = Session(machine.hello, History(machine.hello))
    session.run.track_losses()
    session_of(session, machine.messages(200, lambda _: records)[1:])
    now = session.take_interval()
    live = verdict_at(session, now)
    past_interval = session.interval_at(12 * S, S // 2)
    assert live is not None
    assert past_interval is not None
    past = verdict_at(session, past_interval)
    assert past is not None
    assert verdict_at(session, now) is live, "the verdict on the past has not replaced it"
    assert piece in past.with_current_state(live).evidence
    assert past.with_current_state(replace(live, report=None)) == past

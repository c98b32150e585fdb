"""The lines above a view: header, alert, and metrics of the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from fakes import CpuLoad, Machine, guest, observe

from perfprobe.wire import Note
from perftop.draw import strips
from perftop.draw.columns import Run as TextRun
from perftop.model.kinds import Episode
from perftop.process.link import LinkState
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.frame import machine as machine_line
from perftop.tui.frame import top
from perftop.tui.frame.top import AppStatus, PlaybackState, alert_line
from perftop.tui.shared.verdict import CALM_SIGN, Verdict

STATUS = AppStatus(500_000_000, own_cpu_share=0.021)


def text(status: AppStatus = STATUS, width: int = 160) -> str:
    return strips.text(top.header_line(*observe(Machine()), status, width))


@pytest.mark.parametrize(("name", "short_name"), [
    ("Intel(R) Xeon(R) W-2225 CPU @ 4.10GHz", "Xeon W-2225"), ("AMD EPYC 7763 64-Core Processor",
     "AMD EPYC 7763"), ("AMD EPYC", "AMD EPYC"), ("", ""),
])  # fmt: skip
def test_a_model_name_is_shortened(name: str, short_name: str) -> None:
    assert top.short_model(name) == short_name


def test_a_large_skew_is_a_warning() -> None:
    session, interval = observe(Machine())
    styles = []
    for skew_s in (0.009, 0.011):
        runs = top.header_line(session, replace(interval, skew_s=skew_s), STATUS, 160)
        index = next(i for i, (part, _) in enumerate(runs) if "skew" in part)
        styles.append(runs[index + 1][1])
    assert styles == ["text", "warn"]


def test_the_cost_is_read_once_a_second_and_averaged_over_five() -> None:
    """After t seconds, the app has used t² / 10 and the probe t / 10 seconds of CPU time."""
    times = 0.0, 0.5, 1.25, 1.5, 5.0, 6.0
    app_cpu_s = iter(t**2 / 10 for t in times if t != 1.25)
    cost = top.CpuCost(lambda: next(app_cpu_s))
    shares = [cost.cpu_share(int(1e9 * t), t / 10) for t in times]
    assert shares == pytest.approx([nan, 0.15, 0.15, 0.25, 0.6, 0.85], nan_ok=True)


@pytest.mark.parametrize(("status", "style"), [(None, "clock"), (0, "text"), (7, "warn")])
def test_only_a_failed_command_is_a_warning(status: int | None, style: str) -> None:
    state = STATUS._replace(job_text=" make ", job_status=status)
    assert (" make ", style) in top.header_line(*observe(Machine()), state, 160)


def test_a_paused_screen_says_whether_sampling_continues() -> None:
    session, interval = observe(Machine())
    paused = STATUS._replace(paused_at=interval.time)
    states = (paused, True), (paused._replace(silent_s=4.0), False), (STATUS, False)
    for state, continues in (*states, (paused._replace(failure_text="gone"), False)):
        header = strips.text(top.header_line(session, interval, state, 200))
        assert ("sampling continues" in header) == continues


def test_states_remain_when_other_parts_are_dropped() -> None:
    session, interval = observe(Machine())
    session.late_samples = 3
    replay = PlaybackState(True, 1.0, (0, 10**10), None, is_over=False, damage=None)
    broken_link = LinkState("n7", 0.01, 4321.0, "n7: connection failed: refused", 12.3, 4.0)
    for state, word in (
        (STATUS._replace(paused_at=interval.time), "PAUSED"),
        (STATUS._replace(paused_at=interval.time, is_range=True), f", {interval.elapsed_s:.1f} s "),
        (STATUS._replace(replay=replay), "REPLAY"),
        (
            STATUS._replace(
                replay=replace(replay, recording_span_ns=(0, 10**14), indexed_share=0.5)
            ),
            " ×1 ",
        ),
        (STATUS._replace(replay=replace(replay, speed=inf)), " max "),
        (STATUS._replace(silent_s=4.0), "NO DATA"),
        (STATUS._replace(link=broken_link, silent_s=12.3), " NO LINK FOR 12 s "),
        (STATUS._replace(recording_text="3 MB"), "REC 3 MB"),
        (STATUS._replace(recording_text=""), "NOT RECORDING"),
        (STATUS._replace(failure_text="gone"), "DEAD"),
    ):
        for width in range(20, 300):
            header = strips.text(top.header_line(session, interval, state, width))
            assert len(header) <= max(width, 41)
            assert word in header or width < 41
        assert "dropped 0" in strips.text(top.header_line(session, interval, state, 120))
    assert "late 3" in strips.text(top.header_line(session, interval, STATUS, 160))


def test_the_connection_to_a_remote_machine_is_shown() -> None:
    link = LinkState("n7", 0.0123, 4321.0)
    assert "ssh 12.3 ms 4.3 kB/s" in text(STATUS._replace(link=link))
    unknown = STATUS._replace(link=replace(link, rtt_s=nan, remote_name="unix:/run/s"))
    assert "socket 4.3 kB/s" in text(unknown)
    assert "ms" not in text(unknown).partition("socket")[2].partition("kB/s")[0]


def drop_order(line: Callable[[int], str], words: Sequence[str], widths: range) -> list[str]:
    """Returns the words in the order in which they vanish from a line that becomes narrower."""
    dropped: list[str] = []
    assert all(word in line(widths[-1]) for word in words)
    for width in reversed(widths):
        dropped += [word for word in words if word not in line(width) and word not in dropped]
    return dropped


HEADER_WORDS = ["perftop", " h ", "4 cores", "ssh", "made,", "every", "own", "skew", "late",
                "dropped", "make", "REC", "PAUSED"]  # fmt: skip


def test_the_least_important_parts_of_the_header_are_dropped_first() -> None:
    session, interval = observe(Machine())
    session.late_samples = 3
    status = STATUS._replace(
        paused_at=interval.time, recording_text="3 MB", job_text=" make ",
        link=LinkState("n7", 0.0123, 4321.0),
    )  # fmt: skip
    assert drop_order(
        lambda width: strips.text(top.header_line(session, interval, status, width)),
        HEADER_WORDS, range(12, 250),
    ) == ["skew", "every", "late", "made,", "ssh", "own", "4 cores", "dropped", "REC", "make",
          " h ", "PAUSED"]  # fmt: skip


@pytest.mark.parametrize(("width", "gap", "has_words"), [
    (119, 2, False), (120, 3, False), (139, 3, False), (140, 3, True),
])  # fmt: skip
def test_wide_headers_have_wide_gaps_and_words(width: int, gap: int, has_words: bool) -> None:
    header = text(width=width)
    assert f"µs{' ' * gap}dropped" in header
    assert ("every 500 ms, sampled 100 ms" in header) is has_words
    assert ("· 500 ms" in header) is not has_words


@pytest.mark.parametrize(("height", "width", "names"), [
    (11, 160, "ha"), (12, 160, "han"), (23, 160, "han"), (24, 160, "haln."), (39, 160, "haln."),
    (40, 159, "haln."), (40, 160, "halnt."), (49, 160, "halnt."), (50, 160, "h.al.nt."),
    (59, 160, "h.al.nt."), (60, 160, "h.al.nttt."),
])  # fmt: skip
def test_lines_above_the_view_depend_on_the_size(height: int, width: int, names: str) -> None:
    """Header, alert, loss, numbers, history of tiles, and blank lines, by their letters."""
    letters = {"history": "t", "": "."}
    for has_tiles in (True, False):
        lines = top.top_line_names(
            height, width, has_states=False, has_tiles=has_tiles, has_alert=True
        )
        expected = names if has_tiles else names.replace("t", "")
        assert "".join(letters.get(name, name[:1]) for name in lines) == expected


def test_states_and_numbers_have_a_line_where_there_is_room() -> None:
    for height, has_alert, names in (
        (60, True, ["header", "", "alert", "loss", "", "numbers", "states", ""]),
        (12, True, ["header", "alert", "numbers", "states"]),
        (11, False, ["header", "numbers"]),
    ):
        lines = top.top_line_names(
            height, 160, has_states=True, has_tiles=True, has_alert=has_alert
        )
        assert [*lines] == names


# --- the top line, which reports the worst running episode


def alert_text(
    session: Session, interval: Interval | None, status: AppStatus, width: int = 160
) -> str:
    return strips.text(alert_line(session, interval, status, width)[0])


@pytest.mark.parametrize(("length", "end"), [
    (41, " · these are the last numbers · q quits "), (65, " · q quits "), (75, ""),
])  # fmt: skip
def test_the_reason_of_a_dead_probe_is_in_narrow_lines_too(length: int, end: str) -> None:
    session, interval = observe(Machine())
    status = AppStatus(0, failure_text="the probe ended: ".ljust(length - 4, "x"))
    runs = alert_line(session, interval, status, 80)[0]
    assert runs == [(f" ▼ {status.failure_text}", "alarm"), (end, "text")]
    assert len(alert_text(session, interval, status, 30)) == 30


def test_a_warning_is_shown_while_it_is_recent_and_nothing_is_worse() -> None:
    m = Machine(ceiling_hz=3.0e9)
    session, interval = observe(m)

    def alert_runs() -> list[TextRun]:
        return alert_line(session, interval, AppStatus(0), 80)[0]

    assert alert_runs() == []
    at_ns = session.now_ns
    session.apply(Note("warning", at_ns, data={"text": "the clock\x1b was set"}))
    assert alert_runs() == [(" ! the clock? was set", "warn")]
    session.now_ns = at_ns + top.WARNING_SHOWN_NS
    assert alert_runs() == []


def test_episodes_that_cost_little_precede_a_calm_verdict() -> None:
    session, interval = observe(Machine(ceiling_hz=3.0e9))
    calm = Verdict("Nothing is slowing this machine down", ("CPUs 5 % busy",), CALM_SIGN, 0.0)
    session.detector.apply_hotplug(3, interval.time_ns, online=False)
    steal = Episode("steal", [1], interval.time_ns - 2 * 10**9, depth=0.004, cause="hypervisor")
    session.detector.running.append(steal)
    session.now_ns = interval.time_ns + 4 * 10**8  # the time is within the next interval
    line, mood = alert_line(session, interval, AppStatus(0), 200, calm)
    assert mood == "calm"
    alert = strips.text(line)
    assert alert.startswith("  ╳ The hypervisor takes 0.4 % of CPU 1 for 2.0 s · ")
    assert "○ CPU 3 is offline" in alert
    session.detector.running.remove(steal)
    alert = strips.text(alert_line(session, interval, AppStatus(0), 200, calm)[0])
    assert alert.startswith("  ✓ Nothing is slowing this machine down · CPUs 5 % busy · ○ CPU 3")
    assert strips.text(alert_line(session, interval, AppStatus(0), 60, calm)[0]).count("·") == 1
    paused = AppStatus(0, paused_at=interval.time)
    then = replace(interval, time_ns=interval.time_ns - 3 * 10**9)
    assert "╳" not in strips.text(alert_line(session, then, paused, 200, calm)[0])


def test_a_broken_link_has_its_reason_and_the_next_try() -> None:
    session, interval = observe(Machine())
    link = LinkState("n7", 0.01, 0.0, "n7: connection failed: refused", 12.3, 4.2)
    runs = alert_line(session, interval, AppStatus(0, link=link), 160)[0]
    assert runs[0] == (" next try in 4 s · n7: connection failed: refused", "alarm")
    tried = AppStatus(0, link=replace(link, next_attempt_s=0.0))
    assert alert_text(session, interval, tried).startswith(" trying again · n7")


# --- the metrics of the machine and its smt states in one line of text


ALL = list(range(8))


@pytest.mark.parametrize(("kind", "cause", "number"), [
    ("turbo-drop", "power-pl1", "3.00"), ("neighbour", "sibling", "1.25"),
    ("neighbour", "package", "3.00"), ("involuntary-halt", "smm", "0.00"),
])  # fmt: skip
def test_the_metric_that_most_cpus_lose_is_red(kind: str, cause: str, number: str) -> None:
    session, interval = observe(Machine())

    def red_metrics(cpus: list[int]) -> list[str]:
        runs = machine_line.machine_line(
            session,
            interval,
            [Episode(kind, cpus, 0, None, 2e8 if kind == "turbo-drop" else 0.1, cause)],
            200,
        )
        return [part.strip() for part, key in runs if key == "alarm" and part.strip()]

    assert number in red_metrics(ALL)
    assert red_metrics(ALL[:1]) == []


MACHINE_NUMBERS = {
    "power_w": 120.0, "power_limit_w": 125.0, "temperature_c": 61.0, "power_dram_w": 12.0,
    "pressure_cpu": 0.05, "pressure_io": 0.01, "pressure_memory": 0.002, "memory_of_best": 0.4,
    "memory_read_bytes_per_s": 4e9, "memory_write_bytes_per_s": 2.5e9,
}  # fmt: skip


def test_the_least_important_numbers_of_the_machine_are_dropped_first() -> None:
    session, interval = observe(Machine())
    interval = replace(interval, machine=interval.machine | MACHINE_NUMBERS)

    def line(width: int) -> str:
        return strips.text(machine_line.machine_line(session, interval, [], width))

    words = ["busy", "clock", "net", "IPC", "halts", "involuntary", "kernel cycles", "power", "°C",
             "waits for", "mem", "dram"]  # fmt: skip
    order = ["dram", "waits for", "net", "mem", "°C", "kernel cycles", "power", "halts",
             "involuntary", "IPC", "clock", "busy"]  # fmt: skip
    assert drop_order(line, words, range(10, 260)) == order
    assert "waits for a CPU 5.0 a disk 1.0 memory 0.2 %" in line(260)
    assert "mem 4.0+2.5 GB/s, highest 16.2" in line(260)
    assert "power 120 of 125 W" in line(260)


@pytest.mark.parametrize(("watts", "style"), [(121.2, "text"), (121.25, "warn")])
def test_power_near_its_limit_is_highlighted(watts: float, style: str) -> None:
    """From 97 % of the limit."""
    (_, number, *_) = machine_line._power_runs(MACHINE_NUMBERS | {"power_w": watts})
    assert number == ("121", style)


TILE_TOPS = {"util": 1.0, "user": 1.0, "system": 1.0, "steal": 0.1, "pressure_cpu": 1.0,
             "pressure_io": 0.1, "pressure_memory": 0.1, "load_1": 1.0, "interrupts_hz": 1000.0,
             "context_switches_hz": 1000.0}  # fmt: skip


def test_the_least_important_tiles_are_dropped_first() -> None:
    def line(width: int) -> str:
        return strips.text(machine_line.tile_line(machine_line.tile_columns(TILE_TOPS, width)))

    words = ["busy", "user", "kernel", "steal", "a CPU", "disk", "memory", "load", "interrupts",
             "switches"]  # fmt: skip
    assert drop_order(line, words, range(110, 200)) == [
        "memory", "switches", "disk", "interrupts",
    ]  # fmt: skip
    short = ["busy", "steal", "waits", "load", "kernel"]
    assert drop_order(line, short, range(12, 110)) == ["kernel", "load", "waits", "steal", "busy"]


@pytest.mark.parametrize(("share", "char"), [(1.0, "█"), (0.5, "▄"), (0.001, "▁"), (0.0, " ")])
def test_the_history_of_each_tile_has_its_own_scale(share: float, char: str) -> None:
    session, interval = observe(guest())
    values = {key: share * top_value for key, top_value in TILE_TOPS.items()}
    columns = machine_line.tile_columns(values, 240)
    assert len(columns) == len(TILE_TOPS)
    history = machine_line.TileHistory(session)
    row = [values[key] for key in (*history._metrics, *history._other_keys)]
    history._bins._lookup = lambda _, edges: np.tile(row, (len(edges) - 1, 1))
    (line,) = history.lines(columns, interval, 10**9, 240, 1)
    assert {*strips.text(line)} == {" ", char}


def test_four_uncounted_threads_have_a_range_of_neither() -> None:
    session, interval = observe(
        Machine(cores=2, threads=4, loads={i: CpuLoad(0.2) for i in range(8)})
    )
    min_start = len(" SMT ") + machine_line.MIN_BAR_WIDTH + 2
    for width in range(20, 160):
        text = strips.text(machine_line.state_line(session, interval, width))
        assert len(text) == width
        assert text.find("▒ may be") not in range(min_start)
    assert "neither  20–80  %   0.80 of 4 threads active" in text


def test_the_history_of_steal_is_red_back_to_where_it_became_high() -> None:
    high = machine_line.MIN_HIGHLIGHTED_STEAL
    for values, styles in (
        ([high, 0.0, nan, high, high], [("over", 1), ("steal", 2), ("alarm", 2)]),
        ([high, high], [("alarm", 2)]),
        ([high, high, 0.0], [("over", 2), ("steal", 1)]),
    ):
        assert machine_line._steal_styles(values) == styles

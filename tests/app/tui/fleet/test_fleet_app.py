"""The fleet screen on simulated machines: layout, keys, sizes, and opening a machine."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import product
from math import nan

import fleets
import pytest
from nightly import cases_by_day
from sim_streams import messages_lasting
from textual.events import MouseScrollDown, MouseScrollUp
from textual.pilot import Pilot
from textual.widgets import Static

from perftop.draw import strips
from perftop.model.kinds import CAUSES, STEAL_CAUSE, Episode
from perftop.session.fleet import Fleet, SharedEpisode
from perftop.session.fleet_machine import UNKNOWN_NUMBERS, LiveMachine, Machine, MachineEpisode
from perftop.session.losses import WAIT_CAUSE
from perftop.tui import fleet_page, fleet_state, fleet_views
from perftop.tui.app import PerfTopApp
from perftop.tui.config import Config
from perftop.tui.fleet_screen import FleetScreen, FleetSource, RunPerftop
from perftop.tui.fleet_state import FleetState
from perftop.tui.shared import episode_style, keys
from perftop.tui.shared.row_numbers import Scale

SIZES = ((80, 24), (120, 30), (160, 50), (240, 70))
small_fleet = cache(fleets.small)
middle_fleet = cache(partial(fleets.racks, 8, 8))
large_fleet = cache(partial(fleets.racks, 20, 20))
"""Fleets that tests share and do not change."""


@asynccontextmanager
async def opened_screen(
    fleet: Fleet, size: tuple[int, int] = (160, 50), keys: Sequence[str] = (), *,
    opener: RunPerftop | None = None, config: Config | None = None,
    feed: fleets.Made | None = None,
) -> AsyncIterator[tuple[FleetSource, Pilot[None]]]:  # fmt: skip
    """Yields the source and the pilot of a screen after these keys."""
    feed = feed or fleets.Made(fleet, "over ssh")
    source = FleetSource(feed, opener=opener, cpu_clock=lambda: 0.0)
    async with PerfTopApp(source, config).run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()
        yield source, pilot


def page_lines(source: FleetSource) -> list[str]:
    return [
        source.screen.page.render_line(y).text.rstrip()
        for y in range(source.screen.page.size.height)
    ]


FLEETS = small_fleet, middle_fleet, large_fleet


def test_the_largest_loss_fills_the_chart_of_a_machine() -> None:
    machine = Machine("node")
    for i in range(30):
        machine.add_numbers(1000.0 + i, dict(UNKNOWN_NUMBERS) | {"lost": 0.02})
    state = FleetState(Fleet([machine]), 1030.0, 80, 24)
    title, top, *_ = fleet_page.loss_chart_lines(state, machine, 60, 8)
    assert "lost · node" in strips.text(title[0])
    assert strips.text(top[0]).split() == ["2.0", "███"]


@pytest.mark.parametrize(
    ("fleet", "size"),
    cases_by_day(product(FLEETS, SIZES), [*zip((*FLEETS, small_fleet), SIZES, strict=True)]),
)
async def test_all_views_fit_all_sizes(fleet: Callable[[], Fleet], size: tuple[int, int]) -> None:
    """No line is wider than the screen, and no view is empty."""

    async with opened_screen(fleet(), size) as (source, pilot):
        for view in ("1", "2", "3"):
            await pilot.press(view)
            await pilot.pause()
            for runs, _mood in source.screen.page._lines:
                assert sum(len(text) for text, _key in runs) <= size[0], view
            lines = page_lines(source)
            assert "quit" in lines[-1]
            assert sum(bool(text) for text in lines) >= 8, view


@pytest.mark.parametrize(("kind", "cause"), [("neighbour", "memory"), ("steal", "hypervisor")])
def test_a_running_episode_has_the_marker_of_the_overview(kind: str, cause: str) -> None:
    machine = Machine("m", is_answering=True, numbers={**UNKNOWN_NUMBERS, "lost": 0.0})
    machine.running = [MachineEpisode("m", kind, cause, 0.0, None)]
    shown = episode_style.marker_run(Episode(kind, [0], 0, cause=cause))
    assert fleet_state.worst_marker(machine) == shown


@pytest.mark.parametrize(("suspect_count", "sign"), [(0, "✓"), (1, "≁")])
def test_a_machine_with_a_cpu_offline_is_not_marked_as_silent(
    suspect_count: int, sign: str
) -> None:
    machine = Machine("m", is_answering=True, numbers={**UNKNOWN_NUMBERS, "lost": 0.0})
    machine.running = [MachineEpisode("m", kind, "-", 0.0, None) for kind in ("offline", "suspect")]
    machine.suspect_count = suspect_count
    assert fleet_state.worst_marker(machine)[0] == sign
    assert fleet_state.machine_verdict(machine)[0] == "Nothing is slowing it down"
    assert [e.kind for e in Fleet([machine]).running()] == ["suspect", "offline"]


def test_a_loss_without_an_episode_has_a_verdict() -> None:
    machine = Machine("m", is_answering=True, numbers={**UNKNOWN_NUMBERS, "lost": 0.401})
    machine.lost_shares = {WAIT_CAUSE: 0.401}
    assert fleet_state.machine_verdict(machine)[0] == "Tasks wait 40.1 % of their time for a CPU"
    assert fleet_state.worst_marker(machine) == ("◐", "alarm")
    machine.lost_shares = {("turbo-drop", "power-pl1"): 0.074}
    assert fleet_state.machine_verdict(machine)[0] == "Power limit PL1 took 7.4 % of the time"
    machine.lost_shares = {}
    assert fleet_state.machine_verdict(machine)[0] == "Nothing is slowing it down"


def test_a_cause_is_not_said_to_take_what_was_lost_to_another() -> None:
    """Tasks wait 40 % of their time; the hypervisor, whose episode runs, takes 5 %."""
    steal = MachineEpisode("m", "steal", "hypervisor", 0.0, None, 0.05, 1.0)
    numbers = {**UNKNOWN_NUMBERS, "lost": 0.45, "busy": 1.0, "steal": 0.05}
    machine = Machine("m", is_answering=True, numbers=numbers, running=[steal])
    machine.lost_shares = {WAIT_CAUSE: 0.4, STEAL_CAUSE: 0.05}
    state = FleetState(Fleet([machine]), fleets.NOW, 160, 50)
    assert fleet_state.machine_verdict(machine)[0] == "Tasks wait 40.0 % of their time for a CPU"
    assert fleet_page.fleet_verdict(state).text == "Tasks on m wait 40.0 % of their time for a CPU"
    machine.lost_shares = {STEAL_CAUSE: 0.05, WAIT_CAUSE: 0.04}
    verdict = fleet_page.fleet_verdict(state)
    assert verdict.text == "The hypervisor takes 5.0 % of the time of m"
    assert [loss.share for loss in verdict.losses] == pytest.approx([0.05, 0.4])
    assert state.fleet.running()[0].lost == 0.05
    machine.lost_shares = None  # as from a Prometheus server
    assert "takes 4.8 %" in fleet_page.fleet_verdict(state).text
    machine.running = [replace(steal, kind="neighbour", cause="sibling")]  # lowers no clock
    verdict = fleet_page.fleet_verdict(state)
    assert "an unknown share of the time of m" in verdict.text
    assert [(loss.name, loss.share) for loss in verdict.losses if loss.share] == [("others", 0.45)]


@pytest.mark.parametrize(
    ("spec", "seconds", "sentence"),
    [("sim:neighbour,cpus=16", 14, "stream (sibling) takes 31 % of lmp's work"),
     ("sim:license,cpus=16", 16, "gemm_avx512 (SIMD) keeps it at 3.32 of 3.40 GHz"),
     ("sim:guest,cpus=2", 24, "Tasks wait 43.4 % of their time for a CPU, cc1plus most")],
)  # fmt: skip
def test_verdicts_on_machines_name_the_tasks(spec: str, seconds: float, sentence: str) -> None:
    live = LiveMachine(Machine("m"))
    hello, frames = messages_lasting(f"{spec},seed=1", seconds)
    live.process([hello, *frames])
    text, _ = fleet_state.machine_verdict(live.machine)
    assert text == sentence


def test_long_names_are_cut_where_they_stay_distinct() -> None:
    def cut_names(*names: str) -> list[str]:
        return [*fleet_state.distinct_names(names, 12).values()]

    assert cut_names("short", "build-4.prod.example.com") == ["short", "build-4.pro…"]
    assert cut_names("prod-eu-west-k8s-node-01", "prod-eu-west-k8s-node-02") == [
        "…k8s-node-01", "…k8s-node-02",
    ]  # fmt: skip
    both_ends = cut_names(*(f"r{rack}.cluster.internal.n{n}" for rack in (1, 2) for n in (1, 2)))
    assert both_ends == ["r1.cl…nal.n1", "r1.cl…nal.n2", "r2.cl…nal.n1", "r2.cl…nal.n2"]


@pytest.mark.parametrize("cause", sorted(CAUSES.keys() - {"-", "hypervisor"}))
def test_a_verdict_without_room_keeps_its_cause_and_its_size(cause: str) -> None:
    machine = Machine("m", is_answering=True, numbers={**UNKNOWN_NUMBERS, "lost": 0.4})
    machine.running = [MachineEpisode("m", "stopped", cause, 1.0, None, 0.4)]
    whole, since = fleet_state.machine_verdict(machine)
    assert since == 1.0
    for room in range(44, 80):
        text, _ = fleet_state.machine_verdict(machine, room)
        assert len(text) <= room
        assert text == whole or len(whole) > room
        assert re.match(r"\S.+( takes|:) 40 % of the time$", text)


def test_a_fleet_that_loses_nothing_is_calm_unless_a_machine_is_silent() -> None:
    calm, silent = Machine("calm"), Machine("silent")
    calm.add_numbers(fleets.NOW, {**UNKNOWN_NUMBERS, "lost": 0.002, "busy": 0.5})
    state = FleetState(Fleet([calm]), fleets.NOW, 160, 50)
    assert fleet_page.fleet_verdict(state).text == "No machine is losing time to a known cause"
    calm_verdict = fleet_page.fleet_verdict(state)
    assert (calm_verdict.level, calm_verdict.marker) == (0, "✓")
    silent.fall_silent(fleets.NOW - 60, "connection: timed out")
    state = FleetState(Fleet([calm, silent]), fleets.NOW, 160, 50)
    assert fleet_page.fleet_verdict(state).text.startswith("silent has not answered since")
    assert fleet_page.fleet_verdict(state).level == 1


async def test_rows_move_at_most_every_ten_seconds() -> None:
    async with opened_screen(fleets.small()) as (source, pilot):
        state = source.screen.state
        names = [machine.name for machine in state.machines]
        values = [m.numbers["lost"] for m in state.machines if m.is_answering]
        assert values == sorted(values, reverse=True)
        best = state.machines[-1]
        best.numbers = {**best.numbers, "lost": 0.9}
        source.screen.page.redraw()
        await pilot.pause()
        assert [machine.name for machine in state.machines] == names
        source.screen._ordered_at -= 10.0
        source.screen.page.redraw()
        await pilot.pause()
        assert state.machines[1] is best


class PlayedFeed(fleets.Made):
    """A fleet with a past."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet, "recorded")
        self.calls = list[int | str]()

    def move_in_time(self, steps: int) -> bool:
        self.calls.append(steps)
        self.shown_time_text = f"at {sum(n for n in self.calls if isinstance(n, int))}"
        return True

    def toggle_pause(self) -> None:
        self.calls.append("pause")


async def test_keys_move_a_fleet_in_time_and_pause_it() -> None:
    """In the heat map, the plain arrows move the cursor instead. Only a paused live fleet shows no
    news."""
    feed = PlayedFeed(fleets.small())
    async with opened_screen(feed.fleet, feed=feed) as (source, pilot):
        for keys, calls, text in (
            (["space"], ["pause"], "paused"), (["space"], ["pause"], ""),
            (["left"], [-1], "at -1"), (["shift+left", "right"], [-10, 1], "at -9"),
            (["2", "left", "right", "shift+right"], [10], "at 10"), (["space"], ["pause"], "at 10"),
        ):  # fmt: skip
            feed.calls.clear()
            feed.problem = f"before {text}"
            await pilot.press(*keys)
            await pilot.pause()
            assert (feed.calls, source.screen.state.pause_text) == (calls, text)
            feed.problem = "news"
            source._refresh()
            await pilot.pause()
            assert any("news" in line for line in page_lines(source)) == (text != "paused")


async def test_the_remedy_is_copied() -> None:
    async with opened_screen(fleets.small(), keys=["y"]) as (source, _):
        assert source.app.clipboard == "cooling: fans, air flow, dust; or fewer busy cores"


async def test_the_selected_machine_is_opened_once() -> None:
    started_commands: list[Sequence[str]] = []

    async def opener(arguments: Sequence[str]) -> None:
        started_commands.append(arguments)
        source._feed.problem = "lost meanwhile"

    async with opened_screen(fleets.small(), keys=["down"], opener=opener) as (source, pilot):
        for _ in range(2):  # the second time comes before the command can start
            await source.app.screen.run_action("screen.open")
        await pilot.pause()
        await pilot.press("w", "enter")
        await pilot.pause()
        assert any("lost meanwhile" in text for text in page_lines(source)), "the page is redrawn"
        host = "--host", source.screen.state.selected_name
        assert started_commands == [("live", *host), ("why", *host), ("live", *host)]


async def test_names_and_reasons_from_outside_do_not_control_the_terminal() -> None:
    hostile_machine = Machine("evil\x1b[2J\u202e")
    hostile_machine.fall_silent(fleets.NOW, "\x1b]0;x\x07\n\u200b", nan)
    machine_with_hostile_task = fleets.machine("task", fleets.HOT)
    machine_with_hostile_task.tasks = machine_with_hostile_task.model = (
        machine_with_hostile_task.clock_missing_text
    ) = "\x1b[31mred\x9b"
    machine_with_hostile_task.numbers = UNKNOWN_NUMBERS
    fleet = Fleet([hostile_machine, machine_with_hostile_task])
    async with opened_screen(fleet) as (source, pilot):
        for view in ("1", "2", "3"):
            await pilot.press(view)
            assert "".join(page_lines(source)).isprintable()


def test_racks_have_a_stable_order_if_their_numbers_are_equal() -> None:
    """The racks 2 and 02 are an example. The order of a set of texts differs between processes."""
    numbers = [f"{zeros}{number}" for number in range(1, 6) for zeros in ("", "0", "00")]
    machines = [Machine(f"{rack}-{number}") for rack in ("k1", "k2") for number in numbers]
    rows = fleet_views.arrange_machines(machines, 120, 40).labels
    assert list(rows) == sorted(numbers, key=lambda number: (int(number), number))


async def test_the_wheel_selects_machines_below_and_above() -> None:
    async with opened_screen(fleets.small()) as (source, pilot):
        names = [machine.name for machine in source.screen.state.machines]
        selected = []
        for event in (MouseScrollDown, MouseScrollDown, MouseScrollUp):
            await pilot._post_mouse_events([event], offset=(30, 9))
            await pilot.pause()
            selected.append(names.index(source.screen.state.selected_name))
        assert selected == [4, 7, 4]


def test_keys_are_unique_and_have_an_action() -> None:
    fleet = [key for key in keys.KEYS if key.scope == "app" or key.id in keys.FLEET_KEYS]
    names = [name for key in fleet for name in key.keys.split(",")]
    assert len(names) == len(set(names))
    for key in fleet:
        name = key.action.partition("(")[0]
        assert any(hasattr(owner, f"action_{name}") for owner in (FleetScreen, PerfTopApp)), name


async def test_keys_follow_the_users_configuration() -> None:
    """This holds in the key line, in the help and on the keyboard."""

    config = Config(keys={"why": "y", "heat": "x", "help": "z", "metric": "c"})
    async with opened_screen(fleets.small(), keys="2x", config=config) as (source, pilot):
        assert source.screen.state.view == "heat"
        assert any("c another number" in text for text in page_lines(source))
        assert " x heat  3 episodes " in page_lines(source)[-1]
        await pilot.press("z")
        text = str(source.app.screen.query_one(Static).content).splitlines()
        assert [t.split()[0] for t in text if "What costs the selected" in t] == ["y"]
        assert "R" not in [key for row in text for key in row.split()[:1]], (
            "a fleet is not recorded"
        )


def machine_with(numbers: dict[str, float], name: str = "m") -> Machine:
    return Machine(name, is_answering=True, numbers={**UNKNOWN_NUMBERS, **numbers})


@pytest.mark.parametrize(("key", "value", "cell"), [
    ("lost", 0.0099, ("1.0", "dim")), ("lost", 0.01, ("1.0", "warn")),
    ("lost", 0.0499, ("5.0", "warn")), ("lost", 0.05, ("5.0", "alarm")),
    ("busy", 0.0099, ("1.0", "faint")), ("busy", 0.01, ("1.0", "text")),
    ("steal", 0.0099, ("1.0", "faint")), ("steal", 0.01, ("1.0", "alarm")),
    ("clock_hz", 2e9, ("2.00", "text")), ("power_w", nan, ("–", "faint")),
])  # fmt: skip
def test_the_style_of_a_number_shows_its_severity(
    key: str, value: float, cell: tuple[str, str]
) -> None:
    assert fleet_state.number_cell(machine_with({key: value}), key) == cell


@pytest.mark.parametrize(("share", "cell"), [
    (0.0, ("▁", "rule")), (0.0099, ("▁", "rule")), (0.01, ("▁", "warn")), (0.0499, ("▁", "warn")),
    (0.05, ("▁", "hot")), (0.25, ("▄", "hot")), (0.5, ("▇", "hot")), (0.9, ("▇", "hot")),
    (nan, (" ", "text")),
])  # fmt: skip
def test_bars_of_losses_do_not_touch_the_row_above(share: float, cell: tuple[str, str]) -> None:
    assert fleet_views._loss_bar(share, is_answering=True) == cell


@pytest.mark.parametrize(("key", "limit_key", "values", "words"), [
    ("clock_hz", "ceiling_hz", (2e9, 3.4e9), "clock 2.00 of 3.40 GHz"),
    ("clock_hz", "ceiling_hz", (2e9, nan), "clock 2.00 GHz"),
    ("power_w", "power_limit_w", (9_999.0, nan), "clock 9999 W"),
    ("power_w", "power_limit_w", (10_000.0, 24_000.0), "clock 10.0 of 24.0 kW"),
])  # fmt: skip
def test_a_number_is_followed_by_its_limit(
    key: str, limit_key: str, values: tuple[float, float], words: str
) -> None:
    numbers = {**UNKNOWN_NUMBERS, key: values[0], limit_key: values[1]}
    assert strips.text(fleet_state.named_number("clock ", key, numbers, "text")) == words


@pytest.mark.parametrize(("kind", "depths", "words"), [
    ("throttle", (0.05, 0.125), "5.0 to 12.5 %"), ("throttle", (0.05, 0.05), "5.0 %"),
    ("turbo-drop", (2e8, 6.2e8), "0.20 to 0.62 GHz below"), ("smi", (1.0, 3.0), "3 times"),
    ("throttle", (0.0, 0.0), ""), ("throttle", (None, None), ""), ("throttle", (None, 0.1), ""),
])  # fmt: skip
def test_a_shared_episode_has_the_range_of_its_depths(
    kind: str, depths: tuple[float | None, float | None], words: str
) -> None:
    episode = SharedEpisode(kind, "thermal", ("a", "b"), 0.0, None, depths[1], depths[0], 0.0)
    assert fleet_state.depth_text(episode) == words


@pytest.mark.parametrize(("key", "values", "ends"), [
    ("lost", [0.9], (0.0, 0.3)), ("involuntary", [0.9], (0.0, 0.05)), ("busy", [0.2], (0.0, 1.0)),
    ("clock_hz", [2e9, 3e9, nan], (1.5e9, 3e9)), ("power_w", [80.0, 300.0], (0.0, 300.0)),
    ("power_w", [], (0.0, 1.0)), ("power_w", [0.0], (0.0, 1.0)),
])  # fmt: skip
def test_the_heat_ramp_of_a_clock_begins_at_half_of_its_end(
    key: str, values: list[float], ends: tuple[float, float]
) -> None:
    machines = [machine_with({key: value}, f"m{i}") for i, value in enumerate(values)]
    scale = fleet_state.heat_scale(FleetState(Fleet(machines), 0.0, 80, 24), key)
    assert (scale.low, scale.high) == ends


@pytest.mark.parametrize(("names", "place"), [
    (["a", "b"], "a, b"), ([*"abcdef"], "a, b, c, d, e, f"), ([*"abcdefg"], "a, b, c, d, e, f …"),
    (["r1n1", "r1n2"], "only r1"), (["r1n1", "r2n1"], "only r1 and r2"),
    (["r1n1", "r2n1", "r3n1"], "r1n1, r2n1, r3n1"),
])  # fmt: skip
def test_the_place_of_a_loss_is_its_racks_or_its_machines(names: list[str], place: str) -> None:
    machines = [Machine(f"r{rack}n{n}") for rack in range(1, 6) for n in (1, 2)]
    machines += [Machine(name) for name in "abcdefg"] if "a" in names else []
    state = FleetState(Fleet(machines), 0.0, 160, 50)
    assert fleet_page._place_text(state, [state.fleet.machines[name] for name in names]) == place


@pytest.mark.parametrize(("why", "retry_s", "words"), [
    ("connecting", 5.0, "connecting"), ("m: timed out", 5.4, "timed out · try in 5 s"),
    ("timed out", 0.0, "timed out"), ("timed out", nan, "timed out"),
])  # fmt: skip
def test_the_next_attempt_is_announced_unless_it_is_due(
    why: str, retry_s: float, words: str
) -> None:
    machine = Machine("m", why=why, retry_at=100.0 + retry_s)
    assert fleet_state.silence_text(machine, 100.0) == words


@pytest.mark.parametrize(("age_s", "cell"), [
    (0.04, ("0.0", "dim")), (5.0, ("5.0", "dim")), (5.1, ("5.1", "warn")), (99.9, ("99.9", "warn")),
    (100.0, ("100", "warn")), (-3.0, ("0.0", "dim")),
])  # fmt: skip
def test_numbers_older_than_three_seconds_and_two_intervals_are_marked(
    age_s: float, cell: tuple[str, str]
) -> None:
    machine = replace(machine_with({}), updated_at=1000.0 - age_s)
    state = FleetState(Fleet([machine]), 1000.0, 160, 50)
    column = next(c for c in fleet_views.table_columns(state) if c.key == "age")
    assert fleet_views._cell(state, machine, column, []) == cell


async def test_a_page_is_twenty_rows_and_a_filter_at_most_sixty_characters() -> None:
    fleet = Fleet([Machine(f"m{i:02}") for i in range(50)])
    async with opened_screen(fleet, keys=["1", "t", "home", "pagedown"]) as (source, pilot):
        screen = source.screen
        assert (len(screen.state.rows), screen._selected_row) == (50, 20)
        await pilot.press("pagedown", "pageup")
        assert screen._selected_row == 20
        await pilot.press("end")
        assert screen._selected_row == 49
        screen._apply_filter("x" * 61)
        assert screen.state.selection.filter == "x" * 60


@pytest.mark.parametrize(("count", "view"), [(80, "machines"), (81, "heat")])
async def test_a_large_fleet_opens_with_the_heat_map(count: int, view: str) -> None:
    fleet = Fleet([Machine(f"m{i:02}") for i in range(count)])
    async with opened_screen(fleet, (120, 20)) as (source, _):
        assert source.screen.state.view == view


LOST_SHARES = 0.2, 0.03, 0.001, nan


@pytest.fixture
def two_racks() -> FleetState:
    """A fleet of two racks with equal losses. The first machine does not answer."""
    machines = [
        machine_with({"lost": lost, "busy": 0.5}, f"k{rack}n{i}")
        for rack in (1, 2)
        for i, lost in enumerate(LOST_SHARES)
    ]
    machines[0].is_answering = False
    return FleetState(Fleet(machines), 1000.0, 80, 24, machines=machines)


@pytest.mark.parametrize(("width", "rows"), [
    (80, ["k1 4 ○ 3 · ·", "k2 4 20 3 · ·"]), (32, ["k1 4 ○ 3 · +1", "k2 4 20 3 · +1"]),
    (30, ["k1 4 ○ 3 · +1", "k2 4 20 3 · +1"]), (28, ["k1 4 ○ 3 +2", "k2 4 20 3 +2"]),
])  # fmt: skip
def test_a_rack_begins_with_its_worst_machine(
    two_racks: FleetState, width: int, rows: list[str]
) -> None:
    _, title, *lines = fleet_views.rack_lines(two_racks, width)
    assert strips.text(title[0]).startswith(" 8 machines by rack ")
    assert [" ".join(strips.text(runs).split()) for runs, _ in lines] == rows


@pytest.mark.parametrize(("racks", "count", "line_count"), [(2, 1, 4), (1, 9, 0), (2, 500, 4)])
def test_a_single_rack_and_huge_fleets_have_no_lines_of_racks(
    racks: int, count: int, line_count: int
) -> None:
    machines = [Machine(f"k{rack}n{i}") for rack in range(racks) for i in range(count)]
    state = FleetState(Fleet(machines), 0.0, 80, 24, machines=machines)
    assert len(fleet_views.rack_lines(state, 80)) == line_count
    if count == 500:
        state.machines = [*machines, Machine("k3n1")]
        assert fleet_views.rack_lines(state, 80) == []


@pytest.mark.parametrize(("first", "words"), [
    (0, "8 more rows, the worst loses 20.0 % k1 ○✓·· k2 ✓✓··"),
    (6, "2 more rows, none loses above 0.1 % k2 ··"), (7, "1 more rows k2 ·"),
])  # fmt: skip
def test_hidden_rows_are_summed_up(two_racks: FleetState, first: int, words: str) -> None:
    runs, _ = fleet_views.hidden_machines_line(two_racks, two_racks.machines[first:])
    assert " ".join(strips.text(runs).split()) == words


@pytest.mark.parametrize(("index", "size", "cell"), [
    (0, 6, " ○ ···"), (0, 4, " ○  "), (0, 1, "○"), (1, 6, " ·    "), (1, 3, " · "), (1, 1, "·"),
    (3, 6, "n/a   "), (3, 3, "n/a"), (3, 2, "– "), (3, 1, "–"),
])  # fmt: skip
def test_a_cell_of_a_machine_without_a_number(
    two_racks: FleetState, index: int, size: int, cell: str
) -> None:
    styles, scale = [str(step) for step in range(12)], Scale(0.0, 0.3)
    runs = fleet_views._heat_cell(two_racks, two_racks.machines[index], size, styles, scale)
    assert [text for text, _ in runs] == [cell, " "]


@pytest.mark.parametrize(("count", "size", "shape"), [
    (1, (80, 10), (6, 1, 8, 5)), (8, (80, 10), (6, 1, 8, 5)), (9, (80, 10), (6, 2, 8, 5)),
    (40, (80, 10), (6, 5, 8, 5)), (100, (80, 10), (6, 10, 10, 0)), (1000, (80, 10), (1, 36, 10, 0)),
    (3, (20, 2), (4, 2, 2, 0)), (50, (200, 30), (6, 7, 8, 5)),
])  # fmt: skip
def test_machines_without_racks_have_the_widest_cells_that_fit(
    count: int, size: tuple[int, int], shape: tuple[int, ...]
) -> None:
    """The shape: width of a cell, columns, rows, and width of the names beside the cells."""
    grid = fleet_views.arrange_machines([Machine(f"x{i:04}") for i in range(count)], *size)
    assert not grid.has_racks
    assert (grid.size, len(grid.columns), len(grid.labels), grid.name_width) == shape


@pytest.mark.parametrize(("racks", "count", "height", "shape"), [
    (4, 8, 8, (6, 4, 8)), (4, 8, 7, None), (10, 8, 8, (6, 10, 8)), (4, 2, 8, None),
    (4, 3, 8, (6, 4, 3)), (1, 8, 8, None), (18, 3, 8, (3, 18, 3)), (19, 3, 8, None),
])  # fmt: skip
def test_each_rack_is_a_column_if_cells_of_three_fit(
    racks: int, count: int, height: int, shape: tuple[int, ...] | None
) -> None:
    machines = [Machine(f"k{rack}n{i}") for rack in range(racks) for i in range(count)]
    grid = fleet_views.arrange_machines(machines, 80, height)
    assert grid.has_racks is (shape is not None)
    if shape is not None:
        assert (grid.size, len(grid.columns), len(grid.labels)) == shape


def test_the_table_scrolls_as_little_as_shows_the_selected_row() -> None:
    machines = [machine_with({"lost": 0.001}, f"m{i:02}") for i in range(50)]
    rows = [(machine,) for machine in machines]
    state = FleetState(Fleet(machines), fleets.NOW, 80, 24, machines=machines, rows=rows)
    first_names = []
    for selected in (0, 30, 29, 5, 49, 48, 0):
        state.selected_name = machines[selected].name
        state.click_targets.clear()
        fleet_page.fleet_page_lines(state)
        visible_names = [name for name in state.click_targets.values() if name]
        assert state.selected_name in visible_names
        first_names.append(visible_names[0])
    count = len(visible_names)
    starts = 0, 31 - count, 31 - count, 5, 50 - count, 50 - count, 0
    assert first_names == [machines[start].name for start in starts]


def test_the_list_of_episodes_fills_the_screen() -> None:
    machine = machine_with({"lost": 0.001})
    machine.ended.extend(
        MachineEpisode("m", "steal", "hypervisor", fleets.NOW - i, fleets.NOW - i + 1, 0.05, 1.0)
        for i in range(6000, 2000, -100)
    )
    state = FleetState(Fleet([machine]), fleets.NOW, 80, 24, view="fleet_episodes")
    lines = fleet_page.fleet_page_lines(state)
    assert len(lines) == 23
    assert all("hypervisor" in strips.text(runs) for runs, _ in lines[4:])


async def test_the_cursor_of_the_heat_map_moves_in_four_directions() -> None:
    """The map has two columns of eight machines."""
    fleet = Fleet([Machine(f"x{i:02}") for i in range(16)])
    async with opened_screen(fleet, (80, 24), ["2"]) as (source, pilot):
        state, numbers = source.screen.state, list[int]()
        state.selected_name = "x03"
        for key in ("right", "down", "left", "up", "up", "left", "right", "right"):
            await pilot.press(key)
            numbers.append(int(state.selected_name[1:]))
        assert numbers == [11, 12, 4, 3, 2, 2, 10, 10]


async def test_another_number_is_shown_at_once() -> None:
    async with opened_screen(fleets.small(), keys=["2"]) as (source, pilot):
        for key, name in (("v", "busy"), ("V", "lost"), ("v", "busy")):
            await pilot.press(key)
            assert source.screen.state.metric == name
            assert any(text.startswith(f" {name} %") for text in page_lines(source)[6:])

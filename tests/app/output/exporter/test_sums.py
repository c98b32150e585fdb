"""Counters of the exporter, compared with the schedule of the simulated machine."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import edge_cases
import pytest
import synth
from exporter_page import LATE_S, Series, make_page, series_named, shown_series
from exports import messages
from fakes import guest
from nightly import cases_by_day, nightly_case
from sim_truth import scripted

from perfprobe import wire
from perfprobe.sources.sim.truth import truth
from perftop.model.counters import Cores
from perftop.model.kinds import Episode
from perftop.output.export.exporter_page import Page
from perftop.output.export.exporter_sums import MAX_OWNERS, OTHER_OWNERS, CoreTime, TaskTime
from perftop.session.session import Session

SECONDS = 20
SAMPLES_NS = [100_000_000, 1_000_000_000]
STATES = ("neither", "lp0", "lp1", "both")


@cache
def session_and_page(
    spec: str, seconds: float, sample_ns: int = SAMPLES_NS[0]
) -> tuple[Session, Page]:
    return make_page(messages(spec, seconds, sample_ns))


def windows(spec: str, seconds: float, kind: str) -> list[dict[str, Any]]:
    return [line for line in truth(spec, seconds) if line["type"] == kind]


def series_sum(result: Series, name: str, *labels: str) -> float:
    """The sum of all series with this name and these labels."""
    return sum(value for place, value in series_named(result, name) if {*labels} <= {*place})


@pytest.mark.parametrize("sample_ns", SAMPLES_NS)
@pytest.mark.parametrize("spec", ["smt-mix,cpus=16", nightly_case("smt-mix,cpus=32,packages=2")])
def test_states_match_the_schedule_and_add_up_to_the_time_of_the_cores(
    spec: str, sample_ns: int
) -> None:
    session, page = session_and_page(spec, SECONDS, sample_ns)
    screen = shown_series(page)
    true: dict[tuple[int, str], float] = defaultdict(float)
    for line in windows(spec, SECONDS, "core"):
        for state in STATES:
            true[line["package"], state] += line["smt"][state] * (line["end"] - line["start"])
    for (package, state), seconds in true.items():
        exported_s = screen["perftop_smt_seconds_total", str(package), state]
        assert exported_s == pytest.approx(seconds, rel=0.01, abs=0.02 * SECONDS)
    cores = len(session.hello.cores)
    assert series_sum(screen, "perftop_smt_seconds_total") == pytest.approx(
        SECONDS * cores, rel=2e-3
    )
    assert series_sum(screen, "perftop_smt_seconds_total", "unknown") == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("spec", ["halts,cpus=8", "neighbour,cpus=8", "smt-mix,cpus=16"])
def test_modes_and_counts_match_the_schedule(spec: str) -> None:
    session, page = session_and_page(spec, SECONDS)
    screen = shown_series(page)
    cpus = windows(spec, SECONDS, "cpu")
    whole_s = len(session.hello.topology) * SECONDS

    def total(key: str) -> float:
        return float(sum(line[key] for line in cpus))

    def mode(*names: str) -> float:
        return sum(series_sum(screen, "perftop_cpu_seconds_total", name) for name in names)

    near = 0.002 * whole_s
    # Reference cycles of an idle CPU that polls advance: the schedule counts that as running.
    assert mode("busy", "poll") == pytest.approx(total("util"), rel=0.005)
    assert mode("idle") == pytest.approx(total("idle"), rel=0.01, abs=near)
    assert mode("steal") == pytest.approx(total("steal"), rel=0.02, abs=0.2)
    assert mode("involuntary_halt") == pytest.approx(total("involuntary"), rel=0.1, abs=near)
    assert series_sum(screen, "perftop_cpu_seconds_total") == pytest.approx(whole_s, rel=2e-3)
    cycles = sum(line["util"] * (line["busy_hz"] or 0) for line in cpus)
    assert series_sum(screen, "perftop_cycles_total", "all") == pytest.approx(cycles, rel=0.005)
    retired = sum(line["util"] * (line["busy_hz"] or 0) * (line["ipc"] or 0) for line in cpus)
    assert series_sum(screen, "perftop_instructions_total", "all") == pytest.approx(
        retired, rel=0.005
    )
    tsc_hz = screen["perftop_tsc_hertz",]
    reference = series_sum(screen, "perftop_reference_cycles_total")
    assert reference == pytest.approx(total("util") * tsc_hz, rel=0.005)


EPISODES = [
    (spec, kind, sample_ns)
    for sample_ns in SAMPLES_NS
    for spec, kind in (
        ("turbo-drop,cpus=16", "turbo-drop"), ("license,cpus=12", "turbo-drop"),
        ("throttle,cpus=8", "turbo-drop"), ("throttle,cpus=8", "throttle"),
        ("neighbour,cpus=8", "steal"),
    )
]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "kind", "sample_ns"), cases_by_day(EPISODES, [EPISODES[i] for i in (3, 9)])
)
def test_seconds_of_episodes_match_the_script(spec: str, kind: str, sample_ns: int) -> None:
    seconds = 33 if spec.startswith("license") else 37  # no episode runs at either time
    _, page = session_and_page(spec, seconds + LATE_S, sample_ns)
    result, sample_s = shown_series(page), sample_ns / 1e9
    true: dict[str, list[float]] = defaultdict(list)
    for line in scripted(spec, seconds, kind):
        assert line["end"] is not None
        true[line["cause"] or "hypervisor"].append(line["end"] - line["start"])
    assert true
    for cause, lengths in true.items():
        near = pytest.approx(sum(lengths), abs=1.01 * sample_s * len(lengths))
        assert result["perftop_episode_seconds_total", cause, kind, "0"] == near
        assert result["perftop_episodes_total", cause, kind, "0"] == len(lengths)
        if kind == "turbo-drop":
            assert result["perftop_below_ceiling_seconds_total", cause, "0"] == near
    exported_causes = {labels[0] for labels, value in series_named(result, "perftop_episodes_total")
            if labels[1] == kind and value}  # fmt: skip
    assert exported_causes == {*true}


@pytest.mark.parametrize(
    "spec",
    cases_by_day(["hotplug,cpus=4", "jitter,cpus=8", "demo,cpus=8", "guest"],
                 ["hotplug,cpus=4", "guest"]),
)  # fmt: skip
def test_counters_never_decrease(spec: str) -> None:
    before: Series = {}

    def check_growth(page: Page) -> None:
        now = shown_series(page)
        for key, value in before.items():
            if key[0].endswith("_total"):
                assert now[key] >= value, key
        before.update(now)

    make_page(messages(spec, 30, 500_000_000), after_sample=check_growth)
    assert len(before) > 20


def test_a_doubted_counter_makes_dependent_values_unknown() -> None:
    """The cycles of CPU 2 jump once: counts of that sample are left out, but its time is added."""
    hello, messages = edge_cases.messages()
    before_restart = [m for m in messages if not isinstance(m, wire.Frame) or m.seq < 30]
    without_jump = [
        m for m in before_restart if not isinstance(m, wire.Frame) or m.seq != edge_cases.JUMPS_AT
    ]
    (_, page), (_, other) = (
        make_page([hello, *before_restart], "cpu"),
        make_page([hello, *without_jump], "cpu"),
    )
    result, expected = shown_series(page), shown_series(other)
    assert result["perftop_suspect_samples_total", "jumped"] > 0
    hurt = [key for key, value in series_named(result, "perftop_cycles_total") if value < 1e13]
    assert len(hurt) == 8
    for name in ("perftop_cycles_total", "perftop_instructions_total"):
        assert result[name, "2", "0", "all"] < expected[name, "2", "0", "all"]
    busy = result["perftop_cpu_seconds_total", "2", "busy", "0"]
    assert busy == pytest.approx(expected["perftop_cpu_seconds_total", "2", "busy", "0"], rel=1e-3)


IDLE = synth.counter("idle_s", "s", bits=64, scale=1e-6)
POLL = synth.counter("poll_s", "s", bits=64, scale=1e-6)
STEP = int(synth.TSC_HZ / 10)


def polling_messages(samples: int, jump_at: int = -1) -> list[wire.Message]:
    """A CPU that runs for 60 of 100 ms and polls for 20 of them; its reference counter may jump."""
    hello = synth.hello([synth.REF, IDLE, POLL], threads=1)
    results: list[wire.Message] = [hello]
    for seq in range(samples + 1):
        ref = int(0.6 * STEP) * seq + (1 << 44) * (0 <= jump_at <= seq)
        values = {"ref": [ref], "idle_s": [40_000 * seq], "poll_s": [20_000 * seq]}
        results.append(synth.frame(hello, seq, values))
    return results


def test_modes_of_a_doubted_sample_are_left_out_together() -> None:
    screen = shown_series(make_page(polling_messages(10, jump_at=5))[1])
    seconds_by_mode = {
        labels[0]: value for labels, value in series_named(screen, "perftop_cpu_seconds_total")
    }
    assert screen["perftop_suspect_samples_total", "jumped"] == 1
    assert seconds_by_mode == pytest.approx({"busy": 0.36, "idle": 0.36, "poll": 0.18})


def test_overlapping_episodes_count_once_and_takeovers_have_one_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two groups of cores are below their ceiling for the same cause at overlapping times."""
    given = polling_messages(100)
    ms = 1_000_000
    all_episodes = [
        Episode("turbo-drop", [0], 500 * ms, 1500 * ms, cause="thermal"),
        Episode("turbo-drop", [0], 1000 * ms, 2000 * ms, cause="thermal"),
        Episode("suspect", [0], 500 * ms, 700 * ms, cause="cycles, instructions"),
    ]

    def episodes(_: Session, since_ns: int, until_ns: int) -> list[Episode]:
        return [e for e in all_episodes if e.start_ns <= until_ns and (e.end_ns or 0) > since_ns]

    monkeypatch.setattr(Session, "episodes", episodes)
    screen = shown_series(make_page(given)[1])
    assert screen["perftop_below_ceiling_seconds_total", "thermal", "0"] == pytest.approx(1.5)
    assert screen["perftop_episode_seconds_total", "thermal", "turbo-drop", "0"] == pytest.approx(2)
    assert screen["perftop_episodes_total", "thermal", "turbo-drop", "0"] == 2
    assert screen["perftop_episode_seconds_total", "counters", "suspect", "0"] == pytest.approx(0.2)


# --- the time of cores is complete


UNREAD = 0


def stream(flags: dict[int, int], samples: int = 20, early_ticks: int = 0) -> list[wire.Message]:
    """Returns a stream of two cores with one thread, which run half of the time. `flags` are those
    of the first core, by sample; its read in sample 5 is `early_ticks` earlier than the other."""
    hello = synth.hello([synth.REF], cores=2, threads=1)
    results: list[wire.Message] = [hello]
    for seq in range(samples + 1):
        stamps = [STEP * seq - (early_ticks if seq == 5 else 0), STEP * seq]
        values = {"ref": [stamp // 2 for stamp in stamps]}
        row_flags = [flags.get(seq, 1), wire.ROW_SAMPLED]
        results.append(synth.frame(hello, seq, values, stamps=stamps, flags=row_flags))
    return results


def seconds_by_state(page: Page) -> dict[str, float]:
    series = series_named(shown_series(page), "perftop_smt_seconds_total")
    return {labels[-1]: value for labels, value in series if labels[0] == "0" and value}


@pytest.mark.parametrize(("flags", "unknown_s"), [
    ({}, 0.0),
    (dict.fromkeys(range(5, 12), UNREAD), 0.0),  # the next read covers the whole time
    ({5: wire.ROW_SAMPLED | wire.ROW_WIDE}, 0.0),
    ({5: wire.ROW_SAMPLED | wire.ROW_REBASED}, 0.1),
    (dict.fromkeys(range(5, 9), UNREAD) | {9: wire.ROW_SAMPLED | wire.ROW_REBASED}, 0.5),
])  # fmt: skip
def test_time_without_a_read_is_unknown(flags: dict[int, int], unknown_s: float) -> None:
    _, page = make_page(stream(flags), "core")
    seconds = seconds_by_state(page)
    assert seconds.get("unknown", 0.0) == pytest.approx(unknown_s, abs=1e-9)
    assert seconds["neither"] == seconds["lp0"] == pytest.approx((2.0 - unknown_s) / 2)
    assert sum(seconds.values()) == pytest.approx(2.0)


@pytest.mark.parametrize("early_share", [0.4, 0.6, 0.9])
def test_an_early_read_leaves_no_time_unknown_because_the_next_one_covers_it(
    early_share: float,
) -> None:
    _, page = make_page(stream({}, early_ticks=int(early_share * STEP)), "core")
    assert seconds_by_state(page) == pytest.approx({"neither": 1.0, "lp0": 1.0})


def test_a_core_keeps_its_time_when_cores_are_regrouped() -> None:
    """One core moves to another position, two are joined, and one is removed."""
    hello = synth.hello([synth.REF], cores=4, threads=1)
    time = CoreTime(Session(hello))
    time.seconds[:, 0] = [1, 2, 4, 8]
    time._regroup(Cores(hello, [[2, 1], [0]]))
    assert time.seconds[:, 0].tolist() == [6, 1]
    assert time.unlisted_s[:, 0].tolist() == [8, 0]


def test_owners_have_the_time_of_their_tasks_and_are_limited() -> None:
    machine = guest()
    session = Session(machine.hello)
    owner_time = TaskTime(session)
    pids = range(1, MAX_OWNERS + 3)
    details = {str(pid): {"group": f"/system.slice/u{pid}.service"} for pid in pids}
    for seq, second in enumerate(range(20, 20 * (MAX_OWNERS + 4), 20)):
        pid = seq % len(pids) + 1
        tasks = {
            "others": {"0": [[pid, "a", 0.5], [99, "unknown", 0.3]]},
            "tasks": {"0": [pid, "a", 0.5]},
            "waits": {"0": [[0.25, 7], [None, None]]},
        }
        session.apply(machine.frame(second, records=tasks | {"details": details}))
        owner_time.add_task_scan()
        owner_time.add_task_scan()  # this record is of the same scan
    assert len({owner for owner, _ in owner_time.seconds}) == MAX_OWNERS + 1
    run_s, wait_s = (owner_time.seconds["u2.service", state] for state in ("run", "wait"))
    assert run_s == pytest.approx(2 * wait_s)
    total_s = sum(s for (_, state), s in owner_time.seconds.items() if state == "run")
    assert total_s == pytest.approx(0.5 * (session.now_ns - session.hello.raw_ns) / 1e9)
    assert owner_time.seconds[OTHER_OWNERS, "run"] > run_s
    assert owner_time.waited_s[0, 0] == pytest.approx(total_s / 2), "with and without an owner"

"""Sessions: variants of a metric, sums over an interval and a run, hotplug, missing metrics."""

from __future__ import annotations

import dataclasses
import math

import pytest
import synth
from sessions import TICKS, play
from synth import counter, frame

from perfprobe import wire
from perftop.model.delta import Doubt
from perftop.model.numbers import METRICS
from perftop.output import run_summary, stat_lines
from perftop.session.session import Session, max_batch
from perftop.session.values import lasting_reasons

IDLE = counter("idle_s", "s", bits=64, scale=1e-6)
POLL = counter("poll_s", "s", bits=64, scale=1e-6)
STAT = [
    counter(f"stat_{field}_s", "s", bits=64, scale=0.01)
    for field in ("idle", "iowait", "steal", "user")
]


def test_metrics_are_computed_from_counters() -> None:
    """Two of five deciseconds busy, at 3 GHz with a TSC of 2 GHz; half an instruction a cycle."""
    extra = [counter("kernel_cycles"), counter("kernel_instructions", "instructions"), IDLE]
    stat = [*STAT, *(counter(f"stat_{f}_s", "s", bits=64, scale=0.01)
                     for f in ("nice", "system", "irq", "softirq"))]  # fmt: skip
    greeting = synth.hello(
        [synth.REF, synth.CYCLES, synth.INSTRUCTIONS, *extra], threads=1, stat=stat
    )
    samples = [
        {
            "ref": [seq * TICKS * 2 // 5],
            "cycles": [seq * TICKS * 3 // 5],
            "instructions": [seq * TICKS * 3 // 10],
            "kernel_cycles": [seq * TICKS * 3 // 50],
            "kernel_instructions": [seq * TICKS * 3 // 200],
            "idle_s": [seq * 50_000],  # the CPU is busy for half of every 0.1 s
            "stat_idle_s": [seq * 5],
            "stat_iowait_s": [seq // 2],
            "stat_steal_s": [seq // 2],
            "stat_user_s": [seq],
            "stat_nice_s": [seq],
            **{f"stat_{field}_s": [seq // 2] for field in ("system", "irq", "softirq")},
        }
        for seq in range(3)
    ]
    values = play(greeting, *samples).take_interval().values
    results = {key: float(values[key][0]) for key in METRICS}
    assert results == pytest.approx(
        {
            "util": 0.4,
            "busy_hz": 3e9,
            "net_hz": 1.2e9,
            "halt": 0.6,
            "idle": 0.5,
            "poll": math.nan,
            "involuntary": 0.05,  # .6 halted - .5 idle - .05 steal
            "steal": 0.05,
            "user": 0.2,
            "system": 0.15,
            "iowait": 0.05,
            "ipc": 0.5,
            "kernel_cycles": 0.1,
            "kernel_instructions": 0.05,
            "lost_ratio": 0.2,  # of the .5 not idle, .05 are stolen and .05 halted
        },
        nan_ok=True,
    )


def test_each_cpu_uses_the_first_variant_whose_counters_it_has() -> None:
    ref = counter("ref", cpus=[0])
    idle, poll = counter("idle_s", "s", scale=1e-6, cpus=[0, 1]), POLL
    greeting = synth.hello([ref, idle, poll], cores=3, threads=1, stat=STAT)
    a: dict[str, list[int | None]] = {
        f"stat_{field}_s": [0, 0, 0] for field in ("iowait", "steal", "user", "idle")
    }
    b = dict(a)
    a |= {"ref": [0, None, None], "idle_s": [0, 0, None], "poll_s": [0, 0, 0]}
    b |= {"ref": [TICKS // 4, None, None], "idle_s": [90_000, 40_000, None]}
    b |= {"poll_s": [0, 20_000, 0], "stat_idle_s": [9, 9, 3]}
    b |= {"stat_iowait_s": [9, 9, 1], "stat_steal_s": [9, 1, 1]}
    session = play(greeting, a, b)
    assert session.take_interval().values["util"].tolist() == pytest.approx([0.25, 0.3, 0.5])
    origin = session.evaluator.origin("util") or ""
    assert [part.split(" (")[0] for part in origin.split(" | ")] == [
        "ref / tsc", "1 - cpuidle - steal", "1 - /proc/stat idle - steal",
    ]  # fmt: skip


def test_a_stream_may_begin_without_cpus() -> None:
    session = Session(synth.hello([synth.REF], cores=0))
    assert session.running == []
    assert session.selected == []


@pytest.mark.parametrize(("cores", "frames"), [(1, 256), (128, 256), (1024, 96), (20_000, 14)])
def test_fewer_frames_of_a_big_machine_are_computed_at_once(cores: int, frames: int) -> None:
    assert max_batch(synth.hello([synth.REF], cores=cores)) == frames


def test_warnings_of_the_probe_are_kept_and_limited() -> None:
    session = play(synth.hello([synth.REF]), {"ref": [0, 0]})
    for n in range(100):
        session.apply(wire.Note("warning", n, data={"text": f"w{n}" + "x" * 1000}))
    assert session.warnings[-1].startswith("w99")
    assert (len(session.warnings), len(session.warnings[-1])) == (20, 200)
    assert session.last_warning_ns == 99


def test_suspect_samples_of_a_counter_are_left_out() -> None:
    greeting = synth.hello([synth.REF], cores=2)
    refs = [[0] * 4, [TICKS // 2] * 4, [TICKS] * 4]
    refs[2][0] = refs[1][0] + 2 * TICKS  # CPU 0 has the sibling CPU 2
    session = play(greeting, *({"ref": ref} for ref in refs))
    interval = session.take_interval()
    assert interval.suspect_counters == {0: {("ref", Doubt.FAST)}}
    util = interval.values["util"].tolist()
    assert math.isnan(util[0]), "one of two samples is too few for a mean"
    assert util[1:] == [0.5] * 3
    assert interval.split.active_threads.tolist() == [1.0, 1.0]
    assert session.run.span.suspect_count == 1
    line = stat_lines.interval_line(session, interval)
    assert line["cpus"][0]["suspect"] == ["ref: ran faster than the TSC"]
    assert line["cpus"][0]["why"]["util"] == "ref: ran faster than the TSC"
    counts = [cpu["counts"]["ref"] for cpu in line["cpus"]]
    assert counts == [None, TICKS, TICKS, TICKS]  # a partial sum is unknown


@pytest.mark.parametrize(("still", "gone"), [
    ("ref", {"util", "busy_hz", "halt", "involuntary"}),
    ("cycles", {"busy_hz", "net_hz", "ipc"}),
    ("instructions", {"ipc"}),
])  # fmt: skip
def test_counters_that_exist_but_do_not_count_are_suspect(still: str, gone: set[str]) -> None:
    """A hypervisor that returns the same number at each read does not show an idle machine."""
    busy = counter("busy_s", "s", bits=64, scale=1e-9)
    greeting = synth.hello([synth.REF, synth.CYCLES, synth.INSTRUCTIONS, busy], threads=1)
    samples = []
    for seq in (0, 1):
        values = {key: [seq * TICKS] for key in ("ref", "cycles", "instructions")}
        samples.append(values | {still: [42], "busy_s": [seq * 90_000_000]})
    interval = play(greeting, *samples).take_interval()
    assert interval.suspect_counters == {0: {(still, Doubt.STILL)}}
    known = {"util", "busy_hz", "net_hz", "halt", "ipc"}
    assert {key for key in known if math.isnan(interval.values[key][0])} == gone & known


@pytest.mark.parametrize(
    ("idle_ms", "poll_ms", "suspects"), [(100, 0, 0), (60, 40, 0), (60, 10, 1)]
)
def test_a_cpu_that_is_idle_or_polls_in_idle_is_not_busy(
    idle_ms: int, poll_ms: int, suspects: int
) -> None:
    """Samples of 100 ms: the kernel counts polling separately from other idle states."""
    greeting = synth.hello([synth.REF, IDLE, POLL], threads=1)
    samples: list[synth.Values] = [
        {"ref": [7], "idle_s": [seq * idle_ms * 1000], "poll_s": [seq * poll_ms * 1000]}
        for seq in (0, 1)
    ]
    assert play(greeting, *samples).run.span.suspect_count == suspects


def test_a_suspect_episode_has_start_end_and_counts() -> None:
    greeting = synth.hello([synth.REF], threads=1)
    session = Session(greeting)
    ref = 0
    for seq in range(40):
        ref += 2 * TICKS if seq in {5, 6, 9} else TICKS // 2
        session.apply(frame(greeting, seq, {"ref": [ref]}))
    (episode,) = session.ended
    assert (episode.kind, episode.cpus) == ("suspect", [0])
    assert (episode.start_ns, episode.end_ns) == (4 * synth.SAMPLE_NS, 9 * synth.SAMPLE_NS)
    assert (episode.cause, episode.evidence) == ("ref", {"ref": "fast", "samples": 3})
    assert session.detector.running == []


def test_a_cpu_goes_offline_and_online() -> None:
    greeting = synth.hello([synth.REF], cores=2, threads=1)
    session = Session(greeting)
    gone = [wire.ROW_SAMPLED, wire.ROW_OFFLINE]
    back = [wire.ROW_SAMPLED, wire.ROW_SAMPLED | wire.ROW_REBASED]
    session.apply(frame(greeting, 0, {"ref": [0, 10**12]}))
    note = {"cpu": 1, "online": False, "row": None}
    session.apply(wire.Note("hotplug", synth.SAMPLE_NS, data=note))
    session.apply(frame(greeting, 1, {"ref": [TICKS, 0]}, flags=gone))
    line = stat_lines.interval_line(session, session.take_interval())
    assert [c["online"] for c in line["cpus"]] == [True, False]
    assert line["cpus"][1]["util"] is None
    assert line["cpus"][1]["why"]["util"] == "the CPU is off"
    assert [e.kind for e in session.detector.running] == ["offline"]
    row = {"package": 0, "core": 1, "siblings": [1]}
    data = {"cpu": 1, "online": True, "row": row}
    session.apply(wire.Note("hotplug", 2 * synth.SAMPLE_NS, data=data))
    session.apply(frame(greeting, 2, {"ref": [2 * TICKS, 5]}, flags=back))
    session.apply(frame(greeting, 3, {"ref": [3 * TICKS, 5 + TICKS // 2]}))
    assert session.take_interval().values["util"].tolist() == [1.0, 0.5]
    assert [(e.kind, e.start_ns, e.end_ns) for e in session.ended] == [
        ("offline", synth.SAMPLE_NS, 2 * synth.SAMPLE_NS),
        ("online", 2 * synth.SAMPLE_NS, 2 * synth.SAMPLE_NS),
    ]
    assert session.run.span.suspect_count == 0


@pytest.mark.parametrize("data", [
    {}, {"cpu": "x"}, {"cpu": 99, "online": True}, {"cpu": 0, "online": True, "row": [1]},
    {"cpu": 0, "online": True, "row": {"core": 2.5, "siblings": {}, "zap": 1}},
])  # fmt: skip
def test_malformed_notes_are_ignored(data: dict[str, object]) -> None:
    session = play(synth.hello([synth.REF]), {"ref": [0, 0]})
    session.apply(wire.Note("hotplug", 5, data=data))
    assert session.online.tolist() == [True, True]


def test_missing_metrics_have_a_reason_by_key() -> None:
    why = wire.Missing("cycles", "no PMU in this guest", "use metal")
    session = Session(synth.hello([synth.REF], missing=[why]))
    results = {m.what: (m.why, m.fix) for m in lasting_reasons(session)}
    assert results["busy_hz"] == ("no PMU in this guest", "use metal")
    assert "util" not in results
    hello = stat_lines.hello_line(session)
    assert hello["origin"] == {"util": "ref / tsc (made)", "halt": "1 - ref / tsc (made)"}
    for key in METRICS:
        assert (key in hello["origin"]) != (key in {m["what"] for m in hello["missing"]})


def test_only_selected_cpus_are_shown() -> None:
    greeting = synth.hello([synth.REF], cores=2, selected=[1, 3])
    session = play(greeting, *({"ref": [0, seq * TICKS, 0, 0]} for seq in range(2)))
    line = stat_lines.interval_line(session, session.take_interval())
    assert [c["cpu"] for c in line["cpus"]] == [1, 3]
    assert [c["cpus"] for c in line["cores"]] == [[1, 3]]
    summary = run_summary.summary_line(session, {})
    assert summary["machine"]["util"]["mean"] == 0.5


def test_details_of_processes_are_limited() -> None:
    greeting = synth.hello([synth.REF])
    session = play(greeting, {"ref": [0, 0]})
    for seq in range(1, 6):
        details: dict[str, object] = {str(pid): {"user": "u"} for pid in range(10, 1200 * seq)}
        sizes = {"6": (1 << 14) - len("{'': ''}"), "8": (1 << 14) - len("{'': ''}") + 1}
        details |= {pid: {"": "x" * size} for pid, size in sizes.items()}
        details |= {"7": {"user": f"newest {seq}"}, "9": "no map"}
        records = {"details": details}
        session.apply(frame(greeting, seq, {"ref": [0, 0]}, records=records))
    session.apply(frame(greeting, 6, {"ref": [0, 0]}, records={"details": ["no map"]}))
    assert len(session.details) == 4096
    assert session.details["7"] == {"user": "newest 5"}
    assert {"5999", "6"} <= session.details.keys()
    assert not session.details.keys() & {"10", "8", "9"}


def test_kernel_times_before_and_after_an_offline_time_are_counted() -> None:
    """Its line in /proc/stat is missing meanwhile, though the file is read."""
    greeting = synth.hello([synth.REF], threads=1, stat=STAT)
    session = Session(greeting)
    for seq in range(9):
        off = 3 <= seq < 6
        if seq in {3, 6}:
            session.apply(wire.Note("hotplug", 0, data={"cpu": 0, "online": not off}))
        counts = {f"stat_{field}_s": [None if off else 5 * seq] for field in ("idle", "user")}
        counts |= {f"stat_{field}_s": [None if off else 0] for field in ("iowait", "steal")}
        flags = [wire.ROW_OFFLINE if off else wire.ROW_SAMPLED]
        read = frame(greeting, seq, {"ref": [0], **counts}, flags=flags)
        stat = synth.rows(greeting.blocks[1], 1, counts, [int(seq * TICKS)])
        session.apply(dataclasses.replace(read, blocks=read.blocks | {"stat": stat}))
    summary = run_summary.summary_line(session, {})
    assert summary["cpus"][0]["idle"]["mean"] == pytest.approx(0.5)
    assert summary["cpus"][0]["steal"]["mean"] == 0.0

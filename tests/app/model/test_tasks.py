"""Threads of a watched job and other tasks, from possibly malformed records."""

from __future__ import annotations

from math import inf, isnan, nan
from typing import Any

import pytest

from perftop.model import tasks
from perftop.model.tasks import RunningTasks, TaskSnapshot, WatchedJob

MS = 1_000_000
SECOND = 1000 * MS


def record(**threads: list[Any]) -> dict[str, Any]:
    return {"watched": {"threads": {tid[1:]: row for tid, row in threads.items()}, "more": 0}}


def test_differences_cover_the_requested_time() -> None:
    watched_job = WatchedJob("job")
    for i in range(21):
        results = [40, "job", 3, i * 80 * MS, i * 20 * MS, 2 * i, i]
        assert watched_job.read_record(record(t41=results), i * 100 * MS)
    (thread,) = watched_job.threads.values()
    moved = thread.activity(SECOND)
    assert moved.elapsed_s == pytest.approx(1.0)
    assert moved.run_s == pytest.approx(0.8)
    assert moved.wait == pytest.approx(0.2)
    assert (moved.voluntary_switches, moved.involuntary_switches) == (20, 10)
    assert thread.latest_activity().run_s == pytest.approx(0.08)
    assert watched_job.total_activity(SECOND) == moved
    assert (watched_job.pids(), watched_job.cpus()) == ({40}, {3})


@pytest.mark.parametrize(("letter", "runs_at", "waits_s"), [
    ("R", 6, [0, 0, 2, 3, 4, 5, 5.5, 5.5]),  # from the sixth second on, the kernel counts the wait
    ("S", 6, [0, 0, 0, 0, 0, 0, 5.5, 5.5]), ("R", 1, [0, 0.5, 0.5, 2.5, 3.5, 4.5, 5.5, 6.5]),
])  # fmt: skip
def test_a_runnable_thread_that_never_runs_waits(
    letter: str, runs_at: int, waits_s: list[float]
) -> None:
    """The kernel counts a wait when it ends: a starved thread was once said to sleep. Here, the
    thread runs for a moment in one second, and has then waited for half a second less."""
    job, waited_s = WatchedJob("job"), []
    for second in range(8):
        run_ns, wait_ns = (MS, (runs_at * 1000 - 500) * MS) if second >= runs_at else (0, 0)
        result = record(t1=[1, "job", 0, run_ns, wait_ns, 0, 0])
        result["watched"]["states"] = {"1": letter}
        job.read_record(result, second * SECOND)
        waited_s.append((job.threads[1].points[-1].wait_ns or 0) / SECOND)
    assert waited_s == waits_s


def test_a_wait_that_began_earlier_counts_from_the_first_record() -> None:
    """A job was once said to have waited for 10 of 8 s."""
    job = WatchedJob("job")
    for second, wait_s in ((0, 3), (1, 9), (2, 9)):
        job.read_record(record(t1=[1, "job", 0, second, wait_s * SECOND, 0, 0]), second * SECOND)
    waits_s = [(point.wait_ns or 0) / SECOND for point in job.threads[1].points]
    assert waits_s == [3, 4, 4]


def test_sleeping_and_rarely_read_threads_are_kept_and_ended_ones_dropped() -> None:
    watched_job = WatchedJob("job")
    watched_job.read_record(
        record(t1=[1, "a", 0, 5, 5, 0, 0], t9999999999=[1, "a", 1, 5, 5, 0, 0]), 0
    )
    for i in range(1, 20):
        watched_job.read_record(record(t1=[1, "a", 0, 5, 5, 0, 0]), i * 100 * MS)
    assert set(watched_job.threads) == {1, 9_999_999_999}
    assert [thread.tid for thread in watched_job.last_threads] == [1]
    assert watched_job.cpus() == set()
    watched_job.read_record(record(), 2 * SECOND + 1)
    assert set(watched_job.threads) == {1}


def test_a_reused_thread_id_is_another_thread() -> None:
    watched_job = WatchedJob("job")
    watched_job.read_record(record(t1=[1, "a", 0, 9 * SECOND, 0, 0, 0]), 0)
    watched_job.read_record(record(t1=[1, "b", 0, 5, 0, 0, 0]), SECOND)
    assert watched_job.threads[1].activity(SECOND).run_s == 0.0
    assert watched_job.threads[1].comm == "b"
    watched_job.read_record(record(t1=[1, "b", 0, 5 + SECOND, 0, 0, 0]), 2 * SECOND)
    assert watched_job.threads[1].activity(2 * SECOND).run_s == 1.0


@pytest.mark.parametrize("waits_ns", [(None, None), (None, 5), (5, None)])
def test_unknown_waits_are_not_zero_waits(waits_ns: tuple[int | None, ...]) -> None:
    watched_job = WatchedJob("job")
    for i, wait_ns in enumerate(waits_ns):
        watched_job.read_record(record(t1=[1, "a", 0, i * SECOND, wait_ns, 0, 0]), i * SECOND)
    assert isnan(watched_job.threads[1].activity(SECOND).wait)
    assert isnan(watched_job.total_activity(SECOND).wait)
    assert watched_job.total_activity(SECOND).run_s == 1.0


@pytest.mark.parametrize("threads", [
    None, [], {"x": [1, "a", 0, 0, 0, 0, 0]}, {"1": [1, "a", 0]}, {"1": "a"}, {1: None},
    {"1": [1, "a", None, 0, 0, 0, 0]}, {"9" * 11: [1, "a", 0, 0, 0, 0, 0]},
])  # fmt: skip
def test_malformed_threads_are_ignored(threads: object) -> None:
    watched_job = WatchedJob("job")
    watched_job.read_record({"watched": {"threads": threads, "more": "many"}}, 1)
    watched_job.read_record({"watched": {"threads": {}, "more": -1}}, 1)
    assert watched_job.threads == {}
    assert watched_job.unlisted_threads == 0


def test_names_contain_no_control_characters() -> None:
    watched_job = WatchedJob("job")
    watched_job.read_record(record(t1=[1, "a\x1b[2J\n" + "b" * 999, 0, 0, 0, 0, 0]), 1)
    assert watched_job.threads[1].comm.startswith("a?[2J?bb")
    assert len(watched_job.threads[1].comm) == 64


def test_the_number_of_threads_is_limited() -> None:
    watched_job = WatchedJob("job")
    many = {str(tid): [1, "a", 0, 0, 0, 0, 0] for tid in range(5000)}
    watched_job.read_record({"watched": {"threads": many, "more": 1}}, 1)
    assert len(watched_job.threads) == 1024
    assert watched_job.unlisted_threads == 1


def test_impossible_waits_for_a_disk_are_ignored() -> None:
    watched_job = WatchedJob("job")
    disk = {"1": -1, "2": 0, "3": (1 << 62) - 1, "4": 1 << 62, "5": True, "6": 0.5, "x": 1}
    watched_job.read_record({"watched": {"threads": {}, "disk": disk}}, 1)
    assert watched_job.disk_ns == {2: 0, 3: (1 << 62) - 1}


def test_other_tasks_on_a_cpu_are_counted_or_known_to_exist() -> None:
    running_tasks = RunningTasks([0, 1, 2])
    assert TaskSnapshot.from_records({"pressure": 1}) is None
    tasks = {"0": [7, "make", 0.9], "1": [8, "sh", 0.5]}
    many = [[n, "y", 0.0] for n in range(100)]
    others = {"0": [[7, "make", 0.6], [9, "cc1", 0.3], "x", *many]}
    snapshot = TaskSnapshot.from_records({"tasks": tasks, "others": others})
    assert snapshot is not None
    top_task_ids = running_tasks.top_task_ids_of(snapshot)
    assert (top_task_ids != 0).tolist() == [True, True, False]
    running_tasks.update(snapshot, top_task_ids, SECOND)
    assert [task.comm for task in running_tasks.tasks_on(0)[:2]] == ["make", "cc1"]
    assert len(running_tasks.tasks_on(0)) == 63, "as many as are kept, without the malformed one"
    assert [task.comm for task in running_tasks.tasks_on(1)] == ["sh"]
    assert running_tasks.tasks_on(2) == []
    assert (running_tasks.since_ns, running_tasks.time_ns) == (0, SECOND)


# --- running tasks


def test_a_task_that_is_missing_in_a_record_counts_as_at_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = [7, "a", 0.25], [8, "b", 0.5]
    looks = [
        TaskSnapshot({"0": rows[0]}, {"0": rows}, {"0": waits})
        for rows, waits in (([a, b], [[0.75, 10.0], [0.0, 8.0]]), ([b], [[None, None]]))
    ]
    mean = TaskSnapshot.mean(looks)
    assert mean.top_tasks == {"0": [[8, "b", 0.5], [7, "a", 0.125]]}
    assert mean.waits == {"0": [[0.0, 4.0], [0.375, 5.0]]}
    assert mean.thread_counts == {(7, "a"): 1.0, (8, "b"): 1.0}
    for entries, share in ((2, 0.25), (3, 0.125)):  # of the four, the first and another one
        monkeypatch.setattr(tasks, "MAX_MEAN_ENTRIES", entries)
        rows = [TaskSnapshot({"0": [7, "a", n / 16]}) for n in (0, 2, 4, 8)]
        assert TaskSnapshot.mean(rows).tasks["0"][2] == share


LMP, CC1 = [4000, "lmp", 0.5], [4001, "cc1", 0.25]


def activity_of(**records: Any) -> list[tuple[str, float, float, float]]:
    look = TaskSnapshot.from_records(records)
    assert look is not None
    ran = look.activity_on("3")
    return [(task.task.comm, task.task.share, task.wait, task.switches_per_s) for task in ran]


@pytest.mark.parametrize("waits", [
    None, 7, {}, {"3": 5}, {"3": []}, {"3": [[None, None]]}, {"3": [["a", []], 1]}, {"3": [[0.5]]},
    {"3": [[-1, nan], [nan, float("inf")]]}, {"3": [[True, True]]},
])  # fmt: skip
def test_invalid_waits_are_unknown(waits: Any) -> None:
    result = activity_of(tasks={"3": LMP}, others={"3": [LMP, CC1]}, waits=waits)
    assert [comm for comm, *_ in result] == ["lmp", "cc1"]
    assert all(isnan(value) for _, _, *values in result for value in values)


def test_waits_never_exceed_the_whole_time() -> None:
    ((*_, wait, switches),) = activity_of(tasks={"3": LMP}, waits={"3": [[1.5, 1e9]]})
    assert (wait, switches) == (1.0, 1e9)


def test_a_stream_without_waits_differs_from_one_with_zero_waits() -> None:
    old, new = (
        TaskSnapshot.from_records({"tasks": {}}),
        TaskSnapshot.from_records({"tasks": {}, "waits": {}}),
    )
    assert old is not None
    assert old.waits is None
    assert new is not None
    assert new.waits == {}
    assert TaskSnapshot.from_records({"others": {}}) is None
    assert TaskSnapshot.from_records({"tasks": 5}) is None


@pytest.mark.parametrize(
    "record", [None, 7, [7], ["7", "a", 0.5], [7, 7, 0.5], [7, "a", "0.5"], [-1, "a", 0.5]]
)
def test_malformed_tasks_are_ignored(record: Any) -> None:
    look = TaskSnapshot({"3": record}, {"4": [record, [7, "a", 0.5]]})
    assert look.tasks_on("3") == [] == look.activity_on("3")
    assert [task.comm for task in look.tasks_on("4")] == ["a"]
    assert [ran.task.comm for ran in look.activity_on("4")] == ["a"]


REGULAR: dict[str, tuple[list[Any], Any]] = {
    "0": ([[7, "a", 0.5], [8, "b", 0.25], [6, "new", 0.1]], [[0.1, 20.0], [0.0, 0.0], [None] * 2]),
    "2": ([[9, "c" * 64, 1.0]], [[0.0, 3.5]]),
    "3": ([[0, "d", 0.0]] * 64, [[1.0, 0.0]] * 64),
}
IRREGULAR: dict[str, tuple[list[Any], Any]] = {
    "PID is a truth value": ([[True, "a", 0.5]], [[0.1, 2.0]]),
    "a PID is negative": ([[-1, "a", 0.5], [7, "b", 0.5]], [[0.1, 2.0]] * 2),
    "PID is too large": ([[1 << 32, "a", 0.5]], [[0.1, 2.0]]),
    "name is no text": ([[7, b"a", 0.5]], [[0.1, 2.0]]),
    "name has a control sequence": ([[7, "a\x1b[0m", 0.5]], [[0.1, 2.0]]),
    "name is long": ([[7, "a" * 65, 0.5]], [[0.1, 2.0]]),
    "share is too large": ([[7, "a", 1.5]], [[0.1, 2.0]]),
    "share is an integer": ([[7, "a", 1]], [[0.1, 2.0]]),
    "share is no number": ([[7, "a", nan]], [[0.1, 2.0]]),
    "wait is too large": ([[7, "a", 0.5]], [[1.5, 2.0]]),
    "wait is negative": ([[7, "a", 0.5]], [[-0.1, 2.0]]),
    "switches are infinite": ([[7, "a", 0.5]], [[0.1, inf]]),
    "waits are missing": ([[7, "a", 0.5], [8, "b", 0.1]], [[0.1, 2.0]]),
    "there are more waits than tasks": ([[7, "a", 0.5]], [[0.1, 2.0], [0.2, 3.0]]),
    "record has another field": ([[7, "a", 0.5, 1]], [[0.1, 2.0]]),
    "record is none": ([None, [7, "a", 0.5]], [[0.1, 2.0], [0.2, 3.0]]),
    "there is no record": ([], []),
    "waits are text": ([[7, "a", 0.5]], "ab"),
    "there are too many": ([[i, "a", 0.01] for i in range(65)], [[0.0, 0.0]] * 65),
}  # fmt: skip


@pytest.mark.parametrize("case", ["", *IRREGULAR])
def test_columns_are_the_rows_of_all_cpus(case: str) -> None:
    """Records that are checked together give the same tasks as those checked one by one."""
    listed = REGULAR | ({"1": IRREGULAR[case]} if case else {})
    snapshot = TaskSnapshot(
        {cpu: tasks[0] if tasks else None for cpu, (tasks, _) in listed.items()},
        {cpu: tasks for cpu, (tasks, _) in listed.items()},
        {cpu: waits for cpu, (_, waits) in listed.items()},
    )
    cpus = ["0", "1", "2", "3", "4"]
    columns = snapshot.columns(cpus)
    rows = [(i, *row) for i, cpu in enumerate(cpus) for row in snapshot.activity_rows(cpu)]
    numbers = (columns.shares.tolist(), columns.waits.tolist(), columns.switches_per_s.tolist())
    joined_rows = zip(columns.cpus.tolist(), columns.pids, columns.names, *numbers, strict=True)
    assert repr([*joined_rows]) == repr(rows)  # NaN equals itself only as text
    assert (snapshot._uniform_columns(cpus) is None) == bool(case)

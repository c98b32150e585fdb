"""resctrl as described by Documentation/filesystems/resctrl.rst: groups, and files with a number or
a word."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import trees
from synth import Clock

from perfprobe import wire
from perfprobe.cpu import topology
from perfprobe.polled.resctrl import ONE_GROUP_REASON, RESCTRL_PATH, Resctrl
from perfprobe.wire import Missing

KEYS = ["l3_memory_bytes", "l3_local_bytes", "l3_occupancy_bytes"]


@pytest.fixture
def two_caches(tmp_path: Path) -> Path:
    """Four CPUs; 0 and 1 share L3 0, 2 and 3 share L3 1."""
    trees.write_machine(tmp_path, 4)
    for cpu in range(4):
        trees.write_l3(tmp_path, cpu, "0-1" if cpu < 2 else "2-3", ident=cpu // 2)
    write_group(tmp_path, "", 0, total=1000, local=800, occupancy=64)
    write_group(tmp_path, "", 1, total=5000, local=5000, occupancy=128)
    trees.put(tmp_path, f"{RESCTRL_PATH}/info/L3_MON/num_rmids", "16\n")
    return tmp_path


def write_group(root: Path, name: str, number: int, **values: int | str) -> None:
    files = {"total": "mbm_total_bytes", "local": "mbm_local_bytes", "occupancy": "llc_occupancy"}
    for key, value in values.items():
        path = f"{RESCTRL_PATH}{name}/mon_data/mon_L3_{number:02d}/{files[key]}"
        trees.put(root, path, f"{value}\n")


def open_resctrl(root: Path) -> tuple[Resctrl, Clock]:
    clock = Clock()
    return Resctrl(root, topology.read_cpus(root), clock), clock


def read_values(source: Resctrl) -> list[list[int | None]]:
    """Values by CPU; None: not valid."""
    result = dict(source.read())
    return [[*result.get(row, [None] * source.block.columns)] for row in range(source.rows)]


def test_an_l3_is_on_the_row_of_its_first_cpu(two_caches: Path) -> None:
    source, _ = open_resctrl(two_caches)
    assert [c.key for c in source.block.counters] == KEYS
    assert (source.block.scope, source.block.counters[0].cpus) == ("cpu", [0, 2])
    assert source.missing == [Missing("l3_groups", ONE_GROUP_REASON)]
    nothing = [None] * 3
    assert read_values(source) == [[0, 0, 64], nothing, [0, 0, 128], nothing]
    write_group(two_caches, "", 0, total=1700, local=900, occupancy=2**64 + 32)
    assert read_values(source) == [[700, 100, 32], nothing, [0, 0, 128], nothing]
    assert source.take_records() == {}
    write_group(two_caches, "/mon_groups/web", 0, total=40)
    assert open_resctrl(two_caches)[0].missing == []


def test_traffic_is_the_sum_of_control_groups(two_caches: Path) -> None:
    source, _ = open_resctrl(two_caches)
    read_values(source)
    write_group(two_caches, "/batch", 0, total=300, local=0, occupancy=16)
    write_group(two_caches, "/batch", 1, total=0, local=0, occupancy=0)
    write_group(two_caches, "/mon_groups/watched", 0, total=900, local=900, occupancy=60)
    write_group(two_caches, "", 0, total=1100, local=800, occupancy=64)
    assert read_values(source)[0] == [100, 0, 80], (
        "what a group had before it was seen is not known"
    )
    write_group(two_caches, "/batch", 0, total=800, local=0, occupancy=16)
    assert read_values(source)[0] == [600, 0, 80]
    shutil.rmtree(two_caches / RESCTRL_PATH / "batch")
    write_group(two_caches, "", 0, total=1150, local=800, occupancy=64)
    assert read_values(source)[0] == [650, 0, 64], "the traffic of a removed group still counts"


@pytest.mark.parametrize(("word", "why"), [
    ("Unavailable", ": Unavailable"), ("Unassigned", ": Unassigned"), ("Error", "hardware reports"),
    ("9" * 21, f"the file contains '{'9' * 21}'"), ("x" * 41, f"contains '{'x' * 40}'"),
    ("", "no monitor of this kind"),
])  # fmt: skip
def test_a_word_is_not_a_number(two_caches: Path, word: str, why: str) -> None:
    source, _ = open_resctrl(two_caches)
    read_values(source)
    write_group(two_caches, "", 0, total=word)
    assert [row[0] for row in read_values(source)] == [None, None, 0, None]
    write_group(two_caches, "", 0, total=1900)
    assert read_values(source)[0][0] == 900
    write_group(two_caches, "", 0, total=word)
    write_group(two_caches, "", 1, total=word)
    source, _ = open_resctrl(two_caches)
    assert [c.key for c in source.block.counters] == KEYS[1:]
    (missing,) = source.missing
    assert missing.what == KEYS[0]
    assert why in missing.why


def test_a_counter_that_starts_again_is_not_valid_once(two_caches: Path) -> None:
    """The kernel has assigned another monitor to the group, so the traffic since the last read is
    unknown."""
    source, _ = open_resctrl(two_caches)
    read_values(source)
    write_group(two_caches, "", 0, total=20)
    assert read_values(source)[0][0] is None
    write_group(two_caches, "", 0, total=70)
    assert read_values(source)[0][0] == 50


def test_a_slow_read_is_followed_by_a_pause(two_caches: Path) -> None:
    source, clock = open_resctrl(two_caches)
    take = source._read_count

    def read_slowly(group: str, number: int, name: str) -> int | str | None:
        clock.now_s += 0.01
        return take(group, number, name)

    source._read_count = read_slowly  # type: ignore[method-assign]
    read_values(source)  # reads six files
    clock.now_s += 5.9
    assert read_values(source) == [[None] * 3] * 4
    clock.now_s += 0.2
    assert read_values(source)[0] == [0, 0, 64]


def test_resctrl_may_not_be_mounted(tmp_path: Path) -> None:
    trees.write_machine(tmp_path, 1)
    assert open_resctrl(tmp_path)[0].missing == [], "the CPU has no such monitors"
    trees.put(tmp_path, "proc/cpuinfo", "processor : 0\nflags : fpu cqm_llc cqm_mbm_total\n")
    source, _ = open_resctrl(tmp_path)
    assert source.block.counters == []
    assert "not mounted" in source.missing[0].why
    assert "mount -t resctrl" in (source.missing[0].fix or "")
    write_group(tmp_path, "", 7, total=1)
    (missing,) = open_resctrl(tmp_path)[0].missing
    assert (missing.why, missing.fix) == ("it numbers L3s differently from the topology", None)


def test_at_most_64_groups_of_each_kind_are_read(two_caches: Path) -> None:
    for number in range(65):
        write_group(two_caches, f"/group{number:02d}", 0, total=number)
        write_group(two_caches, f"/mon_groups/part{number:02d}", 0, total=number)
    source, _ = open_resctrl(two_caches)
    read_values(source)
    groups = source.take_records()["l3_groups"]
    assert sorted(groups) == [  # type: ignore[call-overload]
        "", *(f"group{n:02d}" for n in range(64)), *(f"mon_groups/part{n:02d}" for n in range(64)),
    ]  # fmt: skip


def test_each_group_reports_its_traffic(two_caches: Path) -> None:
    write_group(two_caches, "/batch", 0, total=300)
    write_group(two_caches, "/batch", 1, total="Unavailable")
    write_group(two_caches, "/batch/mon_groups/web", 0, total=40)
    source, _ = open_resctrl(two_caches)
    read_values(source)
    assert source.take_records() == {"l3_groups": {
        "": [[0, 0], [1, 0]], "batch": [[0, 0], [1, None]],
        "batch/mon_groups/web": [[0, 0], [1, None]],
    }}  # fmt: skip
    assert source.take_records() == {}, "each record is taken once"
    write_group(two_caches, "/batch", 0, total=900)
    # the monitor group web, which is new, starts at 0
    write_group(two_caches, "/batch/mon_groups/web", 0, total=10)
    read_values(source)
    report = source.take_records()["l3_groups"]
    assert isinstance(report, dict)
    assert report["batch"] == [[0, 600], [1, None]]
    assert report["batch/mon_groups/web"][0] == [0, None]
    shutil.rmtree(two_caches / RESCTRL_PATH / "batch")
    read_values(source)
    assert source.take_records() == {}
    write_group(two_caches, "", 0, total=1200)
    write_group(two_caches, "/batch", 0, total=950)
    read_values(source)
    assert source.take_records() == {"l3_groups": {
        "": [[0, 200], [1, 0]], "batch": [[0, 0], [1, None]],
    }}, "only the removed group starts from 0"  # fmt: skip


def test_a_group_name_that_is_not_utf8_does_not_end_the_stream(two_caches: Path) -> None:
    name = "/" + os.fsdecode(b"caf\xe9")
    for number in (0, 1):
        write_group(two_caches, name, number, total=10, local=10, occupancy=0)
    source, _ = open_resctrl(two_caches)
    read_values(source)
    record = source.take_records()
    assert list(record["l3_groups"]) == ["", "caf\ufffd"]  # type: ignore[call-overload]
    wire.encode(wire.Frame(1, 1, {}, records=record))

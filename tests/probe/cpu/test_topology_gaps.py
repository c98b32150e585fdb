"""Tests topology.read_cpus with missing or garbled files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import trees
from hypothesis import given
from hypothesis import strategies as st

from perfprobe.cpu import identity, topology
from perfprobe.wire import Cpu

# --- missing files -------------------------------------------------------------------------------


def test_cores_come_from_cpuinfo_without_sys(tmp_path: Path) -> None:
    trees.write_cpuinfo_only(tmp_path)
    assert topology.read_cpus(tmp_path) == [
        Cpu(0, True, 0, None, 0, 0, None, None, None, [0, 2]),
        Cpu(1, True, 0, None, 1, 0, None, None, None, [1, 3]),
        Cpu(2, True, 0, None, 0, 1, None, None, None, [0, 2]),
        Cpu(3, True, 0, None, 1, 1, None, None, None, [1, 3]),
    ]


def test_cpus_come_from_proc_stat(tmp_path: Path) -> None:
    trees.put(tmp_path, "proc/stat", "cpu  9 9\ncpu0 1 2\ncpu3 1 2\nintr 5\n")
    rows = topology.read_cpus(tmp_path)
    assert [(row.cpu, row.online, row.siblings) for row in rows] == [(0, True, [0]), (3, True, [3])]


@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize(("kind", "l3"), [("Unified", 0), ("Data", None), ("Instruction", None)])
def test_the_l3_may_have_any_index(tmp_path: Path, index: int, kind: str, l3: int | None) -> None:
    trees.put(tmp_path, f"{trees.CPU}/present", "0\n")
    cache = f"{trees.CPU}/cpu0/cache/index{index}"
    for name, text in {"level": "3", "type": kind, "shared_cpu_list": "0"}.items():
        trees.put(tmp_path, f"{cache}/{name}", f"{text}\n")
    assert topology.read_cpus(tmp_path)[0].l3 == l3


@pytest.mark.parametrize("name", ["present", "possible", "online"])
def test_each_cpu_list_can_replace_the_others(tmp_path: Path, name: str) -> None:
    trees.put(tmp_path, f"{trees.CPU}/{name}", "0-1,3\n")
    assert [row.cpu for row in topology.read_cpus(tmp_path)] == [0, 1, 3]


def test_an_offline_cpu_without_a_list_is_found_by_its_own_file_or_proc_stat(
    tmp_path: Path,
) -> None:
    trees.put(tmp_path, f"{trees.CPU}/present", "0-3\n")
    trees.put(tmp_path, f"{trees.CPU}/cpu1/online", "0\n")
    trees.put(tmp_path, f"{trees.CPU}/cpu2/online", "1\n")
    trees.put(tmp_path, "proc/stat", "cpu  1 0 0 0\ncpu0 1 0 0 0\ncpu1 1 0 0 0\n")
    rows = topology.read_cpus(tmp_path)
    assert [row.online for row in rows] == [True, False, True, False]


def test_the_older_name_of_the_siblings_list_is_read(tmp_path: Path) -> None:
    trees.write_xeon(tmp_path, cores=2)
    for n in range(8):
        for name in ("core_cpus_list", "core_id"):  # the list of sibling CPUs remains
            (tmp_path / trees.CPU / f"cpu{n}/topology/{name}").unlink()
    assert topology.read_cpus(tmp_path)[0].siblings == [0, 4]


def test_a_node_link_can_replace_the_node_directory(tmp_path: Path) -> None:
    trees.write_machine(tmp_path, 1)
    (tmp_path / trees.CPU / "cpu0/node3").mkdir()
    assert topology.read_cpus(tmp_path)[0].node == 3


@pytest.mark.parametrize("idents", [(0, 0), (None, None), (2, None), (None, 0)])
def test_l3_groups_of_packages_are_distinct(
    tmp_path: Path, idents: tuple[int | None, int | None]
) -> None:
    trees.write_xeon(tmp_path, cores=2)
    for n in range(8):
        file = tmp_path / trees.CPU / f"cpu{n}/cache/index3/id"
        ident = idents[n % 4 // 2]
        file.unlink() if ident is None else file.write_text(str(ident))
    assert [row.l3 for row in topology.read_cpus(tmp_path)] == [0, 0, 2, 2] * 2


def test_l3_ids_define_groups_without_lists(tmp_path: Path) -> None:
    trees.write_xeon(tmp_path, cores=2)
    for n in range(8):
        (tmp_path / trees.CPU / f"cpu{n}/cache/index3/shared_cpu_list").unlink()
    assert [row.l3 for row in topology.read_cpus(tmp_path)] == [0, 0, 1, 1] * 2


@pytest.mark.parametrize(
    ("claim", "expected"), [("0-7", [0, 0, 1, 1] * 2), ("0", [0, 1, 2, 2, 1, 1, 2, 2])]
)
def test_l3_groups_never_overlap(tmp_path: Path, claim: str, expected: list[int]) -> None:
    trees.write_xeon(tmp_path, cores=2)
    trees.put(tmp_path, f"{trees.CPU}/cpu0/cache/index3/shared_cpu_list", claim)
    assert [row.l3 for row in topology.read_cpus(tmp_path)] == expected


# --- garbled files -------------------------------------------------------------------------------

GARBAGE = [b"", b"\n", b"x", b"\xff\x00\xfe", b"9" * 5000, b"-1", b"0-999999999", b"3-1", b"0x1"]


def test_a_garbled_id_is_unknown_and_nothing_else_changes(tmp_path: Path) -> None:
    trees.write_xeon(tmp_path, cores=2)
    for garbage in GARBAGE:
        trees.put(tmp_path, f"{trees.CPU}/cpu4/topology/core_id", garbage)
        rows = topology.read_cpus(tmp_path)
        assert rows[4] == Cpu(4, True, 0, 0, None, 1, 0, 0, None, [0, 4]), garbage
        assert topology.cores(rows) == [[n, n + 4] for n in range(4)], garbage


def test_garbled_siblings_fall_back_on_ids(tmp_path: Path) -> None:
    trees.write_xeon(tmp_path, cores=2)
    for garbage in (*GARBAGE, b"7"):
        for name in ("core_cpus_list", "thread_siblings_list"):
            trees.put(tmp_path, f"{trees.CPU}/cpu0/topology/{name}", garbage)
        rows = topology.read_cpus(tmp_path)
        assert rows[0].siblings == [0, 4], garbage
        assert topology.cores(rows) == [[n, n + 4] for n in range(4)], garbage


def test_without_siblings_and_ids_a_cpu_is_its_own_core(tmp_path: Path) -> None:
    trees.write_cpu_lists(tmp_path, "0-2")
    rows = topology.read_cpus(tmp_path)
    assert [(row.thread, row.siblings) for row in rows] == [(0, [0]), (0, [1]), (0, [2])]
    assert topology.packages(rows) == [[0, 1, 2]]


def test_a_core_never_spans_packages() -> None:
    rows = [Cpu(0, True, siblings=[0, 1, 2])]
    rows += [Cpu(n, True, package=n, core=0, siblings=[0, n]) for n in (1, 2)]
    assert topology.cores(rows) == [[0, 1], [2]]
    assert topology.packages(rows) == [[0, 1], [2]]


def test_directories_fifos_and_long_files_are_harmless(tmp_path: Path) -> None:
    trees.write_machine_with_offline_cpu(tmp_path)
    at = tmp_path / trees.CPU
    (at / "cpu0/topology/core_id").unlink()
    (at / "cpu0/topology/core_id").mkdir()
    (at / "cpu0/topology/die_id").unlink()
    os.mkfifo(at / "cpu0/topology/die_id")
    (at / "possible").write_bytes(b"1," * 10_000_000)
    row = topology.read_cpus(tmp_path)[0]
    assert (row.core, row.die, row.package) == (None, None, 0)


FILES = [
    *(f"{trees.CPU}/{name}" for name in ("present", "possible", "online", "cpu0/online")),
    *(
        f"{trees.CPU}/cpu{n}/{name}"
        for n in range(3)
        for name in (
            "topology/physical_package_id",
            "topology/die_id",
            "topology/core_id",
            "topology/core_cpus_list",
            "topology/thread_siblings_list",
            "cache/index3/level",
            "cache/index3/id",
            "cache/index3/shared_cpu_list",
            "cpu_capacity",
        )
    ),
    "sys/devices/system/node/node0/cpulist",
    "sys/devices/cpu_core/cpus",
    "proc/stat",
    "proc/cpuinfo",
]
CONTENTS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"0", b"1", b"2", b"3", b"-1", b"0-2", b"0,2", b"1-2", b"0-9", b"cpu1 2"]),
    st.builds(
        "processor: {}\nphysical id: {}\ncore id: {}\n\n".format, *[st.integers(-1, 3)] * 3
    ).map(str.encode),
)


@given(st.dictionaries(st.sampled_from(FILES), CONTENTS))
def test_no_file_content_raises(contents: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for path, content in contents.items():
            trees.put(root, path, content)
        rows = topology.read_cpus(root)
        identity.read_identity(root)
        identity.virtualisation(root)
    numbers = [row.cpu for row in rows]
    assert numbers == sorted(set(numbers))
    due = sorted(row.cpu for row in rows if row.online or row.core is not None or row.siblings)
    for groups in (topology.cores(rows), topology.packages(rows)):
        grouped = [cpu for group in groups for cpu in group]
        assert len(grouped) == len(set(grouped))
        assert set(due) <= set(grouped) <= set(numbers)
        assert all(group == sorted(group) for group in groups)
    ids = {row.cpu: row for row in rows}
    for core in topology.cores(rows):
        assert len({ids[cpu].package for cpu in core} - {None}) <= 1

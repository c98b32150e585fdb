"""Compares topology.read_cpus with topologies that are written here by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import trees

from perfprobe.cpu import files, topology
from perfprobe.wire import Cpu


def test_a_xeon_has_two_packages_and_smt(tmp_path: Path) -> None:
    trees.write_xeon(tmp_path)
    rows = topology.read_cpus(tmp_path)
    assert [row.cpu for row in rows] == list(range(96))
    assert rows[0] == Cpu(0, True, 0, 0, 0, 0, 0, 0, None, [0, 48])
    assert rows[23] == Cpu(23, True, 0, 0, 23, 0, 0, 0, None, [23, 71])
    assert rows[24] == Cpu(24, True, 1, 0, 0, 0, 1, 1, None, [24, 72])
    assert rows[95] == Cpu(95, True, 1, 0, 23, 1, 1, 1, None, [47, 95])
    assert topology.cores(rows) == [[n, n + 48] for n in range(48)]
    first, second = topology.packages(rows)
    assert first == [*range(24), *range(48, 72)]
    assert second == [*range(24, 48), *range(72, 96)]


def test_epyc_has_sixteen_l3_groups(tmp_path: Path) -> None:
    trees.write_epyc(tmp_path)
    rows = topology.read_cpus(tmp_path)
    assert rows[63] == Cpu(63, True, 0, 0, 63, 0, 7, 0, None, [63, 191])
    assert rows[255] == Cpu(255, True, 1, 0, 63, 1, 15, 1, None, [127, 255])
    groups = {n: [row.cpu for row in rows if row.l3 == n] for n in range(16)}
    assert groups[0] == [*range(8), *range(128, 136)]
    assert groups[15] == [*range(120, 128), *range(248, 256)]
    assert len(topology.cores(rows)) == 128


def test_a_hybrid_has_core_types(tmp_path: Path) -> None:
    trees.write_hybrid(tmp_path)
    rows = topology.read_cpus(tmp_path)
    assert rows[15] == Cpu(15, True, 0, 0, 28, 1, 0, 0, "P", [14, 15])
    assert rows[16] == Cpu(16, True, 0, 0, 32, 0, 0, 0, "E", [16])
    assert [len(core) for core in topology.cores(rows)] == [2] * 8 + [1] * 16
    trees.put(tmp_path, "sys/devices/cpu_atom/cpus", "16-29\n")
    trees.put(tmp_path, "sys/devices/cpu_lowpower/cpus", "30-31\n")
    assert [row.type for row in topology.read_cpus(tmp_path)] == ["P"] * 16 + ["E"] * 14 + ["L"] * 2


@pytest.mark.parametrize(("file", "strong", "weak", "types"), [
    # capacities with favoured cores
    ("cpu_capacity", ("1024", "1009"), "623", ["P"] * 16 + ["E"] * 16),
    ("cpufreq/base_frequency", ("3700000",) * 2, "3200000", ["P"] * 16 + ["E"] * 16),
    ("cpu_capacity", ("1024",) * 2, "1024", [None] * 32),
    ("cpu_capacity", ("1024", "1000"), "960", [None] * 32),
    ("cpu_capacity", ("1000",) * 2, "900", [None] * 32),
    ("cpu_capacity", ("1000",) * 2, "899", ["P"] * 16 + ["E"] * 16),
    ("cpu_capacity", ("1024",) * 2, "0", [None] * 32),
])  # fmt: skip
def test_core_types_by_capacity_or_base_clock(
    tmp_path: Path, file: str, strong: tuple[str, str], weak: str, types: list[str | None]
) -> None:
    trees.write_hybrid(tmp_path, pmus=False)
    for n in range(32):
        trees.put(tmp_path, f"{trees.CPU}/cpu{n}/{file}", strong[n % 2] if n < 16 else weak)
    assert [row.type for row in topology.read_cpus(tmp_path)] == types


def test_a_core_type_is_ranked_by_its_strongest_cpu(tmp_path: Path) -> None:
    """Some small cores are favoured as well: 640 is closer to 690 than to 1024."""
    trees.write_hybrid(tmp_path, pmus=False)
    for n in range(32):
        weak = "690" if n % 2 else "640"
        trees.put(tmp_path, f"{trees.CPU}/cpu{n}/cpu_capacity", "1024" if n < 16 else weak)
    assert [row.type for row in topology.read_cpus(tmp_path)] == ["P"] * 16 + ["E"] * 16


def test_one_socket_with_speed_select_is_not_a_hybrid(tmp_path: Path) -> None:
    """An Ice Lake-SP with 12 cores of high priority: 2.7 GHz, the others 2.1 GHz."""
    for n in range(36):
        at = f"{trees.CPU}/cpu{n}"
        trees.put(tmp_path, f"{at}/topology/core_cpus_list", f"{n % 18},{n % 18 + 18}\n")
        trees.put(tmp_path, f"{at}/topology/physical_package_id", "0\n")
        trees.put(tmp_path, f"{at}/topology/core_id", f"{n % 18}\n")
        trees.put(tmp_path, f"{at}/cpufreq/base_frequency", "2700000" if n % 3 else "2100000")
    for name in ("online", "possible", "present"):
        trees.put(tmp_path, f"{trees.CPU}/{name}", "0-35\n")
    rows = topology.read_cpus(tmp_path)
    assert len(rows) == 36
    assert {row.type for row in rows} == {None}


def test_power_has_eight_threads_and_caches_without_ids(tmp_path: Path) -> None:
    trees.write_power_machine(tmp_path)
    rows = topology.read_cpus(tmp_path)
    assert rows[63] == Cpu(63, True, 8, None, 56, 7, 56, 8, None, list(range(56, 64)))
    assert topology.cores(rows)[1] == [8, 9, 10, 11, 12, 13, 14, 15]
    assert topology.packages(rows) == [list(range(32)), list(range(32, 64))]


def test_an_offline_cpu_keeps_the_kernels_topology(tmp_path: Path) -> None:
    trees.write_machine_with_offline_cpu(tmp_path)
    trees.put(tmp_path, f"{trees.CPU}/cpu5/topology/core_id", "1")
    trees.put(tmp_path, f"{trees.CPU}/cpu5/topology/physical_package_id", "0")
    trees.put(tmp_path, f"{trees.CPU}/cpu5/topology/die_id", "0")
    rows = topology.read_cpus(tmp_path)
    assert rows[5] == Cpu(5, False, 0, 0, 1, 1)
    assert rows[1].siblings == [1]
    assert [1, 5] in topology.cores(rows)


def test_ids_of_minus_one_are_unknown(tmp_path: Path) -> None:
    trees.write_arm_like_machine(tmp_path)
    rows = topology.read_cpus(tmp_path)
    assert rows[2] == Cpu(2, True, None, None, 0, 0, None, None, "P", [2])
    assert sorted(topology.cores(rows)) == [[0], [1], [2], [3]]
    assert topology.packages(rows) == [[0, 1, 2, 3]]


def test_many_cpus_need_few_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees.write_big_machine(tmp_path)
    opened = 0
    head = files.read_head

    def counted(path: str, limit: int) -> str | None:
        nonlocal opened
        opened += 1
        return head(path, limit)

    monkeypatch.setattr(files, "read_head", counted)
    rows = topology.read_cpus(tmp_path)
    cores = topology.cores(rows)
    assert (len(rows), len(cores)) == (256, 128)
    assert rows[255] == Cpu(255, True, 1, 0, 63, 1, 7, 3, None, [127, 255])
    assert opened < 6.5 * 256

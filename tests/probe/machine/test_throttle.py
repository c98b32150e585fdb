"""Counts of the kernel's thermal interrupts."""

from __future__ import annotations

import os
from pathlib import Path

import trees

from perfprobe.cpu import topology
from perfprobe.machine import cpu_files

THROTTLE_DIR = "thermal_throttle"


def write_machine(root: Path, *names: str) -> None:
    """Two cores of two threads in one package."""
    trees.machine(root, 2, 2)
    for cpu in range(4):
        for number, name in enumerate(names):
            trees.put(root, f"{trees.CPU}/cpu{cpu}/{THROTTLE_DIR}/{name}", f"{10 * cpu + number}\n")


def test_cores_and_packages_have_the_existing_files(tmp_path: Path) -> None:
    write_machine(
        tmp_path,
        "core_throttle_total_time_ms",
        "core_throttle_max_time_ms",
        "core_throttle_count",
        "package_throttle_count",
        "package_power_limit_count",
    )
    core, package = cpu_files.throttle_parts(tmp_path, topology.read_cpus(tmp_path))
    assert (core.scope, package.scope) == ("core", "package")
    assert [(c.key, c.unit, c.scale) for c in core.counters] == [
        ("core_throttled_s", "s", 1e-3),
        ("core_throttles", "1", 1.0),
    ]
    assert [c.key for c in package.counters] == ["package_throttles", "package_power_limits"]
    assert [slot.column for slot in core.open(3)] == [0, 1]
    core.close()


def test_an_offline_cpu_is_not_read(tmp_path: Path) -> None:
    write_machine(tmp_path)
    trees.lists(tmp_path, "0-3", "1-3")
    trees.put(tmp_path, f"{trees.CPU}/cpu1/{THROTTLE_DIR}/core_throttle_count", "3\n")
    (core,) = cpu_files.throttle_parts(tmp_path, topology.read_cpus(tmp_path))
    assert [c.key for c in core.counters] == ["core_throttles"]


def test_the_open_files_of_kvm_are_read_for_each_package(tmp_path: Path) -> None:
    write_machine(tmp_path)
    assert cpu_files.kvm_user_parts(tmp_path) == []
    trees.put(tmp_path, "sys/module/kvm_amd/refcnt", "12\n")
    (part,) = cpu_files.kvm_user_parts(tmp_path)
    assert (part.scope, [c.key for c in part.counters]) == ("package", ["kvm_users"])
    (slot,) = part.open(0)
    assert os.pread(slot.fd, 64, 0) == b"12\n"
    part.close()

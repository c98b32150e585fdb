"""The kernel's files about turbo, from a tree of files through the C helper to frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trees
from frame_rows import raw_values
from frame_rows import valid_mask as valid_
from waiting import first_frame

from perfprobe.machine.source import Machine
from perfprobe.opening import open_os
from perfprobe.wire import Frame, Hello

Values = dict[str, list[int | None]]
ZONE = "sys/class/powercap/intel-rapl:0"


def write_tree(root: Path) -> None:
    """Writes the files of a package with two cores of two threads."""
    trees.write_machine(root, 2, 2)
    for cpu in range(4):
        at = f"{trees.CPU}/cpu{cpu}"
        trees.put(root, f"{at}/cpufreq/scaling_max_freq", f"{3_000_000 + cpu}\n")
        trees.put(root, f"{at}/cpufreq/cpuinfo_max_freq", "3700000\n")
        trees.put(root, f"{at}/cpufreq/base_frequency", "2100000\n")
        trees.put(root, f"{at}/thermal_throttle/core_throttle_total_time_ms", f"{100 + cpu}\n")
        trees.put(root, f"{at}/thermal_throttle/core_throttle_count", f"{cpu}\n")
        trees.put(root, f"{at}/thermal_throttle/package_throttle_count", f"{10 + cpu}\n")
    trees.put(root, f"{trees.CPU}/intel_pstate/no_turbo", "0\n")
    for name, text in (
        ("name", "package-0"),
        ("constraint_0_name", "long_term"),
        ("constraint_0_power_limit_uw", "150000000"),
        ("energy_uj", "1000000"),
        ("max_energy_range_uj", "262143328850"),
    ):
        trees.put(root, f"{ZONE}/{name}", f"{text}\n")


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Machine]:
    write_tree(tmp_path)
    source = open_os(tmp_path, 10_000_000, None)
    yield source
    source.close()


def values(
    source: Machine, is_accepted: Callable[[Values], bool] = lambda _: True, off: int = 0
) -> Values:
    """Returns the values of the next accepted frame in which exactly `off` CPUs have no values."""

    def whole(frame: Frame) -> Values | None:
        result = _read(source.hello, frame)
        is_whole = result["max_hz"].count(None) == off and None not in result["core_throttles"]
        return result if is_whole and is_accepted(result) else None

    result: Values = first_frame(source, whole)
    return result


def _read(hello: Hello, frame: Frame) -> Values:
    """Returns the first column of each row by key; None for values that are not valid."""
    results: Values = {}
    for key in (counter.key for block in hello.blocks for counter in block.counters):
        values, valid = (
            get(hello, frame.blocks, key)[:, 0].tolist() for get in (raw_values, valid_)
        )
        results[key] = [v if ok else None for v, ok in zip(values, valid, strict=True)]
    return results


def test_the_remaining_cpu_reads_shared_files(source: Machine, tmp_path: Path) -> None:
    """After CPU 1 has gone offline, CPU 3 reads the row of their core."""
    values(source)
    trees.put(tmp_path, f"{trees.CPU}/online", "0,2-3\n")
    # an earlier frame may lack a CPU that was late
    result = values(source, lambda now: now["core_throttled_s"] == [100, 103], off=1)
    assert result["max_hz"][1] is None
    assert result["package_throttles"] == [10]

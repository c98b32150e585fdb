"""TPMI's limit reasons: files of a real Sierra Forest, and changes in them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import trees
from capabilities import DAC_OVERRIDE, DAC_READ_SEARCH, has_capabilities
from synth import Clock

from perfprobe.cpu import topology
from perfprobe.polled.firmware_limits import PLR_BITS, PLR_KEY, LimitStatus

DATA = Path(__file__).parents[2] / "data/plr-srf8"
NAMES = ("tpmi-0000:00:03.1", "tpmi-0000:80:03.1")
QUIET = "cpus none\n" + "".join(f"cpu{cpu} none\n" for cpu in range(64))


NAMES_OF_BITS = """
FREQUENCY CURRENT POWER THERMAL PLATFORM MCP RAS MISC QOS DFC
FREQUENCY_CDYN0 FREQUENCY_CDYN1 FREQUENCY_CDYN2 FREQUENCY_CDYN3 FREQUENCY_CDYN4 FREQUENCY_CDYN5
FREQUENCY_FCT FREQUENCY_PCS_TRL CURRENT_MTPMAX POWER_FAST_RAPL
POWER_PKG_PL1_MSR_TPMI POWER_PKG_PL1_MMIO POWER_PKG_PL1_PCS
POWER_PKG_PL2_MSR_TPMI POWER_PKG_PL2_MMIO POWER_PKG_PL2_PCS
POWER_PLATFORM_PL1_MSR_TPMI POWER_PLATFORM_PL1_MMIO POWER_PLATFORM_PL1_PCS
POWER_PLATFORM_PL2_MSR_TPMI POWER_PLATFORM_PL2_MMIO POWER_PLATFORM_PL2_PCS
THERMAL_PER_CORE DFC_UFS PLATFORM_PROCHOT PLATFORM_HOT_VR MISC_PCS_PSTATE
"""
"""plr_coarse_reasons and plr_fine_reasons of Linux's intel_plr_tpmi.c."""


def test_the_bits_have_the_names_of_the_driver() -> None:
    assert list(PLR_BITS) == NAMES_OF_BITS.split()


def write_status(root: Path, package: int, text: str) -> None:
    trees.put(root, f"sys/kernel/debug/{NAMES[package]}/plr/domain0/status", text)


@pytest.fixture
def two_packages(tmp_path: Path) -> Path:
    """Two packages of 64 CPUs, like the machine of the files."""
    trees.write_machine(tmp_path, 64, packages=2)
    for package, name in enumerate(("status-00", "status-80")):
        write_status(tmp_path, package, (DATA / name).read_text())
    return tmp_path


def newly_set(source: LimitStatus) -> list[tuple[int, dict[str, int]] | None]:
    """By package: number of reads, and in how many of them each bit was newly set; None: not
    valid."""
    results = []
    for _, (looks, *bits) in source.read():
        report = {part: count for part, count in zip(PLR_BITS, bits, strict=True) if count}
        results.append(None if looks is None else (looks, report))
    return results


def test_bits_set_before_the_start_are_named(two_packages: Path) -> None:
    """All bits of the real machine were set before the start, so none is newly set."""
    clock = Clock()
    source = LimitStatus(two_packages, topology.read_cpus(two_packages), clock)
    first, second = source.missing
    assert (first.what, first.cpus) == (PLR_KEY, list(range(64)))
    assert first.why.startswith("POWER, POWER_PLATFORM_PL1_PCS: set before perftop started")
    assert second.why.startswith("POWER, POWER_PLATFORM_PL1_MSR_TPMI: set before perftop started")
    clock.now_s += 2
    assert newly_set(source) == [(1, {}), (1, {})]
    source.close()


def test_a_bit_counts_once_when_it_is_set(two_packages: Path) -> None:
    write_status(two_packages, 0, QUIET)
    clock = Clock()
    source = LimitStatus(two_packages, topology.read_cpus(two_packages), clock)
    limited = QUIET.replace("cpu3 none", "cpu3 POWER THERMAL_PER_CORE UNKNOWN(62)")
    write_status(two_packages, 0, limited.replace("cpus none", "cpus POWER"))
    assert newly_set(source)[0] == (0, {}), "the last look was less than a second ago"
    clock.now_s += 1
    assert newly_set(source)[0] == (1, {"POWER": 1, "THERMAL_PER_CORE": 1})
    clock.now_s += 1
    assert newly_set(source)[0] == (2, {"POWER": 1, "THERMAL_PER_CORE": 1}), "it is sticky"
    write_status(two_packages, 0, QUIET)  # another program has cleared the bit
    clock.now_s += 1
    newly_set(source)
    write_status(two_packages, 0, limited)
    clock.now_s += 1
    assert newly_set(source)[0] == (4, {"POWER": 2, "THERMAL_PER_CORE": 2})
    write_status(two_packages, 0, "")  # the mailbox did not answer
    clock.now_s += 1
    assert newly_set(source)[0] is None
    source.close()


def test_a_die_without_lines_of_cpus_is_counted(tmp_path: Path) -> None:
    """The first version of the driver wrote such files."""
    trees.write_machine(tmp_path, 1)
    write_status(tmp_path, 0, "cpus none\n")
    clock = Clock()
    source = LimitStatus(tmp_path, topology.read_cpus(tmp_path), clock)
    write_status(tmp_path, 0, "cpus THERMAL\n")
    clock.now_s += 1
    assert newly_set(source) == [(1, {"THERMAL": 1})]
    source.close()


@pytest.mark.skipif(
    has_capabilities(DAC_OVERRIDE) or has_capabilities(DAC_READ_SEARCH),
    reason="it may read everything",
)
def test_an_unreadable_status_file_has_a_reason(two_packages: Path) -> None:
    (two_packages / f"sys/kernel/debug/{NAMES[0]}/plr/domain0/status").chmod(0)
    source = LimitStatus(two_packages, topology.read_cpus(two_packages))
    assert "Permission denied" in source.missing[0].why
    source.close()


def test_a_forbidden_debugfs_is_as_none(
    two_packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AppArmor, for example, may deny even a stat."""

    def forbid(_: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    rows = topology.read_cpus(two_packages)
    monkeypatch.setattr(Path, "is_dir", forbid)
    source = LimitStatus(two_packages, rows)
    assert (source.block.counters, source.missing) == ([], [])


def test_a_machine_without_limit_status_sends_no_block(tmp_path: Path) -> None:
    trees.write_machine(tmp_path, 1)
    source = LimitStatus(tmp_path, topology.read_cpus(tmp_path))
    assert (source.block.counters, source.missing) == ([], [])

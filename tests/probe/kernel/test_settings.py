"""Settings of a simulated system."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfprobe.kernel.settings import settings

CPUS = "sys/devices/system/cpu"


def made(root: Path, **files: str) -> Path:
    paths = {
        "policy0": f"{CPUS}/cpufreq/policy0/scaling_governor",
        "policy4": f"{CPUS}/cpufreq/policy4/scaling_governor",
        "boost": f"{CPUS}/cpufreq/boost",
        "mds": f"{CPUS}/vulnerabilities/mds",
        "spectre_v2": f"{CPUS}/vulnerabilities/spectre_v2",
        "meltdown": f"{CPUS}/vulnerabilities/meltdown",
        "huge_pages": "sys/kernel/mm/transparent_hugepage/enabled",
        "memory": "proc/meminfo",
    }
    for name, content in files.items():
        path = root / paths[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def test_settings_by_name(tmp_path: Path) -> None:
    root = made(
        tmp_path, policy0="powersave", policy4="performance", boost="0",
        mds="Vulnerable: Clear CPU buffers attempted, no microcode", spectre_v2="Mitigation: IBRS",
        huge_pages="always [madvise] never", memory="MemTotal:       16384000 kB\nMemFree: 1 kB",
    )  # fmt: skip
    assert settings(root) == {
        "governor": "performance, powersave", "turbo": "off", "vulnerable_to": "mds",
        "costly_mitigations": "spectre_v2: IBRS", "huge_pages": "madvise", "memory": "15.6 GiB",
    }  # fmt: skip


@pytest.mark.parametrize(("disabled", "deepest"), [("0", "C6, 170 us"), ("1", "C1, 2 us")])
def test_the_deepest_idle_state_is_the_slowest_that_is_enabled(
    tmp_path: Path, disabled: str, deepest: str
) -> None:
    for n, state in enumerate([("POLL", "0", "0"), ("C1", "2", "0"), ("C6", "170", disabled)]):
        at = tmp_path / CPUS / f"cpu0/cpuidle/state{n}"
        at.mkdir(parents=True)
        for name, text in zip(("name", "latency", "disable"), state, strict=True):
            (at / name).write_text(f"{text}\n")
    assert settings(tmp_path) == {"deepest_idle_state": deepest}


def test_missing_settings_are_left_out(tmp_path: Path) -> None:
    assert settings(tmp_path) == {}


def test_default_settings_are_left_out(tmp_path: Path) -> None:
    assert settings(made(tmp_path, mds="Not affected")) == {"vulnerable_to": "nothing"}


@pytest.mark.parametrize(
    ("content", "costly"),
    [
        ("IBRS; IBPB: conditional", "IBRS"),
        ("IBRS, IBPB", "IBRS"),
        ("Enhanced / Automatic IBRS", ""),
    ],
)
def test_mitigations_that_slow_system_calls_are_named(
    tmp_path: Path, content: str, costly: str
) -> None:
    root = made(tmp_path, spectre_v2=f"Mitigation: {content}", meltdown="Mitigation: PTI")
    wanted = "meltdown: PTI" + (f", spectre_v2: {costly}" if costly else "")
    assert settings(root)["costly_mitigations"] == wanted


@pytest.mark.parametrize(
    ("default", "batch", "caps"),
    [
        ("    MB:0=100;1=100\nL3:0=fff", "    MB:0=100;1=10", "batch 10"),
        ("MB:0=40;1=100", "L3:0=ff", "the default group 40"),
        ("MB:0=2048;1=2048", "MB:0=16;1=2048", "batch 16"),
        ("MB:0=2048", "MB:0=2048", ""),
        ("L3:0=fff", "MB:0=x", ""),
    ],
)
def test_groups_with_a_cap_on_memory_bandwidth(
    tmp_path: Path, default: str, batch: str, caps: str
) -> None:
    for group, content in (("", default), ("batch", batch)):
        path = tmp_path / "sys/fs/resctrl" / group / "schemata"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    assert settings(tmp_path).get("bandwidth_caps", "") == caps


def test_values_are_bounded(tmp_path: Path) -> None:
    assert len(settings(made(tmp_path, huge_pages="x" * 4000))["huge_pages"]) == 200

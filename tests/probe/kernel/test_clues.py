"""Settings of a simulated system, and messages of the kernel's log, from a file that a test
extends."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from perfprobe.kernel.clues import KernelLog, call_time_text, read_settings

CPUS = "sys/devices/system/cpu"


def write_tree(root: Path, **files: str) -> Path:
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


def test_settings_are_read_by_name(tmp_path: Path) -> None:
    root = write_tree(
        tmp_path, policy0="powersave", policy4="performance", boost="0",
        mds="Vulnerable: Clear CPU buffers attempted, no microcode", spectre_v2="Mitigation: IBRS",
        huge_pages="always [madvise] never", memory="MemTotal:       16384000 kB\nMemFree: 1 kB",
    )  # fmt: skip
    assert read_settings(root) == {
        "governor": "performance, powersave", "turbo": "off", "vulnerable_to": "mds",
        "costly_mitigations": "spectre_v2: IBRS", "huge_pages": "madvise", "memory": "15.6 GiB",
    }  # fmt: skip


def test_a_long_setting_is_cut(tmp_path: Path) -> None:
    settings = read_settings(write_tree(tmp_path, policy0="x" * 300))
    assert settings["governor"] == "x" * 200


def test_default_settings_are_left_out(tmp_path: Path) -> None:
    assert read_settings(write_tree(tmp_path, mds="Not affected")) == {"vulnerable_to": "nothing"}


@pytest.mark.parametrize(("content", "costly"), [
    ("IBRS; IBPB: conditional", "IBRS"),
    ("IBRS, IBPB", "IBRS"),
    ("Enhanced / Automatic IBRS", ""),
])  # fmt: skip
def test_mitigations_that_slow_system_calls_are_named(
    tmp_path: Path, content: str, costly: str
) -> None:
    root = write_tree(tmp_path, spectre_v2=f"Mitigation: {content}", meltdown="Mitigation: PTI")
    wanted = "meltdown: PTI" + (f", spectre_v2: {costly}" if costly else "")
    assert read_settings(root)["costly_mitigations"] == wanted


def test_a_slow_call_has_its_time() -> None:
    def sleep() -> int:
        time.sleep(0.0003)
        return 0

    slow, fast = (float(call_time_text(call).removesuffix(" µs")) for call in (sleep, lambda: 0))
    assert slow >= 300 > fast


@pytest.mark.parametrize(("default", "batch", "caps"), [
    ("    MB:0=100;1=100\nL3:0=fff", "    MB:0=100;1=10", "batch 10"),
    ("MB:0=40;1=100", "L3:0=ff", "the default group 40"),
    ("MB:0=101", "L3:0=ff", "the default group 101"),
    ("MB:0=2048;1=2048", "MB:0=16;1=2048", "batch 16"),
    ("MB:0=2048", "MB:0=2048", ""),
    ("L3:0=fff", "MB:0=x", ""),
])  # fmt: skip
def test_groups_with_a_cap_on_memory_bandwidth_are_named(
    tmp_path: Path, default: str, batch: str, caps: str
) -> None:
    for group, content in (("", default), ("batch", batch)):
        path = tmp_path / "sys/fs/resctrl" / group / "schemata"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    assert read_settings(tmp_path).get("bandwidth_caps", "") == caps


# --- the kernel's log

OLD = "4,1,10,-;x86/split lock detection: #AC: old/3 took a split_lock trap at address: 0x40\n"
NEW = (
    "4,2,20,-;x86/split lock detection: #AC: CPU 0/KVM/88279 took a split_lock trap at 0x1\n"
    "4,3,30,-;x86/split lock detection: #DB: a b/7 (user) took a bus_lock trap at address: 0x2\n"
    "6,4,40,-;eth0: link up\n"
    "4,5,50,-;EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Chan#1_DIMM#0 (channel:1 slot:0)\n"
    "4,6,60,-;EDAC MC0: 2 CE memory read error on CPU_SrcID#0_Chan#1_DIMM#0 (channel:1 slot:0)\n"
)


def test_new_messages_name_tasks_and_memory(tmp_path: Path) -> None:
    log = tmp_path / "dev/kmsg"
    log.parent.mkdir()
    log.write_text(OLD)
    reader = KernelLog(tmp_path)
    assert os.lseek(reader._fd, 0, os.SEEK_CUR) == len(OLD)
    assert reader.record() == []
    with log.open("a") as file:
        file.write(NEW)
    assert reader.record() == [
        ["split-lock", "CPU 0/KVM[88279]", 1],
        ["split-lock", "a b[7]", 1],
        ["memory-errors", "CPU_SrcID#0_Chan#1_DIMM#0", 2],
    ]
    assert reader.record() == []
    reader.close()
    reader.close()


def test_reading_a_log_without_new_messages_does_not_wait(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")  # a fifo can be read without waiting, like the kernel's log
    writer = os.open(tmp_path / "dev/kmsg", os.O_RDWR)
    reader = KernelLog(tmp_path)
    assert reader.record() == []
    os.write(writer, NEW.encode())
    assert len(reader.record()) == 3
    os.close(writer)
    reader.close()


@pytest.mark.parametrize(("disabled", "deepest"), [("0", "C6, 170 µs"), ("1", "C1, 2 µs")])
def test_the_deepest_idle_state_is_the_slowest_that_is_enabled(
    tmp_path: Path, disabled: str, deepest: str
) -> None:
    for n, state in enumerate([("POLL", "0", "0"), ("C1", "2", "0"), ("C6", "170", disabled)]):
        at = tmp_path / CPUS / f"cpu0/cpuidle/state{n}"
        at.mkdir(parents=True)
        for name, text in zip(("name", "latency", "disable"), state, strict=True):
            (at / name).write_text(f"{text}\n")
    assert read_settings(tmp_path) == {"deepest_idle_state": deepest}


def test_values_are_bounded(tmp_path: Path) -> None:
    assert len(read_settings(write_tree(tmp_path, huge_pages="x" * 4000))["huge_pages"]) == 200

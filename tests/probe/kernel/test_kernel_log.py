"""Messages of the kernel's log, from a file that a test extends."""

from __future__ import annotations

import os
from pathlib import Path

from perfprobe.kernel.kernel_log import KernelLog

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


def test_a_log_with_nothing_new_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")  # read without waiting, as the kernel's log is
    writer = os.open(tmp_path / "dev/kmsg", os.O_RDWR)
    reader = KernelLog(tmp_path)
    assert reader.record() == []
    os.write(writer, NEW.encode())
    assert len(reader.record()) == 3
    os.close(writer)
    reader.close()


def test_a_log_that_may_not_be_read_names_nothing(tmp_path: Path) -> None:
    reader = KernelLog(tmp_path)
    assert reader.record() == []
    reader.close()

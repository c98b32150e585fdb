"""Whether any task was born: by a file that the test writes, and by this machine."""

from __future__ import annotations

import os
from pathlib import Path

import trees

from perfprobe.kernel.task_files import Births


def test_a_new_last_number_is_a_birth(tmp_path: Path) -> None:
    trees.put(tmp_path, "loadavg", "0.20 0.18 0.12 1/80 11206\n")
    births = Births(str(tmp_path))
    assert births.any()  # since ever
    assert not births.any()
    for last in (11207, 300):  # numbers begin anew
        trees.put(tmp_path, "loadavg", f"0.20 0.18 0.12 1/80 {last}\n")
        assert births.any()
        assert not births.any()
    births.close()


def test_nothing_is_ruled_out_if_the_last_number_is_not_told(tmp_path: Path) -> None:
    assert Births(str(tmp_path)).any()
    births = Births(str(tmp_path))
    assert births.any()
    for text in ("", "0.00 0.00 0.00 0/0 0\n", "0.20 0.18 0.12 1/80 x\n"):  # the second: gVisor
        trees.put(tmp_path, "loadavg", text)
        births = Births(str(tmp_path))
        assert births.any()
        assert births.any()
        births.close()
    assert births.any()


def test_a_file_of_another_file_system_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "loadavg").symlink_to("/proc/loadavg")
    births = Births(str(tmp_path))
    for _ in range(20):
        assert births.any()


def test_a_child_of_ours_is_a_birth() -> None:
    births = Births("/proc")
    births.any()
    for _ in range(5):
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert births.any()
    births.close()

"""Files that only their owner can read, error messages, and imports of large modules."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from perftop.base import files
from perftop.base.errors import (
    Failed,
    expected_failure,
    failure_to,
    failure_to_write,
    output_failure,
    save_traceback,
)


def test_a_new_file_is_private_to_its_owner(tmp_path: Path) -> None:
    with files.create(tmp_path / "out", force=False) as file:
        file.write(b"x")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


def test_a_replaced_file_is_private_to_its_owner(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")
    (tmp_path / "out").chmod(0o644)
    with pytest.raises(Failed, match="--force"):
        files.create(tmp_path / "out", force=False)
    with files.create(tmp_path / "out", force=True) as file:
        file.write(b"x")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "out").read_bytes() == b"x"


def test_a_device_is_not_replaced() -> None:
    before = Path("/dev/null").stat().st_mode
    files.create(Path("/dev/null"), force=False).close()
    assert Path("/dev/null").stat().st_mode == before


def test_a_removed_file_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with files.create(path, force=False) as file:
        file.write(b"x")
        file.flush()
        path.unlink()
        file.write(b"y")
        with pytest.raises(Failed, match="out was removed while it was written"):
            file.flush()


def test_a_pipe_cannot_be_removed() -> None:
    ours, theirs = os.pipe()
    with files.create(Path(f"/proc/self/fd/{theirs}"), force=False) as file:
        file.write(b"x")
    assert os.read(ours, 2) == b"x"
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize(("max_bytes", "content"), [(3, b"abc"), (2, None)])
def test_a_file_of_the_user_is_read_up_to_its_maximum_size(
    tmp_path: Path, max_bytes: int, content: bytes | None
) -> None:
    (tmp_path / "own").write_bytes(b"abc")
    assert files.read_own_file(tmp_path / "own", max_bytes) == content


def test_a_counter_stays_wrong_until_all_its_checks_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def save(wrong: list[str], *checks: tuple[str, str, bool]) -> None:
        rows = [dict(zip(("counter", "verdict", "disturbed"), row, strict=True)) for row in checks]
        files.save_findings({"boot_id": "b", "time": 1, "wrong": wrong, "checks": rows})

    save(["a", "b", "c", "d"])
    save(["e"], ("a", "trusted", False), ("a", "wrong", False), ("b", "wrong", False),
         ("b", "trusted", False), ("c", "trusted", True), ("d", "close", False))  # fmt: skip
    assert files._saved_wrong_counters("b") == ["e", "a", "b", "c"]


@pytest.mark.parametrize(("path", "follow"), [
    ("a/b/c", False), ("a/link/c", False), ("a/link", True), ("a/loop", True), ("a/none/c", False),
])  # fmt: skip
def test_no_descriptor_remains_open(path: str, follow: bool, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/link").symlink_to("b")
    (tmp_path / "a/loop").symlink_to("loop")
    before = [*Path("/proc/self/fd").iterdir()]
    with contextlib.suppress(OSError), files.open_parent(tmp_path / path, follow=follow):
        assert len([*Path("/proc/self/fd").iterdir()]) == len(before) + 1
    assert [*Path("/proc/self/fd").iterdir()] == before


# --- errors


@pytest.mark.parametrize(("failed", "text"), [
    (failure_to("read a", OSError(errno.EIO, "bad disk")), "cannot read a: bad disk"),
    (failure_to("read a", OSError("no reason")), "cannot read a: no reason"),
    (failure_to_write("a", OSError(errno.EMFILE, "full")), "full: raise the limit on open files"),
    (output_failure(OSError(errno.ENOSPC, "no space")), "cannot write stdout: no space"),
    (output_failure(OSError(errno.EACCES, "no", "/x")), "cannot use /x: no"),
    (output_failure(OSError(errno.ECHILD, "no child")), "a system call failed (no child)"),
])  # fmt: skip
def test_an_error_names_its_file_or_host(failed: Exception, text: str) -> None:
    assert str(failed).startswith(text)


@pytest.mark.parametrize(("error", "text"), [
    (RuntimeError("can't start new thread"), "cannot start a thread"),
    (RuntimeError("a bug"), None), (ValueError("can't start new thread"), None),
    (MemoryError(), "not enough memory"),
    (ExceptionGroup("", [Failed("one"), MemoryError()]), "one"),
    (ExceptionGroup("", [Failed("one"), ValueError()]), None),
])  # fmt: skip
def test_shortages_and_refusals_are_no_bugs(error: Exception, text: str | None) -> None:
    failed = expected_failure(error)
    assert str(failed).startswith(str(text))


def test_a_bug_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    line = save_traceback(ValueError("x" * 300))
    (report,) = tmp_path.iterdir()
    assert line == f"internal error: ValueError: {'x' * 188}; the report is in {report}"
    assert report.read_text() == f"ValueError: {'x' * 300}\n"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    line = save_traceback(ValueError("x"))
    assert line == "internal error, and no report could be written: ValueError: x"


# --- imports of large modules


def test_numpy_starts_no_threads_and_child_processes_do_not_inherit_the_setting() -> None:
    code = (
        "import gc, os\n"
        "from perftop.verbs.options import fast_imports\n"
        "with fast_imports():\n"
        "    assert not gc.isenabled()\n"
        "    import numpy\n"
        "assert gc.isenabled() and gc.get_freeze_count()\n"
        "assert len(os.listdir('/proc/self/task')) == 1\n"
        "assert 'OPENBLAS_NUM_THREADS' not in os.environ\n"
    )
    env = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)

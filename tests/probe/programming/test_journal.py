"""The journal: its content before a register changes, and the checks of a file."""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from capabilities import CHOWN, has_capabilities
from waiting import process_state, wait_for

from perfprobe.programming import journal
from perfprobe.programming.counter_plan import Change
from perfprobe.programming.journal import Journal, UnusableError

BOOT = "b1"
CPUS = {
    0: {0x186: Change(0, 0x43023C), 0x38F: Change(8, 0xF)},
    300: {0xC0010200: Change(1, 1 << 22)},
}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(journal, "directories", lambda: [tmp_path / "perftop"])
    return journal.prepare_directory()


def test_root_uses_the_directory_of_every_other_root_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    system, session = Path("/run/perftop"), tmp_path / "perftop"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert journal.directories()[:2] == [system, session]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert journal.directories()[:2] == [session, system]
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert journal.directories()[0] == system


def test_another_version_finds_the_journal_by_its_name() -> None:
    path = journal.journal_path(Path("/run/perftop"), Path("/"))
    assert path == Path("/run/perftop/msr-8a5edab282632443.journal")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def write_journal(directory: Path, root: Path) -> Path:
    own = Journal(directory, BOOT, root)
    own.write(CPUS)
    return own.path


def forge_journal(path: Path, **changed: Any) -> None:
    """Rewrites a journal with the PID of a process that has ended, and with changed keys."""
    gone = 2**22 + 1  # above the highest PID
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": gone, **changed}))


def test_the_directory_is_private(directory: Path, root: Path, tmp_path: Path) -> None:
    path = write_journal(directory, root)
    assert directory == tmp_path / "perftop"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in directory.iterdir()] == [path.name]


def test_restored_values_start_no_counter(directory: Path, root: Path) -> None:
    """An earlier program left a select, without the global bit that enables it."""
    own = Journal(directory, BOOT, root)
    own.write({0: {0x186: Change(0x53003C, 0x43023C), 0x38D: Change(0x33, 0x333)}})
    entry = journal.read_journal(directory, BOOT, root)
    assert entry is not None
    assert entry.cpus == {0: {0x186: Change(0x03003C, 0x43023C), 0x38D: Change(0x33, 0x333)}}


def test_a_journal_is_read_back_as_written(directory: Path, root: Path) -> None:
    path = write_journal(directory, root)
    entry = journal.read_journal(directory, BOOT, root)
    assert entry is not None
    assert (entry.pid, entry.cpus, entry.is_live) == (os.getpid(), CPUS, True)
    assert journal.stale_entry(directory, BOOT, root) is None
    forge_journal(path)
    left = journal.stale_entry(directory, BOOT, root)
    assert left is not None
    assert (left.cpus, left.is_live) == (CPUS, False)


def test_a_journal_is_on_disk_before_it_has_its_name(
    directory: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def sync(fd: int) -> None:
        calls.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")

    def rename(*names: str, **directories: int) -> None:
        calls.append("name")

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    write_journal(directory, root)
    assert calls == ["file", "name", "directory"]


def test_a_reused_pid_is_not_the_writer(directory: Path, root: Path) -> None:
    for pid in (os.getpid(), 1):  # in a container perfprobe may be the first process
        forge_journal(write_journal(directory, root), pid=pid, start=-1)
        assert journal.stale_entry(directory, BOOT, root) is not None


def test_each_tree_has_its_own_journals(directory: Path, root: Path, tmp_path: Path) -> None:
    forge_journal(write_journal(directory, root))
    assert journal.read_journal(directory, BOOT, tmp_path) is None


def test_a_search_for_journals_makes_no_directory(root: Path, tmp_path: Path) -> None:
    assert journal.read_journal(tmp_path / "perftop", BOOT, root) is None
    assert not (tmp_path / "perftop").exists()


def test_a_journal_is_removed(directory: Path, root: Path) -> None:
    own = Journal(directory, BOOT, root)
    own.write(CPUS)
    own.write({})
    own.remove()
    own.remove()
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(("changed", "why"), [
    ({"boot_id": "b2"}, "before the last boot"),
    ({"root": "/elsewhere"}, "another machine"),
    ({"format": 2}, "another version of perftop"),
    ({"pid": "1"}, "not name the process"),
    ({"pid": -1}, "not name the process"),
    ({"pid": 0}, "not name the process"),
    ({"start": None}, "not name the process"),
    ({"cpus": {"-1": {}}}, "CPUs that cannot exist"),
    ({"cpus": {"x": {}}}, "its content is not a journal"),
    ({"cpus": []}, "its content is not a journal"),
    ({"cpus": {"0": {"0x1a0": ["0x0", "0x1"]}}}, "restore MSR 1A0H"),
    ({"cpus": {"0": {"0x10": ["0x0", "0x1"]}}}, "restore MSR 10H"),
    ({"cpus": {"0": {"0x199": ["0x0", "0x400000"]}}}, "restore MSR 199H"),
    # journals whose programmed value lacks the enabling bit, or whose restored value would act
    ({"cpus": {"0": {"0x186": ["0x0", "0x10003c"]}}}, "restore MSR 186H"),
    ({"cpus": {"0": {"0x186": ["0x0", "0x530000"]}}}, "restore MSR 186H"),  # it interrupts
    ({"cpus": {"0": {"0x186": ["0x1000000000000", "0x430000"]}}}, "restore MSR 186H"),
    ({"cpus": {"0": {"0x186": ["0x43003c", "0x430000"]}}}, "restore MSR 186H"),  # it would count
    ({"cpus": {"0": {"0x186": ["0x13003c", "0x430000"]}}}, "restore MSR 186H"),  # it interrupts
    ({"cpus": {"0": {"0xc0010200": ["0x400000", "0x430000"]}}}, "restore MSR C0010200H"),
    ({"cpus": {"0": {"0x38d": ["0x8", "0x3"]}}}, "restore MSR 38DH"),
    ({"cpus": {"0": {"0x38d": ["0x30", "0x3"]}}}, "restore MSR 38DH"),  # it would count
    ({"cpus": {"0": {"0x38f": ["0x10", "0xf"]}}}, "restore MSR 38FH"),
    ({"cpus": {"0": {"0xc0000301": ["0x10", "0xf"]}}}, "restore MSR C0000301H"),
    ({"cpus": {"0": {"0x38f": ["-0x8", "0x3"]}}}, "restore MSR 38FH"),
    ({"cpus": {"0": {"0x38f": ["0x8"]}}}, "its content is not a journal"),
])  # fmt: skip
def test_an_unusable_journal_is_rejected_with_its_reason(
    directory: Path, root: Path, changed: dict[str, Any], why: str
) -> None:
    path = write_journal(directory, root)
    forge_journal(path, **changed)
    with pytest.raises(UnusableError, match=why) as caught:
        journal.read_journal(directory, BOOT, root)
    text = str(caught.value)
    assert re.fullmatch(r"[a-zA-Z0-9 -]+", text), "an exception of Python has quotes or brackets"


def pad(path: Path, length: int) -> None:
    path.write_text(path.read_text().ljust(length))


def replace_with_link(path: Path) -> None:
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


def replace_with_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def give_to_another_user(path: Path) -> None:
    if not has_capabilities(CHOWN):
        pytest.skip("needs CAP_CHOWN, to give files away")
    os.chown(path, 1, 1)


CHANGES: dict[str, Callable[[Path], object]] = {
    "garbled": lambda path: path.write_bytes(b"\xff{"),
    "nested deeply": lambda path: path.write_text("[" * 100_000),
    "a list": lambda path: path.write_text("[]"),
    "empty": lambda path: path.write_bytes(b""),
    "too long": lambda path: pad(path, journal.MAX_JOURNAL_BYTES + 1),
    "a link": replace_with_link,
    "with two names": lambda path: os.link(path, path.with_suffix(".other")),
    "writable for others": lambda path: path.chmod(0o666),
    "of another user": give_to_another_user,
    "a FIFO": replace_with_fifo,
}


@pytest.mark.parametrize("change", CHANGES)
def test_files_that_are_not_journals_are_rejected(directory: Path, root: Path, change: str) -> None:
    path = write_journal(directory, root)
    forge_journal(path)
    pad(path, journal.MAX_JOURNAL_BYTES)
    assert journal.read_journal(directory, BOOT, root) is not None
    CHANGES[change](path)
    with pytest.raises(UnusableError, match=r"^[a-zA-Z ()]+$"):
        journal.read_journal(directory, BOOT, root)
    assert journal.stale_entry(directory, BOOT, root) is None


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_a_directory_that_others_can_enter_is_not_used(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setattr(journal, "directories", lambda: [tmp_path / "a", tmp_path / "b"])
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(mode)
    assert journal.prepare_directory() == tmp_path / "b"
    (tmp_path / "b").rmdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(OSError):
        journal.prepare_directory()
    (tmp_path / "b").unlink()
    (tmp_path / "b").touch(0o600)
    with pytest.raises(NotADirectoryError):
        journal.prepare_directory()
    assert journal.read_journal(tmp_path / "a", BOOT, root) is None


def test_a_parent_that_others_can_write_to_is_not_used(tmp_path: Path, root: Path) -> None:
    above = tmp_path / "open"
    above.mkdir()
    above.chmod(0o777)
    (above / "perftop").mkdir(mode=0o700)
    with pytest.raises(PermissionError), journal.locked_directory(above / "perftop"):
        pass
    above.chmod(0o1777)
    with journal.locked_directory(above / "perftop"):
        pass


@pytest.mark.parametrize("owner", [0, 1])
def test_the_directory_is_checked_up_to_the_root(tmp_path: Path, root: Path, owner: int) -> None:
    """A user who can replace a parent directory can replace the journal."""
    above = tmp_path / "a/b/c"
    above.mkdir(parents=True)
    (above / "perftop").mkdir(mode=0o700)
    with journal.locked_directory(above / "perftop"):
        pass
    if owner == os.geteuid():
        (tmp_path / "a").chmod(0o777)
    elif has_capabilities(CHOWN):
        os.chown(tmp_path / "a", owner, owner)
    else:
        pytest.skip("needs CAP_CHOWN, to give directories away")
    with pytest.raises(PermissionError), journal.locked_directory(above / "perftop"):
        pass
    assert journal.read_journal(above / "perftop", BOOT, root) is None


def test_a_link_in_the_path_is_as_safe_as_its_target(tmp_path: Path) -> None:
    """For example, /var/run is a link on most machines."""
    (tmp_path / "real/perftop").mkdir(parents=True, mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with journal.locked_directory(tmp_path / "link/perftop"):
        pass
    (tmp_path / "real").chmod(0o777)
    with pytest.raises(PermissionError), journal.locked_directory(tmp_path / "link/perftop"):
        pass


def test_only_one_start_at_a_time(directory: Path) -> None:
    """Two starts would find no journal, and record each other's registers as the original ones."""
    another = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with journal.locked_directory(directory), pytest.raises(BlockingIOError):
            fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(another)


def test_only_a_live_process_has_a_start_time() -> None:
    assert journal.start_time(os.getpid()) == journal.start_time(os.getpid()) != None  # noqa: E711
    assert journal.start_time(2**22 + 1) is None
    child = subprocess.Popen([sys.executable, "-c", ""])
    wait_for(lambda: process_state(child.pid) == "Z", "it has ended")
    assert journal.start_time(child.pid) is None
    child.wait()

"""The journal: a file with the values that MSRs had before perftop programmed them. If perftop is
killed, its next start restores them from the journal.

The file is on disk before the first register is written, in a directory to which no other user may
write. Its content is checked before use: it must be from this boot and this machine, and have only
registers that perftop programs, with possible values. Whether the process that wrote it still runs
is read from /proc."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfprobe.kernel.task_files import parse_stat, parse_state, read_file
from perfprobe.programming import counter_plan
from perfprobe.programming.counter_plan import Change, Changes

FORMAT_VERSION = 1
MAX_JOURNAL_BYTES = 8 << 20  # maximum size in bytes: 8192 CPUs with ten registers each
SUFFIX = ".journal"
_CONTROL_BITS = 49  # of GLOBAL_CTRL: general counters, fixed counters from bit 32, metrics bit 48
_SELECT_BITS = 48
_NIBBLES = range(0, counter_plan.MAX_FIXED_COUNTERS * counter_plan.NIBBLE, counter_plan.NIBBLE)
_RING_MASK = sum(counter_plan.FIXED_RINGS << shift for shift in _NIBBLES)
_PMI_MASK = sum(counter_plan.FIXED_PMI << shift for shift in _NIBBLES)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """The content of a journal of this boot and machine."""

    path: Path
    pid: int
    started: int
    """Start time, in ticks since boot, of the process that wrote the journal."""
    cpus: dict[int, Changes]

    @property
    def is_live(self) -> bool:
        """Whether the process that wrote the journal, not a later one with its PID, still runs."""
        return start_time(self.pid) == self.started


class UnusableError(Exception):
    """A file must not be used to restore registers; the text is the reason."""


# --- the directory --------------------------------------------------------------------------------


def directories() -> list[Path]:
    """Returns the directories where a journal may be, best first. For root, /run precedes the
    session's directory, because the next start may be in another session."""
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    paths = [Path(session) / "perftop"] if session.startswith("/") else []
    paths.insert(0 if os.geteuid() == 0 else len(paths), Path("/run/perftop"))
    return [*paths, Path(f"/tmp/perftop-{os.geteuid()}")]  # noqa: S108


def prepare_directory() -> Path:
    """Returns the first directory to which only this user can write, created if necessary. Raises
    OSError, with the reason for the last directory, if there is none."""
    last_error = OSError()
    for directory in directories():
        try:
            os.close(_open_private_directory(directory, make=True))
        except OSError as error:
            last_error = OSError(error.errno, error.strerror, str(directory))
        else:
            return directory
    raise last_error


_DIRECTORY_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW


def _open_private_directory(directory: Path, *, make: bool = False) -> int:
    """Opens a directory and returns its descriptor; with `make`, creates it if necessary. Raises
    OSError if other users could write to it, or could replace it or a directory above it."""
    parent_fd = _parent_directory(directory)
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory.name, 0o700, dir_fd=parent_fd)
        fd = os.open(directory.name, _DIRECTORY_FLAGS, dir_fd=parent_fd)
    finally:
        os.close(parent_fd)
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        os.close(fd)
        raise PermissionError(errno.EPERM, "other users may write to it", str(directory))
    return fd


def _parent_directory(directory: Path) -> int:
    """Opens the parent of a directory and returns its descriptor. Each directory from the root to
    it, with links resolved, is checked: no other user may be able to replace the next one."""
    fd = os.open("/", _DIRECTORY_FLAGS)
    try:
        for name in directory.parent.resolve().parts[1:]:
            _check_directory(fd, directory)
            child_fd = os.open(name, _DIRECTORY_FLAGS, dir_fd=fd)
            os.close(fd)
            fd = child_fd
        _check_directory(fd, directory)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_directory(fd: int, directory: Path) -> None:
    info = os.fstat(fd)
    is_closed = not info.st_mode & 0o022 or info.st_mode & stat.S_ISVTX
    if info.st_uid not in {0, os.geteuid()} or not is_closed:
        reason = "other users may write to a directory above it"
        raise PermissionError(errno.EPERM, reason, str(directory))


@contextlib.contextmanager
def locked_directory(directory: Path) -> Iterator[None]:
    """Locks the directory until the block ends, so that only one process at a time searches for
    journals, writes its own and programs registers."""
    fd = _open_private_directory(directory)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


# --- writing --------------------------------------------------------------------------------------


class Journal:
    """The journal of this process; the constructor writes nothing."""

    def __init__(self, directory: Path, boot_id: str | None, root: Path) -> None:
        self._directory = directory
        self.path = journal_path(directory, root)
        self._identity = {
            "format": FORMAT_VERSION,
            "boot_id": boot_id,
            "root": str(root.resolve()),
            "pid": os.getpid(),
            "start": start_time(os.getpid()),
        }

    def write(self, cpus: Mapping[int, Changes]) -> None:
        """Replaces the file; when this returns, it is on disk. Raises OSError."""
        table = {
            str(cpu): {
                f"{reg:#x}": [f"{_restorable_value(reg, c.before):#x}", f"{c.written:#x}"]
                for reg, c in changes.items()
            }
            for cpu, changes in cpus.items()
        }
        text = json.dumps({**self._identity, "cpus": table})
        temporary_name = f".{self.path.name}.{os.getpid()}"
        directory = _open_private_directory(self._directory)
        try:
            # a killed process with the same PID may have left the file
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary_name, dir_fd=directory)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            fd = os.open(temporary_name, flags, 0o600, dir_fd=directory)
            with os.fdopen(fd, "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(fd)
            os.replace(temporary_name, self.path.name, src_dir_fd=directory, dst_dir_fd=directory)
            os.fsync(directory)
        finally:
            os.close(directory)

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()


def _restorable_value(register: int, value: int) -> int:
    """Returns the value that the next start may restore: for a select, without the bits that start
    the counter or its interrupt, because the counter was not in use."""
    starting = counter_plan.ENABLE | counter_plan.INTERRUPT
    return value & ~starting if register in counter_plan.EVENT_SELECTS else value


def journal_path(directory: Path, root: Path) -> Path:
    import hashlib  # imported here, because it loads OpenSSL

    digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()
    return directory / f"msr-{digest[:16]}{SUFFIX}"


def start_time(pid: int) -> int | None:
    """Returns the start time of a process in ticks since boot; None if it does not exist."""
    try:
        data = read_file(f"/proc/{pid}/stat")
    except OSError:
        return None
    task = parse_stat(data)
    return None if task is None or parse_state(data) in {"Z", "X"} else task.start_ticks


# --- reading --------------------------------------------------------------------------------------


def stale_entry(run_dir: Path, boot_id: str | None, root: Path) -> JournalEntry | None:
    """Returns the journal of this boot and root in a directory if its process has ended without
    restoring the registers."""
    with contextlib.suppress(UnusableError):
        entry = read_journal(run_dir, boot_id, root)
        return entry if entry is not None and not entry.is_live else None
    return None


def read_journal(run_dir: Path, boot_id: str | None, root: Path) -> JournalEntry | None:
    """Returns the journal of this root in a directory; None without one. Raises UnusableError."""
    try:
        directory = _open_private_directory(run_dir)
    except OSError:
        return None
    path = journal_path(run_dir, root)
    try:
        content = json.loads(_read_private_file(directory, path.name))
        return _parse_entry(path, content, boot_id, root)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableError(f"it cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise UnusableError("its content is not a journal") from None
    finally:
        os.close(directory)


def _read_private_file(directory: int, name: str) -> bytes:
    """Returns the content of a plain file to which only this user can write. Raises UnusableError
    for any other file, and OSError if it cannot be read."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(name, flags, dir_fd=directory)
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
            raise UnusableError("it is not a plain file")
        if info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise UnusableError("other users could have written it")
        content = file.read(MAX_JOURNAL_BYTES + 1)
    if len(content) > MAX_JOURNAL_BYTES:
        raise UnusableError("it is too long")
    return content


def _parse_entry(path: Path, content: Any, boot_id: str | None, root: Path) -> JournalEntry:
    """Returns the entry for the decoded content of a journal. Raises UnusableError, or an exception
    of Python, for content that perftop would not write."""
    if content["format"] != FORMAT_VERSION:
        raise UnusableError("another version of perftop wrote it")
    if content["boot_id"] != boot_id:
        raise UnusableError("it was written before the last boot")
    if content["root"] != str(root.resolve()):
        raise UnusableError("it was written for another machine")
    pid, started = content["pid"], content["start"]
    if type(pid) is not int or type(started) is not int or pid <= 0:
        raise UnusableError("it does not name the process that wrote it")
    cpus: dict[int, Changes] = {}
    for cpu, table in content["cpus"].items():
        cpus[int(cpu)] = changes = {
            int(text, 16): Change(int(old, 16), int(new, 16)) for text, (old, new) in table.items()
        }
        for register, change in changes.items():
            if not is_plausible(register, change):
                raise UnusableError(
                    f"perftop would not restore MSR {register:X}H to {change.before:X}H"
                )
    if any(not 0 <= cpu < 1 << 16 for cpu in cpus):
        raise UnusableError("it names CPUs that cannot exist")
    return JournalEntry(path, pid, started, cpus)


def is_plausible(register: int, change: Change) -> bool:
    """Returns whether perftop may have made this change: restoring it starts no counter and no
    interrupt. In shared registers, perftop only sets enabling bits, and a restore only clears
    them."""
    old, new = change.before, change.written
    if register in counter_plan.EVENT_SELECTS:
        fits = all(0 <= value < 1 << _SELECT_BITS for value in (old, new))
        is_quiet = old == _restorable_value(register, old) and not new & counter_plan.INTERRUPT
        return fits and is_quiet and new & counter_plan.ENABLE != 0
    if register == counter_plan.FIXED_CONTROL:
        fits = all(0 <= value < 1 << 64 for value in (old, new))
        return fits and not (old | new) & _PMI_MASK and not old & ~new & _RING_MASK
    if register in counter_plan.SHARED_REGISTERS:
        return all(0 <= v < 1 << _CONTROL_BITS for v in (old, new)) and not old & ~new
    return False

"""Files and directories that perftop writes, even in directories that other users can write to.

A path is resolved once, to a descriptor of the directory that contains the file. All other
operations are relative to this descriptor and follow no link. So renaming a directory, or putting a
link in its place, redirects nothing. While a path is resolved, a link is followed only if it
belongs to us or to root. The kernel's own protection (fs.protected_symlinks and similar) covers
sticky directories only, and can be off.

Files with measurements may contain command lines of other users' processes, so only their owner may
read them. An existing file is replaced only on request.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import pwd
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from perftop.base.errors import Failed, failure_to_write

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PRIVATE_MODE = 0o600
MAX_LINKS = 40
"""Maximum number of links on one path, as in the kernel."""
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_IDENTIFY_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that open a file, directory, link or socket only to identify it: no link is followed, and
nothing is read or changed."""


# --- files with measurements


def check_path(path: Path, *, force: bool) -> None:
    """Raises Failed if the file exists. Devices and pipes are allowed: they are not replaced."""
    if path.is_file() and not force:
        raise Failed(f"{path} already exists; --force replaces it")


def create(path: Path, *, force: bool) -> BinaryIO:
    """Creates a file for writing. Raises Failed, as does a write after the file was removed."""
    check_path(path, force=force)
    try:
        return io.BufferedWriter(_ReplacedFile(path, "w" if force or path.exists() else "x"))
    except FileExistsError:
        raise Failed(f"{path} already exists; --force replaces it") from None
    except OSError as error:
        raise failure_to_write(path, error) from None


class _ReplacedFile(io.FileIO):
    """A file that keeps its old content until the first write, so that a request that fails earlier
    loses nothing. The first write also removes other users' permissions."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(
            path,
            mode,
            opener=lambda _, flags: open_to_write(path, flags & ~os.O_TRUNC, PRIVATE_MODE),
        )
        self._path = path
        status = os.fstat(self.fileno())
        self._is_unchanged = stat.S_ISREG(status.st_mode)
        self._removable = self._is_unchanged and status.st_nlink > 0

    def write(self, data: ReadableBuffer, /) -> int:
        if self._removable and os.fstat(self.fileno()).st_nlink == 0:
            self._removable = False  # so that flushing the rest at the end does not fail again
            raise Failed(f"{self._path} was removed while it was written: nothing was kept")
        if self._is_unchanged:
            self._is_unchanged = False
            with contextlib.suppress(PermissionError):  # another user's file
                os.fchmod(self.fileno(), PRIVATE_MODE)
            os.ftruncate(self.fileno(), 0)
        return super().write(data)


def replace(path: Path, data: bytes, mode: int = PRIVATE_MODE) -> os.stat_result:
    """Writes a whole file atomically: readers see either the old or the new content. Returns the
    status that `remove` needs. Raises OSError."""
    with open_parent(path) as (fd, name):
        return replace_in(fd, name, data, mode)


def replace_in(
    fd: int, name: str, data: bytes | bytearray | memoryview, mode: int
) -> os.stat_result:
    """Like `replace`, for a file in the directory with the descriptor `fd`."""
    temporary_name = f".{name}.{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.open(temporary_name, flags, 0o600, dir_fd=fd)
    try:
        with os.fdopen(file, "wb") as output:
            output.write(data)
            os.fchmod(file, mode)
            status = os.fstat(file)
        os.replace(temporary_name, name, src_dir_fd=fd, dst_dir_fd=fd)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary_name, dir_fd=fd)
        raise
    return status


def remove(path: Path, status: os.stat_result) -> None:
    """Removes the file if it is still the one that we created and not a device."""
    if stat.S_ISREG(status.st_mode):
        with contextlib.suppress(OSError), open_parent(path) as (fd, name):
            if os.path.samestat(status, os.stat(name, dir_fd=fd, follow_symlinks=False)):
                os.unlink(name, dir_fd=fd)


# --- directories in which other users could redirect writes


class UnsafePath(OSError):  # noqa: N818 - what the place is, not what class of mistake
    """Raised if another user could redirect or replace a file that we write. Says what to do."""


@contextlib.contextmanager
def open_parent(path: Path, *, follow: bool = False) -> Iterator[tuple[int, str]]:
    """Yields a descriptor of the directory that contains `path`, and the file's name in it.
    `follow`: whether to follow a link of that name. Raises OSError."""
    fd, names, links = os.open(".", os.O_PATH | os.O_CLOEXEC), [*reversed(path.parts)] or ["."], 0
    try:
        while len(names) > 1 or follow:
            name = names[-1]
            target = _link_target(fd, name)
            if target is not None:
                links += 1
                if links > MAX_LINKS:
                    raise UnsafePath(f"more than {MAX_LINKS} symbolic links in the path")
                names[-1:] = reversed(target.parts)
            elif len(names) == 1:
                break
            else:
                flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | _nofollow_flag(fd)
                directory_fd = os.open(names.pop(), flags, dir_fd=fd)
                os.close(fd)
                fd = directory_fd
        yield fd, names[-1]
    finally:
        os.close(fd)


def _link_target(fd: int, name: str) -> Path | None:
    """Returns the target of the link with this name; None if it is not a link, or a link that only
    the kernel can follow."""
    try:
        inode = os.open(name, _IDENTIFY_FLAGS, dir_fd=fd)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(inode)
        if not stat.S_ISLNK(status.st_mode) or not _nofollow_flag(fd):
            return None
        if status.st_uid not in _trusted_uids():
            owner = _user_name(status.st_uid)
            raise UnsafePath(
                f"{name} is a symbolic link owned by another user ({owner}); give its target"
            )
        return Path(os.readlink("", dir_fd=inode))
    finally:
        os.close(inode)


def _nofollow_flag(fd: int) -> int:
    """Returns O_NOFOLLOW, or 0 for names in /proc: its links (/proc/self/fd/1) are made by the
    kernel, and their targets are not valid paths."""
    with contextlib.suppress(FileNotFoundError):
        if os.fstat(fd).st_dev == os.stat("/proc").st_dev:  # noqa: PTH116 - no Path needed
            return 0
    return os.O_NOFOLLOW


def _trusted_uids() -> set[int]:
    """Returns the IDs of root and of our user. In a user namespace the outer root has no ID, but it
    owns the root directory."""
    return {0, os.geteuid(), os.stat("/").st_uid}  # noqa: PTH116 - no Path needed


def is_closed_to_others(fd: int, *, sticky: bool = False) -> bool:
    """Returns whether only we and root can add and remove names in the directory. `sticky`: also if
    others can add and remove only their own names."""
    status = os.fstat(fd)
    others_can_write = status.st_mode & 0o022 and not (sticky and status.st_mode & stat.S_ISVTX)
    return status.st_uid in _trusted_uids() and not others_can_write


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def open_to_write(path: Path, flags: int, mode: int) -> int:
    """Opens a file as `open` does. Refuses another user's file or pipe in a directory that others
    can write to, before anything is changed. Raises OSError."""
    with open_parent(path, follow=True) as (fd, name):
        try:
            inode = os.open(name, os.O_PATH | os.O_CLOEXEC | _nofollow_flag(fd), dir_fd=fd)
        except FileNotFoundError:
            flags |= os.O_CREAT | os.O_EXCL
            return os.open(name, flags | os.O_CLOEXEC, mode, dir_fd=fd)
        try:
            if flags & os.O_EXCL:
                raise FileExistsError
            status = os.fstat(inode)
            is_file_or_pipe = stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)
            untrusted = status.st_uid not in _trusted_uids() or status.st_nlink > 1
            if is_file_or_pipe and untrusted and not is_closed_to_others(fd):
                raise UnsafePath(
                    "it belongs to another user, or has other hard links; name a new file"
                )
            return os.open(f"/proc/self/fd/{inode}", flags & ~os.O_CREAT | os.O_CLOEXEC)
        finally:
            os.close(inode)


def make_directory(path: Path, *, parents: bool = False) -> None:
    """Creates a missing directory, and with `parents` its parents, for us alone. Raises OSError."""
    if parents and not path.parent.is_dir():
        make_directory(path.parent, parents=True)
    with open_parent(path, follow=True) as (fd, name):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=fd)
        os.close(os.open(name, _DIRECTORY_FLAGS, dir_fd=fd))


class OwnDirectory:
    """A directory that belongs to us and that only we and root can write to."""

    def __init__(self, path: Path, name: str, parent_fd: int, *, make: bool) -> None:
        """`name` is relative to the descriptor `parent_fd`; messages use `path`. Raises OSError."""
        self.path = path
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent_fd)
        self.fd = os.open(name, _DIRECTORY_FLAGS, dir_fd=parent_fd)
        owner, is_private = os.fstat(self.fd).st_uid, is_closed_to_others(self.fd)
        if owner != os.geteuid() or not is_private:
            os.close(self.fd)
        if owner != os.geteuid():
            text = f"{path} belongs to another user ({_user_name(owner)}); name one of yours"
            raise UnsafePath(text)
        if not is_private:
            raise UnsafePath(
                f"others can write to it; to prevent that: chmod go-w {shlex.quote(str(path))}"
            )

    @classmethod
    def open(cls, path: Path, *, make: bool = False) -> Self:
        with open_parent(path, follow=True) as (fd, name):
            return cls(path, name, fd, make=make)

    def subdirectory(self, name: str, *, make: bool = False) -> OwnDirectory:
        return OwnDirectory(self.path / name, name, self.fd, make=make)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def stat(self, name: str) -> os.stat_result | None:
        """Returns the status of the file of that name, without following a link, or None."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        return sorted(os.listdir(self.fd))  # noqa: PTH208 - a Path would be resolved again

    def files(self, names: re.Pattern[str]) -> dict[str, os.stat_result]:
        """Returns our regular files with matching names, sorted by name."""
        by_name = {}
        for name in filter(names.fullmatch, self.names()):
            status = self.stat(name)
            if status and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                by_name[name] = status
        return by_name

    def unlink(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)


# --- the user's own files


def user_directory(kind: str, default: str) -> Path:
    """Returns the XDG directory of this kind (CONFIG, STATE or CACHE). `default`: its default. A
    value that is not an absolute path is ignored, as the specification demands."""
    base = os.environ.get(f"XDG_{kind}_HOME", "")
    if not Path(base).is_absolute():
        base = os.path.expanduser(default)  # noqa: PTH111 - does not fail without a home
    return Path(base)


def read_own_file(path: Path, max_bytes: int) -> bytes | None:
    """Returns the content of our own regular file; None if it does not exist or has more than
    `max_bytes` bytes."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            is_own_file = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
            return file.read() if is_own_file and status.st_size <= max_bytes else None
    except OSError:
        return None


# --- The file with the counters that selftests have found wrong since boot. The screen reads it.

FINDINGS_FORMAT = "perftop selftest 1"
"""Value of the file's `format` key. A file with another value is ignored."""
MAX_FINDINGS = 1 << 16
"""Maximum size of the file in bytes. A larger file is ignored."""


def findings_path() -> Path:
    """Returns the path of the file. In XDG_RUNTIME_DIR, the file is deleted at logout or reboot."""
    running = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    base = running if running.is_absolute() else user_directory("CACHE", "~/.cache")
    return base / "perftop" / "selftest.json"


def save_findings(answer: Mapping[str, Any]) -> None:
    """Replaces the file by one that lists the counters that are wrong now: those in `answer`, and
    those found wrong earlier since boot that are not right in `answer`. Raises OSError."""
    import json

    if answer["boot_id"] is None:
        return
    is_right: dict[str, bool] = {}
    """Whether counters are right, according to `answer`; False after a disturbed test."""
    for check in answer["checks"]:
        is_trustworthy = check["verdict"] in {"trusted", "close"} and not check["disturbed"]
        is_right[check["counter"]] = is_trustworthy and is_right.get(check["counter"], True)
    for row in answer.get("instruments", ()):
        for name in row["counters"]:
            is_right[name] = row["verdict"] == "works" and is_right.get(name, True)
    saved_keys = _saved_wrong_counters(answer["boot_id"])
    wrong_keys = [key for key in saved_keys if not is_right.get(key) and key not in answer["wrong"]]
    wrong_keys = [*answer["wrong"], *wrong_keys]
    path, header = findings_path(), {key: answer[key] for key in ("boot_id", "time")}
    make_directory(path.parent, parents=True)
    replace(path, json.dumps({"format": FINDINGS_FORMAT, **header, "wrong": wrong_keys}).encode())


@functools.cache
def findings_line(boot_id: str | None) -> str | None:
    """Returns a line with the counters that selftests on the boot with this ID found wrong; None if
    there are none. It is cached, so a running screen does not show new findings."""
    keys = _saved_wrong_counters(boot_id) if boot_id is not None else []
    return f"selftest found counters wrong on this boot: {', '.join(keys)}" if keys else None


def _saved_wrong_counters(boot_id: str) -> list[str]:
    """Returns the counters in the file if it is ours, valid, and written during this boot."""
    import json

    with contextlib.suppress(ValueError, RecursionError):
        content = json.loads(read_own_file(findings_path(), MAX_FINDINGS) or b"")
        key = FINDINGS_FORMAT, boot_id
        if isinstance(content, dict) and (content.get("format"), content.get("boot_id")) == key:
            wrong_keys = content.get("wrong")
            if isinstance(wrong_keys, list) and all(isinstance(name, str) for name in wrong_keys):
                return wrong_keys
    return []

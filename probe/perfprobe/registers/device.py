"""Opens the file of one CPU's registers, and nothing else that may stand in its place.

A directory given by --sysroot may come from an archive, and root writes to what this opens. So no
link below the directory is followed, and the file must be the msr driver's device for this CPU, or
a file of a FUSE mount: that is a program which plays the driver, and no archive holds one.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MSR_MAJOR = 202
"""Linux, include/uapi/linux/major.h. The minor number is the CPU."""
LINK = "it is a link, or lies behind one, and none is followed"
OTHER = "it is neither the msr driver's device for this CPU nor a file of a FUSE mount"


def opened(root: Path, cpu: int, flags: int) -> int:
    """A descriptor. Raises OSError."""
    place = _found(root, cpu)
    try:
        about = os.fstat(place)
        if not _is_driver(about, cpu) and not (stat.S_ISREG(about.st_mode) and _on_fuse(place)):
            raise OSError(errno.EINVAL, OTHER)
        # The very file that was looked at, whatever its name means by now.
        return os.open(f"/proc/self/fd/{place}", flags | os.O_CLOEXEC)
    finally:
        os.close(place)


def _found(root: Path, cpu: int) -> int:
    """A descriptor of the place. It is not open for reading: opening some files has effects."""
    fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in ("dev", "cpu", str(cpu), "msr"):
        try:
            below = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.ELOOP, LINK)
    return fd


def _is_driver(about: os.stat_result, cpu: int) -> bool:
    return stat.S_ISCHR(about.st_mode) and about.st_rdev == os.makedev(MSR_MAJOR, cpu)


def _on_fuse(fd: int) -> bool:
    """Whether the file lies in a FUSE mount, by the kernel's list of mounts."""
    mount = _value(Path(f"/proc/self/fdinfo/{fd}").read_bytes(), b"mnt_id:")
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        if line.split(b" ", 1)[0] == mount:
            kind = line.partition(b" - ")[2].split(b" ", 1)[0]
            return kind == b"fuse" or kind.startswith(b"fuse.")
    return False


def _value(text: bytes, key: bytes) -> bytes:
    lines = (line for line in text.splitlines() if line.startswith(key))
    return next(lines, b"").removeprefix(key).strip()

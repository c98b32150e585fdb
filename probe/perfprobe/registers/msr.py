"""Reads and writes one CPU's model-specific registers through the kernel's msr driver.

The offset of a read or write is the register's number, and its length is eight bytes. Every write
is read back, because some hypervisors drop writes and report success.

The directory of --sysroot may come from an archive, and root may write to the file that is opened
here. So no link below the directory is followed, and the file must be the msr driver's device of
this CPU, or a file on a FUSE mount (an imitation of the driver, which cannot be in an archive).
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from pathlib import Path
from typing import Self

from perfprobe.cpu import files, identity
from perfprobe.kernel import access
from perfprobe.kernel.access import Problem

MSR_MAJOR = 202
"""Major device number of the msr driver (from Linux's major.h); the minor number is the CPU."""
LINK_TEXT = "it is a link, or is reached through one, and none is followed"
NO_DRIVER_TEXT = "it is neither the msr driver's device for this CPU nor a file of a FUSE mount"


def open_device(root: Path, cpu: int, flags: int) -> int:
    """Opens the MSR device of a CPU after checking that it is one. Raises OSError."""
    # O_PATH, because opening the wrong file for reading may have side effects.
    path_fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        for name in ("dev", "cpu", str(cpu), "msr"):
            child_fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=path_fd)
            os.close(path_fd)
            path_fd = child_fd
            if stat.S_ISLNK(os.fstat(path_fd).st_mode):
                raise OSError(errno.ELOOP, LINK_TEXT)
        info = os.fstat(path_fd)
        if not _is_driver(info, cpu) and not (stat.S_ISREG(info.st_mode) and _is_on_fuse(path_fd)):
            raise OSError(errno.EINVAL, NO_DRIVER_TEXT)
        # Opens the file that was checked, even if the path now leads to another file.
        return os.open(f"/proc/self/fd/{path_fd}", flags)
    finally:
        os.close(path_fd)


def _is_driver(info: os.stat_result, cpu: int) -> bool:
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == os.makedev(MSR_MAJOR, cpu)


def _is_on_fuse(fd: int) -> bool:
    """Returns whether the file is on a FUSE mount, according to the kernel's list of mounts."""
    mount = Path(f"/proc/self/fdinfo/{fd}").read_bytes().partition(b"mnt_id:")[2].split()[0]
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        if line.partition(b" ")[0] == mount:
            kind = line.partition(b" - ")[2].partition(b" ")[0]
            return kind == b"fuse" or kind.startswith(b"fuse.")
    return False


# --- registers ------------------------------------------------------------------------------------

TSC = 0x10
PLATFORM_INFO = 0xCE

_VALUE_FORMAT = struct.Struct("<Q")
MODULE_FIX = "sudo modprobe msr"


class MsrError(Exception):
    """An MSR cannot be used; has the cause, its consequence and the remedy, one line each."""

    def __init__(self, cause: str, consequence: str, fix: str | None = None, code: int = 0) -> None:
        super().__init__(cause)
        self.cause = cause
        self.consequence = consequence
        self.fix = fix
        self.code = code
        """The errno; 0 if a write was accepted but had no effect."""

    @property
    def is_offline(self) -> bool:
        return self.code in {errno.ENXIO, errno.ENODEV}

    @property
    def why(self) -> str:
        return f"{self.cause}: {self.consequence}"


def register_name(register: int) -> str:
    """Returns the name of a register in the manuals' notation, such as "MSR 1A0H"."""
    return f"MSR {register:X}H"


class Registers:
    def __init__(self, root: Path, cpu: int, *, writable: bool = False) -> None:
        """Opens the device, read-only unless `writable`. Raises MsrError if it cannot be opened."""
        self.cpu = cpu
        self._root = root
        try:
            self.fd = open_device(root, cpu, os.O_RDWR if writable else os.O_RDONLY)
        except OSError as error:
            raise _open_error(root, cpu, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, register: int) -> int:
        try:
            content = os.pread(self.fd, 8, register)
        except OSError as error:
            raise self._register_error("read", register, error) from None
        if len(content) != 8:
            raise self._register_error("read", register, OSError(errno.EIO, "short"))
        value: int = _VALUE_FORMAT.unpack(content)[0]
        return value

    def write(self, register: int, value: int) -> None:
        """Writes the register and reads it back. Raises MsrError; its code is 0 if the driver
        reported success but the register holds another value."""
        try:
            os.pwrite(self.fd, _VALUE_FORMAT.pack(value), register)
        except OSError as error:
            if error.errno in {errno.EPERM, errno.EACCES, errno.EBADF}:
                raise _write_error(self._root, error) from None
            raise self._register_error("written", register, error) from None
        value_after = self.read(register)
        if value_after != value:
            outcome = f"holds {value_after:X}H after {value:X}H was written"
            cause = f"CPU {self.cpu}: {register_name(register)} {outcome}"
            raise MsrError(cause, "writes are dropped here, so nothing can be programmed")

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _register_error(self, text: str, register: int, error: OSError) -> MsrError:
        code = error.errno or 0
        register_text = f"CPU {self.cpu}: {register_name(register)}"
        if code in {errno.ENXIO, errno.ENODEV}:
            return MsrError(
                f"CPU {self.cpu} is offline",
                f"{register_name(register)} cannot be {text}",
                code=code,
            )
        if code == errno.EIO:
            reason = "this CPU or its hypervisor does not have it, or not with this value"
            return MsrError(f"{register_text} cannot be {text}", reason, code=code)
        return MsrError(f"{register_text} cannot be {text}", os.strerror(code), code=code)


def _open_error(root: Path, cpu: int, error: OSError) -> MsrError:
    code = error.errno or 0
    effect = "no register can be read"
    if code in {errno.ENOENT, errno.ENOTDIR}:
        if any(
            Path(f"{root}/dev/cpu/{n}/msr").exists()
            for n in files.numbered_entries(f"{root}/dev/cpu", "")
        ):
            cause = f"CPU {cpu} is offline or absent (no /dev/cpu/{cpu}/msr)"
            return MsrError(cause, effect, code=errno.ENODEV)
        # The module can be loaded if /lib/modules has it; a sysroot has no modules even if the
        # kernel can load some.
        modules = Path(f"/lib/modules/{identity.kernel_release()}")
        can_load = root != Path("/") or any(modules.glob("kernel/arch/x86/kernel/ko*"))
        if can_load or identity.virtualisation(root) is None:
            cause = "no /dev/cpu/N/msr: the msr module is not loaded"
            fix = MODULE_FIX if can_load else f"{MODULE_FIX}, on the host"
            return MsrError(cause, effect, fix, code)
        return MsrError("no /dev/cpu/N/msr, and no msr module here to load", effect, code=code)
    if code in {errno.EACCES, errno.EPERM}:
        cause = f"/dev/cpu/{cpu}/msr needs root (CAP_SYS_RAWIO)"
        return MsrError(cause, effect, access.root_remedy(root, "CAP_SYS_RAWIO"), code)
    if code in {errno.ENXIO, errno.ENODEV}:
        return MsrError(f"CPU {cpu} is offline", effect, code=code)
    if code == errno.EMFILE:
        return MsrError("too many open files", effect, "raise `ulimit -n`", code)
    reason = error.strerror or error
    return MsrError(f"{root / f'dev/cpu/{cpu}/msr'} cannot be opened: {reason}", effect, code=code)


def write_problem(root: Path) -> Problem | None:
    """Returns why the kernel refuses writes to MSRs; None if its files show no reason."""
    if files.read_word(f"{root}/sys/module/msr/parameters/allow_writes") == "off":
        fix = "echo on | sudo tee /sys/module/msr/parameters/allow_writes"
        return Problem("msr.allow_writes=off", fix)
    locked = files.read_text(f"{root}/sys/kernel/security/lockdown")
    if "[integrity]" in locked or "[confidentiality]" in locked:
        fix = "boot without lockdown (Secure Boot turns it on), or use --source perf"
        return Problem("kernel lockdown", fix)
    return None


def _write_error(root: Path, error: OSError) -> MsrError:
    """Returns the error for a write that the kernel refuses. The errno is the same for lockdown and
    for allow_writes."""
    code = error.errno or 0
    effect = "registers can be read, not programmed"
    if code == errno.EBADF:
        return MsrError("the register file was opened for reading", effect, code=code)
    problem = write_problem(root) or Problem(
        "lockdown or msr.allow_writes=off", "use --source perf"
    )
    cause = f"the kernel refuses writes to MSRs ({problem.why})"
    return MsrError(cause, effect, problem.fix, code)

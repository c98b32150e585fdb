"""Runs a command for which the kernel refuses a system call or limits a resource.

python restricted_run.py sendto=ENOSYS CMD …   a seccomp filter; x86-64 only
python restricted_run.py NPROC=3 CMD …         RLIMIT_NPROC, as another user: root has no such limit
python restricted_run.py AS=80000000 CMD …     any other RLIMIT_ name
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
import sys

CALLS = {
    "poll": 7, "lseek": 8, "rt_sigaction": 13, "rt_sigprocmask": 14, "ioctl": 16, "pread64": 17,
    "select": 23, "madvise": 28, "dup2": 33, "socket": 41, "connect": 42, "sendto": 44,
    "recvfrom": 45, "socketpair": 53, "clone": 56, "vfork": 58, "kill": 62, "uname": 63,
    "fcntl": 72, "fsync": 74, "ftruncate": 77, "rename": 82, "mkdir": 83, "unlink": 87,
    "readlink": 89, "chmod": 90, "umask": 95, "getrusage": 98, "sysinfo": 99, "setpgid": 109,
    "setsid": 112, "getpgid": 121, "capget": 125, "sigaltstack": 131, "prctl": 157,
    "setrlimit": 160, "futex": 202, "sched_setaffinity": 203, "sched_getaffinity": 204,
    "getdents64": 217, "clock_nanosleep": 230, "epoll_wait": 232, "epoll_ctl": 233, "tgkill": 234,
    "waitid": 247, "pselect6": 270, "ppoll": 271, "epoll_pwait": 281, "eventfd2": 290,
    "epoll_create1": 291, "dup3": 292, "pipe2": 293, "perf_event_open": 298, "prlimit64": 302,
    "getcpu": 309, "getrandom": 318, "memfd_create": 319, "bpf": 321, "membarrier": 324,
    "statx": 332, "pidfd_send_signal": 424, "pidfd_open": 434, "clone3": 435, "close_range": 436,
    "faccessat2": 439,
}  # fmt: skip
"""Numbers of system calls on x86-64."""
USERS = 100_000
"""The first unused user ID; each process of this program uses another ID."""
_KEEPCAPS, _NO_NEW_PRIVS, _SECCOMP, _AMBIENT, _FILTER, _RAISE = 8, 38, 22, 47, 2, 2
_DAC = (1, 2)
"""Capabilities with which the other user can still read and write the files of the tests."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def unavailable() -> str:
    """The reason why calls cannot be refused here; '' if they can."""
    return "" if platform.machine() == "x86_64" else "numbers of system calls are of x86-64"


def _prctl(*words: int | ctypes.c_void_p) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    padded = [*words, *(0 for _ in range(5 - len(words)))]
    if libc.prctl(*(w if isinstance(w, ctypes.c_void_p) else ctypes.c_ulong(w) for w in padded)):
        raise OSError(ctypes.get_errno(), "prctl")


def refuse(call: str, error: str) -> None:
    """Makes a call fail in this process and in all processes that it starts."""
    code = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (0x20, 0, 0, 0),  # this instruction loads the number of the call
            (0x15, 0, 1, CALLS[call]),
            (0x06, 0, 0, 0x00050000 | getattr(errno, error)),
            (0x06, 0, 0, 0x7FFF0000),
        )
    )
    program = _Program(len(code) // 8, code)
    _prctl(_NO_NEW_PRIVS, 1)
    _prctl(_SECCOMP, _FILTER, ctypes.cast(ctypes.byref(program), ctypes.c_void_p))


def limit(name: str, maximum: int) -> None:
    resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (maximum, maximum))
    if name == "NPROC" and os.geteuid() == 0:
        _prctl(_KEEPCAPS, 1)
        user = USERS + os.getpid()
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        _keep_access()


def _keep_access() -> None:
    """Reduces the capabilities to those of `_DAC`, also for programs that are executed."""
    mask = sum(1 << number for number in _DAC)
    head = struct.pack("Ii", 0x20080522, 0)
    data = struct.pack("IIIIII", mask, mask, mask, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).capset(head, data):
        raise OSError(ctypes.get_errno(), "capset")
    for number in _DAC:
        _prctl(_AMBIENT, _RAISE, number)


def main(words: list[str]) -> None:
    problem, *command = words
    name, _, value = problem.partition("=")
    if value.isdecimal():
        limit(name, int(value))
    else:
        refuse(name, value)
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])

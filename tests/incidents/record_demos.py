"""Makes the recordings of `perftop demo`: causes real problems and records them.

    python tests/incidents/record_demos.py DIRECTORY [NAME …]

Run it as root on a machine with two or more CPUs. It uses private namespaces, so that recordings
contain no other process, host name or path, and a control group with so many shares that other load
can hardly disturb it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
IS_V1 = (GROUPS / "cpu").is_dir()
LIMITS = {
    "cpu": ("cpu.cfs_quota_us", "60000") if IS_V1 else ("cpu.max", "60000 100000"),
    "shares": ("cpu.shares", "200000") if IS_V1 else ("cpu.weight", "10000"),
    "memory": ("memory.limit_in_bytes" if IS_V1 else "memory.max", "48M"),
}
"""File and value of each limit."""
SWAP_BYTES = 256 << 20
HOST, PREFIX, WORK = "vm1", Path("/opt/perftop"), Path("/opt/work")
"""Name and paths that the recordings contain."""
SOLVE = """import os
for _ in range(2):
    if os.fork() == 0:
        for _ in range(ROUNDS):
            sum(range(1_000_000))
        os._exit(0)
os.wait()
os.wait()
"""
"""A job of two processes with a fixed amount of work."""
LOOP = "while True: sum(range(100_000))\n"
TOUCH = """pages = bytearray(70 << 20)
while True:
    for start in range(0, len(pages), 4096):
        pages[start] = 1
"""
"""Uses more memory than the limit of its group: the kernel swaps out pages that are soon needed."""
FLOOD = """import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 9))
sender.connect(("127.0.0.1", 9))
sender.setsockopt(socket.IPPROTO_UDP, 103, 500)  # UDP_SEGMENT: the receiver cuts packets
while True:
    sender.send(bytes(30_000))
"""
"""Sends packets that are never read: their cost is softirq time on the CPU that receives them."""


@contextlib.contextmanager
def running_program(
    name: str, program: str, *, cpus: set[int], group: Path | None = None
) -> Iterator[int]:
    """Runs a Python program under this name on these CPUs. Yields its PID."""
    path = write_program(name, program)

    def prepare() -> None:
        os.sched_setaffinity(0, cpus)
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    process = subprocess.Popen([path], preexec_fn=prepare)  # noqa: PLW1509 - one thread
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def write_program(name: str, program: str) -> str:
    path = Path(name)
    path.write_text(f"#!/usr/bin/python3\n{program}")
    path.chmod(0o755)
    return f"./{name}"


@contextlib.contextmanager
def control_group(name: str, *limits: str) -> Iterator[Path]:
    """Makes a control group with these limits, like a service manager."""
    hierarchy = "memory" if "memory" in limits else "cpu"
    group = GROUPS / (hierarchy if IS_V1 else "") / name
    group.mkdir()
    for limit in limits:
        file, value = LIMITS[limit]
        (group / file).write_text(value)
    try:
        yield group
    finally:
        group.rmdir()


def record(path: Path, *options: str) -> None:
    python = PREFIX / "bin/python"
    perftop = [str(python), "-m", "perftop", "record", "--force", "-o", str(path)]
    subprocess.run([*perftop, *options], check=True)


def watch(path: Path, job: str, seconds: int) -> None:
    record(path, "--watch", job, "--duration", f"{seconds}s")


def quota(path: Path) -> None:
    with (
        control_group("nightly.service", "cpu", "shares") as group,
        running_program("nightly", LOOP, cpus={0, 1}, group=group),
    ):
        watch(path, "nightly", 10)


def queue(path: Path) -> None:
    """`backup` starts on the CPU to which `lmp` is pinned, and ends."""
    with (
        running_program("lmp", LOOP, cpus={1}),
        run_later(4, lambda: running_program("backup", LOOP, cpus={1}), 5),
    ):
        watch(path, "lmp", 13)


@contextlib.contextmanager
def run_later(
    start_s: float, program: Callable[[], contextlib.AbstractContextManager[int]], run_s: float
) -> Iterator[None]:
    """Runs a program from `start_s` on for `run_s` in a child process, without waiting for it."""
    pid = os.fork()
    if pid == 0:
        time.sleep(start_s)
        with program():
            time.sleep(run_s)
        os._exit(0)
    try:
        yield
    finally:
        os.waitpid(pid, 0)


def softirq(path: Path) -> None:
    """The packets sent by `flood` are received on its own CPU."""
    enable_loopback()
    with run_later(3, lambda: running_program("flood", FLOOD, cpus={1}), 6):
        record(path, "--duration", "12s")


def enable_loopback() -> None:
    SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1  # noqa: N806 - the kernel's names
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def reclaim(path: Path) -> None:
    """`index` needs 70 MB, and the limit of its group is 48 MB."""
    with tempfile.NamedTemporaryFile(dir=PREFIX) as swap:  # swap files cannot be on the tmpfs
        swap.write(bytes(SWAP_BYTES))
        swap.flush()
        subprocess.run(["mkswap", "--quiet", swap.name], check=True)
        subprocess.run(["swapon", swap.name], check=True)
        try:
            with (
                control_group("index.service", "memory") as group,
                running_program("index", TOUCH, cpus={0, 1}, group=group),
            ):
                watch(path, "index", 10)
        finally:
            subprocess.run(["swapoff", swap.name], check=True)


def good_run(path: Path) -> None:
    record(path, "--", write_program("solve", SOLVE.replace("ROUNDS", "1600")))


def bad_run(path: Path) -> None:
    with run_later(1, lambda: running_program("backup", LOOP, cpus={0, 1}), 9):
        good_run(path)


INCIDENTS: dict[str, Callable[[Path], None]] = {
    "quota": quota,
    "queue": queue,
    "softirq": softirq,
    "reclaim": reclaim,
    "good-run": good_run,
    "bad-run": bad_run,
}


def main() -> None:
    if sys.argv[1] != "--inside":
        unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--uts", "--net"]
        again = [sys.executable, __file__, "--inside", *sys.argv[1:]]
        raise SystemExit(subprocess.call([*unshare, *again]))
    directory, *names = sys.argv[2:]
    socket.sethostname(HOST)
    environment, target = sys.prefix, Path(directory).absolute()
    subprocess.run(["mount", "-t", "tmpfs", "none", "/opt"], check=True)
    for path in (PREFIX, WORK):
        path.mkdir()
    subprocess.run(["mount", "--bind", environment, PREFIX], check=True)
    os.chdir(WORK)
    with control_group("perftop.slice", "shares") as group:
        (group / "cgroup.procs").write_text(str(os.getpid()))
        for name in names or INCIDENTS:
            path = Path(f"{name}.perftop")
            INCIDENTS[name](path)
            shutil.copyfile(path, target / path)
        (group.parent / "cgroup.procs").write_text(str(os.getpid()))


if __name__ == "__main__":
    main()

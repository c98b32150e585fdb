"""Compares the report of `why -- CMD` on problems caused on this machine with values that are known
without perftop: the signals that were sent, the mask, the counts of the kernel, and the schedstat
of the victim.

The job runs in a control group with so many shares that other load can hardly disturb it, so one
case of each cause runs each day, beside other tests. Those that disturb other tests, that take
longer, or that have the same cause as another run at night, alone.

A share of the time may differ from the true one by three percentage points of 4 s. `why` reads the
threads of a job every 0.1 s, so a count may be that much
older at the start and at the end: two and a half points of 4 s. By day, most victims run for 2 s,
with twice the tolerance. Tests of values that it reads once a second (interrupts, memory, the
kernel's log) have longer jobs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest
from attempts import up_to_three_attempts
from command import argv
from waiting import MAX_WAIT_S

from perfprobe.kernel.profile import KernelProfile

NIGHTLY = pytest.mark.nightly, pytest.mark.machine
by_night = partial(pytest.param, marks=NIGHTLY)
GROUPS = Path("/sys/fs/cgroup")
SHARES = 200_000
POINTS = 0.03
"""Maximum difference between a share and its truth."""
SHORT_S, SHORT_POINTS = 2, 2 * POINTS
"""Seconds for which victims run by day, and the same for them."""
VICTIM = """\
import os, sys, time
path, seconds, cpus = sys.argv[1], int(sys.argv[2]), {*map(int, sys.argv[3:])}
if cpus: os.sched_setaffinity(0, cpus)
def softirq_ns():
    names = {f"cpu{cpu}" for cpu in cpus}
    rows = [line.split() for line in open("/proc/stat")]
    daemons = [open(f"/proc/{pid}/schedstat").read() for pid in daemon_pids]
    in_tasks = sum(int(text.split()[0]) for text in daemons)
    return 10_000_000 * sum(int(row[7]) for row in rows if row[0] in names) - in_tasks
def is_daemon(pid):
    try: return open(f"/proc/{pid}/comm").read() in {f"ksoftirqd/{cpu}\\n" for cpu in cpus}
    except OSError: return False  # it has ended
daemon_pids = [pid for pid in os.listdir("/proc") if cpus and pid.isdigit() and is_daemon(pid)]
before, end = softirq_ns(), time.time() + seconds
longest_s, last = 0, time.time()
while (now := time.time()) < end: longest_s, last = max(longest_s, now - last), now
run, wait, _ = open("/proc/self/schedstat").read().split()
print(run, wait, softirq_ns() - before, round(1e9 * longest_s), file=open(path, "a"))
"""
HOG = "import os, sys, time\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
PULSES = """\
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
while True:
    end = time.time() + 0.03
    while time.time() < end: pass
    time.sleep(0.07)
"""
FLOOD = """\
import os, socket, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
ends = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
ends[0].bind(("127.0.0.1", 0))
ends[1].connect(ends[0].getsockname())
while True: ends[1].send(b"x" * 1400)
"""
CONVOY = """\
import threading, time
lock, end = threading.Lock(), time.time() + 2
def work():
    while time.time() < end:
        with lock: time.sleep(0.01)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
"""
SPLIT = """\
import os, sys, time
started = time.time()
name = open("/proc/self/comm").read().strip()
message = "x86/split lock detection: #AC: {}/{} took a split_lock trap at address: 0x1\\n"
end, sent = time.time() + 6, False
while (now := time.time()) < end:
    if not sent and now > end - 4.5:
        open("/dev/kmsg", "w").write(message.format(name, os.getpid()))
        sent = True
    while time.time() < now + 0.005: pass
    time.sleep(0.01)
run, wait, _ = open("/proc/self/schedstat").read().split()
print(time.time() - started - (int(run) + int(wait)) / 1e9, file=open(sys.argv[1], "w"))
"""
FAULTS = """\
import mmap, time
end = time.time() + 3
while time.time() < end:
    with mmap.mmap(-1, 1 << 22) as pages:
        for at in range(0, 1 << 22, 4096): pages[at] = 1
"""
ZEROS = """\
import os, random, sys, time
os.sched_setaffinity(0, {int(sys.argv[2])})
fd, block, end = os.open("/dev/zero", os.O_RDONLY), bytearray(1 << 23), time.time() + 13
spent_ns, clock = 0, time.thread_time_ns
while time.time() < end:
    start_ns = clock()
    os.preadv(fd, [block], 0)
    spent_ns += clock() - start_ns
    for _ in range(random.randrange(32000)): pass
print(spent_ns / 13e9, file=open(sys.argv[1], "w"))
"""
REREAD = """\
import os, random, sys, time
fd, end = os.open(sys.argv[1], os.O_RDONLY), time.time() + 8
pages, choose = os.fstat(fd).st_size // 4096, random.Random(0).randrange
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
while time.time() < end: os.pread(fd, 4096, 4096 * choose(pages))
"""


def nightly(test: Any) -> Any:
    for mark in NIGHTLY:
        test = mark(test)
    return test


def daily(test: Callable[..., None]) -> Callable[..., None]:
    """Repeats a test that runs beside others, each time on a new stage."""

    @wraps(test)
    def run(stage: Stage, **cases: Any) -> None:
        stage.close()
        test(stage, **cases)

    return up_to_three_attempts(run)


@dataclass(frozen=True)
class Truth:
    """True times, from the victim's schedstat and /proc/stat."""

    run_s: float
    wait_s: float
    softirq_s: float
    """Softirq time of the CPUs to which it is pinned, except in ksoftirqd, which is a task that
    others wait for."""
    longest_s: float
    """Longest time without running."""

    @property
    def wanted_s(self) -> float:
        return self.run_s + self.wait_s

    @property
    def wait(self) -> float:
        return self.wait_s / self.wanted_s


class Stage:
    """Makes control groups, starts load beside the job, and removes both at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.groups: list[Path] = []
        self.disturbers: list[subprocess.Popen[bytes]] = []
        self.cpu = max(os.sched_getaffinity(0))
        self.data = Path("/var/tmp") / f"perftop-test-{os.getpid()}"  # noqa: S108
        """A file on a disk; the directory may be in memory."""

    def group(self, controller: str, name: str = "") -> Path:
        at = GROUPS / controller / f"perftop-test-{os.getpid()}{name}"
        if not at.exists():
            try:
                at.mkdir()
            except OSError as error:
                pytest.skip(f"no control group can be made here: {error}")
            self.groups.append(at)
        return at

    def home(self) -> Path:
        """The group of the job and of the programs that disturb it."""
        home = self.group("cpu", "-home")
        (home / "cpu.shares").write_text(str(SHARES))
        return home

    def program(self, text: str, name: str = "program") -> str:
        path = self.directory / f"{name}.py"
        path.write_text(text)
        return shlex.join([sys.executable, str(path)])

    def disturb(self, command: str, *, at_home: bool = True) -> int:
        """Starts a command that disturbs the job, in its group if `at_home`. Returns its PID."""
        enter = f"echo $$ > {self.home()}/cgroup.procs; " if at_home else ""
        line = f"{enter}exec {command}"
        self.disturbers.append(subprocess.Popen(["sh", "-c", line], stderr=subprocess.DEVNULL))
        time.sleep(0.3)
        return self.disturbers[-1].pid

    def why(self, command: str) -> dict[str, Any]:
        report = self.directory / "why.json"
        (self.directory / "truth").unlink(missing_ok=True)  # of an earlier attempt
        options = "--json", "-o", str(report), "--force"
        perftop = shlex.join(argv("why", *options, "--", "sh", "-c"))
        line = f'echo $$ > {self.home()}/cgroup.procs; exec {perftop} "$0"'
        done = subprocess.run(
            ["sh", "-c", line, command],
            check=False,
            capture_output=True,
            text=True,
            timeout=MAX_WAIT_S,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(report.read_text().splitlines()[-1])
        assert answer["type"] == "why"
        return answer

    def victim(self, *cpus: int, seconds: int = 4) -> str:
        """Returns the command of a victim that needs a CPU, one of these if there are any."""
        words = self.program(VICTIM, "victim"), self.directory / "truth", seconds, *cpus
        return " ".join(map(str, words))

    def truth(self) -> Truth:
        """Returns the times of all victims together."""
        lines = (self.directory / "truth").read_text().splitlines()
        rows = [[int(word) / 1e9 for word in line.split()] for line in lines]
        run_s, wait_s, softirq_s, longest_s = zip(*rows, strict=True)
        return Truth(sum(run_s), sum(wait_s), max(softirq_s), max(longest_s))

    def why_victim(self, *, seconds: int = 4) -> tuple[dict[str, Any], Truth]:
        """Returns the answer for a victim that needs one CPU, and the times of the victim."""
        return self.why(f"exec {self.victim(self.cpu, seconds=seconds)}"), self.truth()

    def close(self) -> None:
        self.data.unlink(missing_ok=True)
        for process in self.disturbers:
            process.kill()
            process.wait()
        for group in reversed(self.groups):
            for _ in range(50):  # an ended process leaves its group with a delay
                with suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(0.02)
        self.groups, self.disturbers = [], []


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    try:
        yield made
    finally:
        made.close()


def causes(line: dict[str, Any], min_share: float = 0.1) -> dict[str, dict[str, Any]]:
    """Returns the causes that cost at least this share, by name, without the hypervisor, which may
    take time from this machine at any moment."""
    return {
        finding["cause"]: finding
        for finding in line["causes"]
        if finding["lost_ratio"] >= min_share and finding["cause"] != "hypervisor"
    }


def counts(path: Path) -> dict[str, int]:
    lines = re.findall(r"^(\w+) (\d+)$", path.read_text(), re.MULTILINE)
    return {name: int(number) for name, number in lines}


# --- quotas and allocations


@pytest.mark.parametrize("nested", [False, by_night(True)], ids=["own", "ancestor's"])
@daily
def test_the_loss_to_a_quota_matches_the_kernels_count(stage: Stage, nested: bool) -> None:
    limited = stage.group("cpu")
    (limited / "cpu.cfs_quota_us").write_text("20000")
    inner = limited
    if nested:
        inner = limited / "inner"
        inner.mkdir()
        stage.groups.append(inner)
    (limited / "cpu.shares").write_text(str(SHARES))
    line = stage.why(f"echo $$ > {inner}/cgroup.procs; exec {stage.victim(seconds=SHORT_S)}")
    truth_s, truth = counts(limited / "cpu.stat")["throttled_time"] / 1e9, stage.truth()
    found = causes(line)["quota"]
    assert truth_s > 0.5
    assert found["lost_ratio"] == pytest.approx(truth_s / truth.wanted_s, abs=SHORT_POINTS)
    assert found["details"]["cpus"] == 0.2
    assert found["details"]["group"].endswith(limited.name)


@nightly
@pytest.mark.parametrize("by", ["mask", "cpuset"])
def test_two_processes_on_one_cpu_wait_for_each_other(stage: Stage, by: str) -> None:
    if (count := len(os.sched_getaffinity(0))) < 2:
        pytest.skip("one CPU")
    enter = f"taskset -pc {stage.cpu} $$ > /dev/null"
    if by == "cpuset":
        group = stage.group("cpuset")
        (group / "cpuset.mems").write_text((GROUPS / "cpuset/cpuset.mems").read_text())
        (group / "cpuset.cpus").write_text(str(stage.cpu))
        enter = f"echo $$ > {group}/cgroup.procs"
    line = stage.why(f"{enter}; {stage.victim()} & {stage.victim()}; wait")
    found, truth = causes(line)["scheduler"], stage.truth()
    assert truth.wait == pytest.approx(0.5, abs=0.05)
    assert found["lost_ratio"] == pytest.approx(truth.wait, abs=POINTS)
    assert "waited for each other" in found["text"]
    assert any(f"may use 1 of {count} CPUs ({by})" in piece for piece in found["evidence"])


@nightly
def test_more_processes_than_cpus_wait_for_each_other(stage: Stage) -> None:
    several = 2 * len(os.sched_getaffinity(0))
    line = stage.why(f"{' & '.join([stage.victim()] * several)}; wait")
    found, truth = causes(line)["scheduler"], stage.truth()
    assert truth.wait == pytest.approx(0.5, abs=0.1)
    assert found["lost_ratio"] == pytest.approx(truth.wait, abs=POINTS)
    assert "waited for each other" in found["text"]


# --- other tasks on the CPU


@pytest.mark.parametrize(
    ("kind", "text", "least"),
    [
        ("", HOG, 0.4), by_night("nice -n -10", HOG, 0.8), by_night("", PULSES, 0.1),
        by_night("chrt -f 10", PULSES, 0.1),
    ],
    ids=["a hog", "a hog of a higher weight", "pulses", "a real-time hog"],
)  # fmt: skip
@daily
def test_the_loss_to_a_hog_is_the_victims_waiting_time(
    stage: Stage, kind: str, text: str, least: float
) -> None:
    is_real_time = kind.startswith("chrt")  # needs a real-time budget of the group
    command = f"{kind} {stage.program(text, 'hog')} {stage.cpu}"
    pid = stage.disturb(command, at_home=not is_real_time)
    line, truth = stage.why_victim(seconds=SHORT_S)
    (found,) = causes(line).values()
    assert truth.wait > least
    assert (found["cause"], found["confidence"]) == ("scheduler", "measured")
    assert found["lost_ratio"] == pytest.approx(truth.wait, abs=SHORT_POINTS)
    assert f"[{pid}]" in found["text"]


@nightly
def test_the_longest_wait_is_reported_beside_the_sum(stage: Stage) -> None:
    pulses = PULSES.replace("0.03", "0.4").replace("0.07", "1.2")
    command = f"chrt -f 10 {stage.program(pulses, 'hog')} {stage.cpu}"
    stage.disturb(command, at_home=False)  # a group would need a real-time budget
    line, truth = stage.why_victim()
    (found,) = causes(line).values()
    longest_wait = re.search(r"once for (\d+) ms or longer", " ".join(found["evidence"]))
    assert longest_wait is not None
    assert truth.longest_s > 0.2
    assert 0.2 * truth.longest_s <= int(longest_wait[1]) / 1e3 <= truth.longest_s + 0.02


@nightly
def test_a_storm_of_short_processes_is_named_by_its_parent(stage: Stage) -> None:
    pid = stage.disturb(f"taskset -c {stage.cpu} sh -c 'while :; do /bin/true; done'")
    line, truth = stage.why_victim()
    (found,) = causes(line).values()
    assert truth.wait > 0.2
    assert found["cause"] == "scheduler"
    assert found["lost_ratio"] == pytest.approx(truth.wait, abs=POINTS)
    assert f"of sh[{pid}]" in found["text"]


@nightly
@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "beside a hog"])
def test_the_loss_to_softirqs_matches_the_kernels_count(stage: Stage, is_shared: bool) -> None:
    """Softirqs that interrupt the hog make the victim wait, too. The counts of the first and of the
    last second may be missing."""
    spread = Path("/sys/class/net/lo/queues/rx-0/rps_cpus")
    others = sorted(os.sched_getaffinity(0) - {stage.cpu})
    if not others or not os.access(spread, os.W_OK):
        pytest.skip("packets cannot be steered to another CPU here")
    before = spread.read_text()
    spread.write_text(f"{1 << stage.cpu:x}")
    try:
        stage.disturb(f"{stage.program(FLOOD, 'flood')} {others[0]}")
        if is_shared:
            stage.disturb(f"{stage.program(HOG, 'hog')} {stage.cpu}")
        line, truth = stage.why_victim(seconds=30)
    finally:
        spread.write_text(before)
    found = causes(line)["softirq"]
    assert truth.softirq_s > 0.4
    assert found["lost_ratio"] == pytest.approx(truth.softirq_s / 30, abs=POINTS)
    assert "NET_RX" in found["text"]
    assert f"CPU {stage.cpu}" in found["text"]


# --- the kernel


@nightly
def test_samples_of_the_kernel_take_the_share_of_the_jobs_own_clock(stage: Stage) -> None:
    """With 250 samples in each of ten seconds, the standard error of a share is one point. The job
    reads at irregular times, which never keep step with the samples, and in blocks of 8 MB, so that
    its own clock measures little beside the kernel's work."""
    path, profile = stage.directory / "share", KernelProfile()
    pid = stage.disturb(f"{stage.program(ZEROS)} {path} {stage.cpu}")
    spent_ns = span_ns = 0
    try:
        for _ in range(12):
            record = profile.record({stage.cpu: 0.5}, time.monotonic_ns())
            span_ns += record.get("span_ns", 0)
            rows = record.get("functions", ())
            spent_ns += sum(ns for _, _, sampled_pid, _, ns in rows if sampled_pid == pid)
            time.sleep(1)
    finally:
        profile.close()
    if not span_ns:
        pytest.skip("the kernel may not be sampled here")
    stage.disturbers[-1].wait(MAX_WAIT_S)
    assert spent_ns / span_ns == pytest.approx(float(path.read_text()), abs=POINTS)


# --- memory and disk


@nightly
def test_the_loss_to_a_memory_limit_matches_the_kernels_count(stage: Stage) -> None:
    limited, unified = stage.group("memory"), stage.group("unified")
    pressure = unified / "memory.pressure"
    if not pressure.exists():
        pytest.skip("the kernel does not account for the pressure of groups")
    (limited / "memory.limit_in_bytes").write_text("50M")
    stage.data.write_bytes(os.urandom(1 << 20) * 64)
    fd = os.open(stage.data, os.O_RDWR)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    enter = f"echo $$ > {limited}/cgroup.procs; echo $$ > {unified}/cgroup.procs"
    line = stage.why(f"{enter}; exec {stage.program(REREAD)} {stage.data}")
    truth_s = int(pressure.read_text().split("total=")[1].split()[0]) / 1e6
    if truth_s < 0.1:
        pytest.skip("the file comes from memory all the same")
    found = causes(line, 0.005)["memory-limit"]
    wall_s = line["run"]["wall_s"]
    assert found["lost_s"] == pytest.approx(truth_s, abs=POINTS * wall_s)
    assert line["spent"]["slept_s"] < POINTS * wall_s  # it waits for a CPU or for the file
    assert found["details"]["group"].endswith(limited.name)
    if line["spent"]["disk_s"] > 0.2 * wall_s:
        assert "memory-limit-reads" in {clue["key"] for clue in line["clues"]}


@daily
def test_a_job_that_waits_for_the_disk_loses_nothing_to_others(stage: Stage) -> None:
    line = stage.why(f"dd if=/dev/zero of={stage.data} bs=64k count=2000 oflag=sync 2> /dev/null")
    assert {*causes(line, 0.2)} <= {"scheduler"}  # other load of the machine
    if Path("/proc/pressure/io").exists():
        assert line["spent"]["disk_s"] > 2 * line["spent"]["blocked_s"]


@nightly
def test_sleeps_after_split_locks_are_attributed_to_them(stage: Stage) -> None:
    """The log gets the kernel's message; the victim sleeps like one that the kernel stops."""
    log = Path("/dev/kmsg")
    if not os.access(log, os.W_OK):
        pytest.skip("the kernel's log cannot be written here")
    line = stage.why(f"exec {stage.program(SPLIT, 'split')} {stage.directory / 'slept'}")
    slept_s = float((stage.directory / "slept").read_text())
    found = causes(line)["split-lock"]
    assert found["lost_s"] == pytest.approx(slept_s, abs=POINTS * line["run"]["wall_s"])
    assert found["confidence"] == "inferred"


# --- no outside cause


@pytest.mark.parametrize("by", ["SIGSTOP", by_night("a frozen group")])
@daily
def test_a_job_that_is_stopped_for_two_seconds(stage: Stage, by: str) -> None:
    stop, go = "kill -STOP $p", "kill -CONT $p"
    enter = ""
    if by != "SIGSTOP":
        group = stage.group("freezer")
        enter = f"echo $p > {group}/cgroup.procs; "
        stop, go = (f"echo {word} > {group}/freezer.state" for word in ("FROZEN", "THAWED"))
    victim = stage.victim(seconds=3)
    line = stage.why(f"{victim} & p=$!; {enter}sleep 1; {stop}; sleep 2; {go}; wait")
    found, most_s = causes(line)["stopped"], 2 * POINTS * line["run"]["wall_s"]
    assert found["lost_s"] == pytest.approx(2.0, abs=most_s)
    assert found["text"].endswith(f"({by})")
    assert line["spent"]["stopped_s"] == pytest.approx(2.0, abs=most_s)


@pytest.mark.parametrize(
    "program", [CONVOY, by_night(FAULTS)], ids=["a lock convoy", "page faults"]
)
@daily
def test_what_a_program_does_itself_is_not_attributed_to_others(stage: Stage, program: str) -> None:
    line = stage.why(f"exec {stage.program(program)}")
    assert {*causes(line, 0.05)} <= {"scheduler"}  # other load of the machine
    assert line["spent"]["quota_s"] == line["spent"]["stopped_s"] == 0


@nightly
def test_an_undisturbed_victim_loses_nothing(stage: Stage) -> None:
    line, truth = stage.why_victim()
    assert causes(line, truth.wait + POINTS) == {}


@nightly
def test_a_job_that_sleeps_loses_nothing(stage: Stage) -> None:
    line = stage.why("exec sleep 4")
    assert causes(line) == {}
    assert line["spent"]["slept_s"] == pytest.approx(4.0, abs=POINTS * 4)
    assert line["spent"]["stopped_s"] == 0

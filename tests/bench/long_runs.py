"""Long runs, in which memory, descriptors and threads must not grow. Prints a line for each sample,
and a line for each process with what has grown. Failed runs are reported as well.

`simulated`: runs `stat` and the screen as fast as possible, on a calm simulated machine and on one
with many episodes. `here`: runs `stat` and `record` at once on this machine, with samples of 10 ms.

Run by hand: python tests/bench/long_runs.py simulated [HOURS] [CPUS]  (8 and 64; with 8 CPUs at
             least 6: the history of a screen reaches its budget after 1.5 hours)
             python tests/bench/long_runs.py here [SECONDS]  (3600; quick: 60)
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import terminal
from read_back import check_recording, faults
from terminal import Screen

from perfprobe import wire
from perfprobe.sources.sim.source import SimSource

PERFTOP = [sys.executable, "-m", "perftop"]
SAMPLES = 48
"""Number of samples of a run; the first one is one period after the start."""
CALM, EVENTFUL = "steady", "halts"
SAMPLE_NS = 100_000_000
MAX_SILENT_S = 120.0

SLACK, SLACK_MB = 0.02, 2.0
RULE = (
    f"flat: in the last quarter of a run no process holds more than {SLACK:.0%} and {SLACK_MB:g} MB"
    " above the maximum in its second quarter, and not one descriptor or thread more"
)
"""The first quarter of samples is skipped, because bounded stores fill up in that time."""


class ProcessUsage(NamedTuple):
    rss_mb: float
    descriptors: int
    threads: int

    def __str__(self) -> str:
        return f"{self.rss_mb:.1f} MB, {self.descriptors} descriptors, {self.threads} threads"


def process_usage(pid: int) -> ProcessUsage:
    """Raises OSError if the process has ended."""
    process = Path(f"/proc/{pid}")
    return ProcessUsage(
        terminal.rss_mb(pid), len(os.listdir(process / "fd")), len(os.listdir(process / "task"))  # noqa: PTH208
    )  # fmt: skip


def process_tree(pid: int) -> dict[str, int]:
    """Returns the pids of a running perftop and its probe."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        return dict(zip(("perftop", "perfprobe"), [pid, *map(int, words)], strict=False))
    return {}


def growth(samples: Sequence[ProcessUsage]) -> str:
    """Returns what has grown in these samples of a process; '' if nothing has."""
    quarter = len(samples) // 4
    if not quarter:
        return "too few samples"
    early, late = (map(max, zip(*part, strict=True))
                   for part in (samples[quarter : 2 * quarter], samples[-quarter:]))  # fmt: skip
    before, after = ProcessUsage(*early), ProcessUsage(*late)
    few = before.rss_mb * (1 + SLACK) + SLACK_MB
    words = [f"{after.rss_mb:.1f} MB after {before.rss_mb:.1f}"] if after.rss_mb > few else []
    for name in ("descriptors", "threads"):
        one, other = getattr(before, name), getattr(after, name)
        words += [f"{other} {name} after {one}"] if other > one else []
    return ", ".join(words)


class Run:
    """A running perftop; `sample_processes` samples its memory, descriptors and threads."""

    def __init__(self, name: str, pid: int) -> None:
        self.name, self.pid = name, pid
        self._samples: dict[str, list[ProcessUsage]] = {}

    def sample_processes(self, at: str) -> None:
        results = {}
        for what, pid in process_tree(self.pid).items():
            with contextlib.suppress(OSError):  # `judge` reports the end of a process
                results[what] = process_usage(pid)
        for what, now in results.items():
            self._samples.setdefault(what, []).append(now)
        report = "; ".join(f"{what} {now}" for what, now in results.items())
        print(f"{self.name}, {at}: {report}", flush=True)

    def judge(self, problem: str = "") -> bool:
        """Prints the result of the run. Returns whether it passed."""
        bad = [problem] if problem else []
        for what, samples in self._samples.items():
            more = growth(samples)
            bad += [more] if more else []
            maximum = ProcessUsage(*map(max, zip(*samples, strict=True)))
            print(f"{self.name}, {what}: {'NOT FLAT: ' + more if more else 'flat'}; "
                  f"first {samples[0]}, last {samples[-1]}, most {maximum}")  # fmt: skip
        print(f"{self.name}: {'FAILED: ' + problem if problem else 'went well'}", flush=True)
        return not bad


# --- simulated


def bytes_a_second(spec: str) -> float:
    """Returns the bytes that the probe writes in a simulated second, from which the progress of a
    run is computed."""
    source = SimSource(spec, SAMPLE_NS)
    written, end_ns, now_ns = 0, source.hello.raw_ns + 60 * 10**9, 0
    while now_ns < end_ns:
        for message in source.poll():
            written += len(wire.encode(message))
            now_ns = message.time_ns if isinstance(message, wire.Frame) else now_ns
    source.close()
    return written / 60


def written_by(pid: int) -> int:
    text = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    return int(text.partition("wchar: ")[2].split()[0])


def follow_run(run: Run, hours: float, rate: float, drain: Callable[[], int]) -> str:
    """Takes samples of a run until it has simulated `hours`. Returns what went wrong, or ''."""
    next_s, last, heard_s = 0.0, 0, time.monotonic()
    while True:
        drain()
        probe = process_tree(run.pid).get("perfprobe")
        if probe is None:
            if last:
                return "it has ended by itself"
            continue
        try:
            now = written_by(probe)
            done_s = now / rate
            if now > last:
                last, heard_s = now, time.monotonic()
            if done_s >= next_s + hours * 3600 / SAMPLES:
                next_s = done_s
                run.sample_processes(f"{done_s / 3600:.2f} h")
        except OSError:
            continue  # the run is ending; the next iteration detects that
        if done_s >= hours * 3600:
            return ""
        if time.monotonic() - heard_s > MAX_SILENT_S:
            return f"silent for {MAX_SILENT_S:g} s"


def run_on_simulated_machine(scenario: str, hours: float, cpus: int) -> bool:
    spec = f"sim:{scenario},cpus={cpus},speed=max"
    rate, source = bytes_a_second(spec), ["--source", spec]
    argv = [*PERFTOP, "stat", "--json", "-i", "10s", *source]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        out = process.stdout.fileno()
        run = Run(f"stat, {scenario}", process.pid)
        problem = follow_run(run, hours, rate, lambda: terminal.drain(out, 0.05))
        process.send_signal(signal.SIGINT)
        report, errors = process.communicate()
        if not problem and (process.returncode != 130 or b'"summary"' not in report or errors):
            problem = f"status {process.returncode}, {errors.decode()!r}"
    good = run.judge(problem)

    with Screen([*PERFTOP, *source]) as screen:
        run = Run(f"screen, {scenario}", screen.pid)
        problem = follow_run(run, hours, rate, lambda: terminal.drain(screen.fd, 0.05))
        status = 0 if problem else screen.quit()
    return run.judge(problem or (f"status {status}" if status else "")) and good


# --- on this machine


def run_on_this_machine(seconds: int) -> bool:
    path = Path(tempfile.mkdtemp(prefix="long-")) / "recording"
    sample = ["--sample", "10ms"]
    stat = [*PERFTOP, "stat", "--json", "-i", "1s", "-n", str(seconds), *sample]
    record = [*PERFTOP, "record", "-o", str(path), "--duration", f"{seconds}s", *sample]
    lines = path.with_name("lines")
    with lines.open("wb") as out:
        processes = [subprocess.Popen(argv, stdout=to, stderr=subprocess.PIPE)
                     for argv, to in ((stat, out), (record, subprocess.DEVNULL))]  # fmt: skip
    runs = [Run(name, p.pid) for name, p in zip(("stat", "record"), processes, strict=True)]
    try:
        sample_runs(runs, seconds)
    except BaseException:
        for process in processes:
            process.terminate()
        raise
    errors = [process.communicate()[1].decode() for process in processes]
    problems = [f"status {process.returncode}, {message!r}" if process.returncode else ""
                for process, message in zip(processes, errors, strict=True)]  # fmt: skip
    report = lines.read_bytes()
    intervals = report.count(b'{"type":"interval"')
    print(f"stat: {intervals} intervals; the summary ends {report[-120:].strip()!r}")
    problems[1] = problems[1] or read_back_faults(path)
    good = [run.judge(problem) for run, problem in zip(runs, problems, strict=True)]
    return all(good)


def sample_runs(runs: list[Run], seconds: int) -> None:
    start_s = time.monotonic()
    for turn in range(1, SAMPLES):
        time.sleep(max(0.0, start_s + seconds * turn / SAMPLES - time.monotonic()))
        for run in runs:
            run.sample_processes(f"{(time.monotonic() - start_s) / 60:.1f} min")


def read_back_faults(path: Path) -> str:
    """Returns the faults of the recording, or ''."""
    report, damage = check_recording(path)
    print(f"record: {report.seen['frames']} frames, {report.seen['lost']} lost, "
          f"{path.stat().st_size / 1e6:.1f} MB")  # fmt: skip
    return damage or ", ".join(faults(report.faults))


def main(what: str, numbers: list[float]) -> int:
    print(RULE)
    if what == "here":
        return 0 if run_on_this_machine(int((numbers or [3600])[0])) else 1
    hours, cpus = numbers + [8.0, 64.0][len(numbers) :]
    good = [run_on_simulated_machine(scenario, hours, int(cpus)) for scenario in (CALM, EVENTFUL)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in {"simulated", "here"}:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], [float(text) for text in sys.argv[2:]]))

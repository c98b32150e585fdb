"""Takes CPUs of a fake kernel offline and online in storms while a recording runs, and then reads
the recording.

In a storm some CPUs go offline in random order, at random times, and come online in another order,
possibly several times. Nothing may crash, the recording must report all missing data, and no
counter may stay programmed; every second recording ends in the middle of a storm. Prints a line for
each recording, and one for all. Needs root and /dev/fuse.

Run by hand: PYTHONPATH=tests:tests/support python tests/bench/storm_cpus.py [STORMS] [SEED]
             (500 storms; quick: 20)
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from command import argv, run
from fakekernel.client import FakeKernel, unavailable
from journals import entries_left, swept_directory
from read_back import check_recording, faults

CORES, STORMS_PER_RECORDING = 4, 25
"""Number of cores of the fake kernel, each with two threads; number of storms in a recording."""
PAUSES_S = 0.02, 0.1, 0.4
"""Longest pauses in s between two switches of a storm. The recording reads the list of CPUs every
0.2 s, so it misses some changes."""
MAX_ONLINE_WAIT_S = 30.0
"""Longest wait in s until the recording sees that the CPUs are online."""
SAMPLE = ("--sample", "20ms")
Switch = Callable[[int, bool], None]


def storm(rng: random.Random, switch: Switch) -> None:
    cpus = range(1, 2 * CORES)
    off, pause_s = rng.sample(cpus, rng.randint(1, len(cpus))), rng.choice(PAUSES_S)
    for _ in range(rng.choice((1, 1, 2, 4))):
        for online in (False, True):
            for cpu in rng.sample(off, len(off)):
                switch(cpu, online)
                if rng.random() < 0.4:
                    time.sleep(rng.random() ** 2 * pause_s)
            if not online:
                time.sleep(rng.choice((0.0, 0.0, rng.random() * pause_s)))


@contextlib.contextmanager
def running_recording(path: Path, *source: str) -> Iterator[subprocess.Popen[bytes]]:
    """Waits until the recording has started."""
    command = argv("record", "-o", str(path), *SAMPLE, *source)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            while process.poll() is None and not (path.exists() and path.stat().st_size):
                time.sleep(0.01)
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


def wait_until_online(path: Path) -> None:
    """Waits until the recording has seen that all CPUs are online, or until the time is up;
    `judge_recording` checks the recording later."""
    end_s = time.monotonic() + MAX_ONLINE_WAIT_S
    while check_recording(path)[0].off and time.monotonic() < end_s:
        time.sleep(0.2)


def judge_recording(
    path: Path, storms: int, wrong: list[str], total: Counter[str], *, all_on: bool
) -> None:
    """Reads the recording and prints its line; `wrong` has the faults that were found before."""
    story, damage = check_recording(path)
    wrong += [f"CPUs {story.off} did not return"] * bool(story.off and all_on)
    wrong += [damage] * bool(damage) + list(faults(story.faults))
    total += story.seen
    total["FAILED"] += bool(wrong)
    seen = ", ".join(f"{n} {word}" for word, n in story.seen.items() if n)
    print(f"{storms} storms: {seen}: {'; '.join(wrong) or 'all reported'}", flush=True)


def record_fake_storms(
    kernel: FakeKernel, path: Path, storms: int, rng: random.Random, *, mid: bool
) -> list[str]:
    """Makes a recording, which ends during a storm if `mid`. Returns what went wrong."""
    online = dict.fromkeys(range(2 * CORES), True)

    def switch(cpu: int, state: bool) -> None:
        if state and rng.random() < 0.5:  # firmware may have set up its registers again
            kernel.ask("reset", cpu=cpu)
        kernel.ask("online", cpu=cpu, online=state)
        online[cpu] = state

    source = ("--source", "msr", "--sysroot", str(kernel.root))
    with running_recording(path, *source) as process:
        for _ in range(storms):
            storm(rng, switch)
        wait_until_online(path)
        if mid:
            for cpu in rng.sample(range(1, 2 * CORES), 3):
                switch(cpu, state=False)
                time.sleep(rng.random() * PAUSES_S[1])
        process.send_signal(rng.choice((signal.SIGINT, signal.SIGTERM)))
        message = process.communicate()[1].decode()
    off = [cpu for cpu, state in online.items() if not state]
    stay = "stay programmed" in message
    for cpu in off:
        switch(cpu, state=True)
    wrong = [f"status {process.returncode}: {message}"] if process.returncode != int(stay) else []
    if stay:  # any `stat` restores the registers, like the printed command
        run("stat", "-n", "1", "-i", "100ms", *source)
    wrong += [f"programmed: {kernel.changed()}"] * bool(kernel.changed())
    return wrong + ["a journal is left"] * bool(entries_left(kernel.root))


def run_on_fake_kernel(storms: int, rng: random.Random, directory: Path) -> Counter[str]:
    total = Counter[str]()
    with swept_directory(directory / "root"), FakeKernel(directory / "root", cores=CORES) as kernel:
        for number in range(-(-storms // STORMS_PER_RECORDING)):
            count = min(STORMS_PER_RECORDING, storms - number * STORMS_PER_RECORDING)
            path, mid = directory / f"recording-{number}", number % 2 == 1
            wrong = record_fake_storms(kernel, path, count, rng, mid=mid)
            judge_recording(path, count, wrong, total, all_on=not mid)
    return total


def main(numbers: list[int]) -> int:
    storms, seed = numbers + [500, 1][len(numbers) :]
    if why := unavailable():
        print(f"not run: {why}")
        return 0
    directory = Path(tempfile.mkdtemp(prefix="storms-"))
    total = run_on_fake_kernel(storms, random.Random(seed), directory)
    print(f"all {storms} storms: {dict(total)}")
    return 1 if total["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main([int(text) for text in sys.argv[1:]]))

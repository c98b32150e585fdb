"""Takes CPUs offline and online in storms while a recording runs, and then reads the recording.

In a storm some CPUs go offline in random order, at random times, and come online in another order,
possibly several times. Nothing may crash, the recording must report all missing data, and no
counter may stay programmed. Prints a line for each recording, and one for all.

`fake`: on a fake kernel (needs root and /dev/fuse) with `--source msr`; every second recording ends
in the middle of a storm. `here`: on this machine, CPU 1 (needs root and a kernel that lets it go
off); it is offline for at most 0.3 s, and is brought online even if this program is killed.

Run by hand: PYTHONPATH=tests:tests/support python tests/bench/storm_cpus.py fake [STORMS] [SEED]
             … here [STORMS] [SEED]
             (500 storms for `fake`, 50 for `here`; quick: 20 and 3)
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from command import argv, run
from fakekernel.client import FakeKernel, unavailable
from journals import entries_left, swept_directory
from read_back import check_recording, faults

CORES, STORMS_PER_RECORDING = 4, 25
"""Number of cores of the fake kernel, each with two threads; number of storms in a recording."""
PAUSES_S, LONGEST_OFF_S = (0.02, 0.1, 0.4), 0.3
"""Longest pauses in s between two switches of a storm; the last only on the fake kernel. The
recording reads the list of CPUs every 0.2 s, so it misses some changes."""
ONLINE = Path("/sys/devices/system/cpu/cpu1/online")
MAX_ONLINE_WAIT_S = 30.0
"""Longest wait in s until the recording sees that the CPUs are online."""
SAMPLE = ("--sample", "20ms")
Switch = Callable[[int, bool], None]


def storm(rng: random.Random, cpus: list[int], pauses_s: Sequence[float], switch: Switch) -> None:
    off, pause_s = rng.sample(cpus, rng.randint(1, len(cpus))), rng.choice(pauses_s)
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
    path: Path, what: str, wrong: list[str], total: Counter[str], *, all_on: bool = True
) -> None:
    """Reads the recording and prints its line; `wrong` has the faults that were found before."""
    recording_story, damage = check_recording(path)
    wrong += (
        [f"CPUs {recording_story.off} did not return"] if recording_story.off and all_on else []
    )
    total += recording_story.seen
    wrong += [damage] * bool(damage) + list(faults(recording_story.faults))
    total["FAILED"] += bool(wrong)
    print(f"{what}: {', '.join(f'{n} {word}' for word, n in recording_story.seen.items() if n)}: "
          f"{'; '.join(wrong) or 'all reported'}", flush=True)  # fmt: skip


# --- on a fake kernel


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
            storm(rng, list(range(1, 2 * CORES)), PAUSES_S, switch)
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
            count, path = (
                min(STORMS_PER_RECORDING, storms - number * STORMS_PER_RECORDING),
                directory / f"recording-{number}",
            )
            wrong = record_fake_storms(kernel, path, count, rng, mid=number % 2 == 1)
            judge_recording(
                path, f"fake kernel, {count} storms", wrong, total, all_on=number % 2 == 0
            )
    return total


# --- on this machine


@contextlib.contextmanager
def restored_cpu() -> Iterator[None]:
    """Brings CPU 1 online at the end of the block. A second process waits for the end of this one
    and does so if it is killed."""
    waiting, result = os.pipe()
    if not os.fork():
        os.setsid()
        os.close(result)
        os.read(waiting, 1)
        with contextlib.suppress(OSError):
            ONLINE.write_text("1")
        os._exit(0)
    os.close(waiting)
    try:
        yield
    finally:
        ONLINE.write_text("1")
        os.close(result)
        os.wait()


def run_on_this_machine(storms: int, rng: random.Random, directory: Path) -> Counter[str]:
    total, path = Counter[str](), directory / "recording"
    since_s, longest_s = 0.0, 0.0

    def switch(_: int, state: bool) -> None:
        nonlocal since_s, longest_s
        ONLINE.write_text(str(int(state)))
        longest_s = max(longest_s, time.monotonic() - since_s) if state else longest_s
        since_s = time.monotonic()

    with running_recording(path) as process, restored_cpu():
        for _ in range(storms):
            storm(rng, [1], PAUSES_S[:-1], switch)
            time.sleep(PAUSES_S[1])
        wait_until_online(path)
        process.send_signal(signal.SIGINT)
        message = process.communicate()[1].decode()
    wrong = [f"status {process.returncode}: {message}"] if process.returncode else []
    if longest_s > LONGEST_OFF_S:
        print(f"the machine was busy: CPU 1 was off for {longest_s:.2f} s")
    judge_recording(path, f"this machine, {storms} storms", wrong, total)
    return total


def main(what: str, numbers: list[int]) -> int:
    storms, seed = numbers + [50 if what == "here" else 500, 1][len(numbers) :]
    why = unavailable() if what == "fake" else ""
    if what == "here" and not os.access(ONLINE, os.W_OK):
        why = f"{ONLINE} cannot be written"
    if why:
        print(f"not run: {why}")
        return 0
    directory = Path(tempfile.mkdtemp(prefix="storms-"))
    rng = random.Random(seed)
    total = (run_on_this_machine if what == "here" else run_on_fake_kernel)(storms, rng, directory)
    print(f"all {storms} storms: {dict(total)}")
    return 1 if total["FAILED"] else 0


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in {"fake", "here"}:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], [int(text) for text in sys.argv[2:]]))

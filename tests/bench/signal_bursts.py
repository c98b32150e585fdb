"""Sends bursts of random signals to perftop, from its start to its end: no process may remain, the
terminal must be restored, and the status must be a documented one.

Run by hand: python tests/bench/signal_bursts.py [BURSTS [SEED]]   default: 1000 bursts, two at once
While the interpreter starts, a signal acts as on any Python program, and ends it; Ctrl-C also
prints a traceback. Bursts that arrived before perftop's first instruction, which installs handlers,
are counted separately; after it only documented statuses are right."""

from __future__ import annotations

import collections
import os
import pty
import random
import re
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / part) for part in ("support", "bench")]

import terminal  # noqa: E402
from command import argv  # noqa: E402

AT_ONCE = 2
SIM = ["--source", "sim:smt-mix,cpus=2"]
COMMAND = ["--", "sh", "-c", "sleep 0.3; exit 7"]
VERBS = {
    "live --": (["live", *SIM, *COMMAND], True),
    "stat --": (["stat", *SIM, *COMMAND], False),
    "record --": (["record", "-o", "OUT", *SIM, *COMMAND], False),
    "why": (["why", "--duration", "500ms", *SIM], False),
    "doctor": (["doctor"], False),
    "ramp": (["ramp", "--seconds", "1"], False),
    "live": (["live", *SIM], True),
}
"""Arguments of each verb, and whether it runs on a terminal."""
SIGNALS = [getattr(signal, f"SIG{name}") for name in (
    "INT", "TERM", "HUP", "QUIT", "TTIN", "TTOU", "TSTP", "CONT", "PIPE", "WINCH", "CHLD",
    "USR1",
)]  # fmt: skip
STATUSES = {0, 1, 3, 7, 126} | {128 + number for number in SIGNALS if number != signal.SIGUSR1}
LIMIT_S = 120.0
"""Longest time in s for which a run may go on after its signals; it is generous, because a busy
machine takes half a minute to start a screen."""


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def _handles_signals(pid: int) -> bool:
    """Returns whether perftop has run its first instruction: only then SIGTERM has a handler, or is
    ignored near the end."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    masks = re.findall(r"Sig(?:Ign|Cgt):\s*(\w+)", status)
    return not masks or any(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in masks)


EARLY = " before perftop"
"""Suffix of the name of a signal that arrived before perftop's first instruction."""


def burst(pid: int, chance: random.Random) -> list[str]:
    """Sends signals and returns their names. Finally it continues the program and asks it to
    end."""
    end_s, sent = time.monotonic() + LIMIT_S, list[str]()
    time.sleep(chance.choice((0.0, 0.0, 0.3)) + chance.expovariate(3))
    for _ in range(chance.randint(1, 6)):
        number = chance.choice(SIGNALS)
        sent.append(number.name[3:] + ("" if _handles_signals(pid) else EARLY))
        for target in (number, signal.SIGCONT):
            try:
                os.kill(pid, target)
            except ProcessLookupError:
                return sent
            time.sleep(chance.choice((0.0, 0.0, 0.002, 0.05)))
    time.sleep(chance.uniform(0.0, 0.5))
    try:
        os.kill(pid, signal.SIGTERM)
        while _runs(pid) and time.monotonic() < end_s:  # the program may have stopped itself since
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.3)
    except ProcessLookupError:
        pass
    return sent


def result_of_burst(number: int, seed: int) -> tuple[str, str]:
    """Returns the verb and what went wrong: '' if nothing did, 'early' for a signal before
    perftop's first instruction."""
    chance = random.Random(f"{seed} {number}")
    verb = list(VERBS)[number % len(VERBS)]
    words, on_terminal = VERBS[verb]
    with tempfile.TemporaryDirectory() as directory:
        command = argv(*(word.replace("OUT", f"{directory}/r") for word in words))
        run = _on_terminal if on_terminal else _in_pipes
        return verb, run(command, chance)


def _in_pipes(command: list[str], chance: random.Random) -> str:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
    sent = burst(process.pid, chance)
    try:
        text = process.communicate(timeout=LIMIT_S)[1].decode(errors="replace")
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        text, status = "", None
    left = _left(process.pid)
    if status is None:
        process.communicate()
    return _problem(status, text, left, sent)


def _on_terminal(command: list[str], chance: random.Random) -> str:
    main, other = pty.openpty()
    before = termios.tcgetattr(other)
    process = subprocess.Popen(
        command, stdin=other, stdout=other, stderr=other, start_new_session=True,
        env=os.environ | {"TERM": "xterm-256color"},
    )  # fmt: skip
    data = b""
    sending = threading.Thread(target=lambda: sent.extend(burst(process.pid, chance)))
    sent: list[str] = []
    sending.start()
    end_s = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < end_s:
        data += terminal.drained_bytes(main, 0.05)
    sending.join()
    status = process.poll()
    data += terminal.drained_bytes(main, 0.05)
    left = _left(process.pid)
    process.wait()
    after = termios.tcgetattr(other)
    os.close(main)
    os.close(other)
    problem = _problem(status, data.decode(errors="replace"), left, sent)
    if problem in {"", "early"} and before != after:
        problem = f"the terminal is changed after {sent}, status {status}"
    output = data.rfind(b"\x1b[?1049h")
    if problem in {"", "early"} and output > data.rfind(b"\x1b[?1049l"):
        problem = f"the other screen stays after {sent}, status {status}"
    return problem


def _left(session: int) -> int:
    """Kills the processes of the session that still run after half a second. Returns their
    number."""
    time.sleep(0.5)
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if fields[3] == str(session) and fields[0] != "Z":
            count += 1
            os.kill(int(entry.name), signal.SIGKILL)
    return count


def _problem(status: int | None, text: str, left: int, sent: list[str]) -> str:
    if status is None:
        return f"it never ends after {sent}"
    if left:
        return f"{left} processes are left after {sent}, status {status}"
    if any(name.endswith(EARLY) for name in sent) and (status < 0 or "KeyboardInterrupt" in text):
        return "early"
    if "Traceback" in text or "internal error" in text:
        return f"a traceback after {sent}, status {status}: {text.strip()[-700:]}"
    if status not in STATUSES:
        return f"status {status} after {sent}"
    return ""


def main(words: list[str]) -> int:
    bursts, seed = (int(words[0]) if words else 1000), (int(words[1]) if words[1:] else 1)
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for verb, problem in pool.map(lambda n: result_of_burst(n, seed), range(bursts)):
            kind = problem if problem in {"", "early"} else "wrong"
            counts[verb][kind or "right"] += 1
            if kind == "wrong":
                print(f"✗ {verb:10} {problem}", flush=True)
    for verb, count in counts.items():
        print(f"{verb:10} {count['right']:5} right {count['early']:4} before perftop "
              f"{count['wrong']:4} wrong")  # fmt: skip
    return 1 if any(count["wrong"] for count in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

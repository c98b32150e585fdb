"""Runs perftop on a terminal and sends it random keys, clicks and resizes. Prints what went wrong:
an end, a traceback, a Python error on a line, cells outside the terminal, help that does not come.
Run by hand: PYTHONPATH=tests/support python tests/bench/walk_terminal.py seconds seed WORD…
(the words after `perftop`)
"""

from __future__ import annotations

import codecs
import fcntl
import os
import random
import re
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import terminal
from terminal_apps import Cells

PERFTOP = str(Path(sys.executable).with_name("perftop"))
SIZES = (80, 24), (120, 30), (160, 50), (240, 70)
ESCAPES = [b"\x1b" + word for word in (
    b"[A", b"[B", b"[C", b"[D", b"[H", b"[F", b"[5~", b"[6~", b"[1;2C", b"[1;2D", b"[Z", b"OP",
    b"OQ", b"OR", b"OS", b"[15~", b"[17~", b"[18~", b"[20~", b"",
)]  # fmt: skip
TYPED = [bytes([code]) for code in range(32, 127) if code != ord("q")]
KEYS = [*TYPED, *ESCAPES, *[b"\r", b"\t", b"\x7f", b"\x0c", b"\x1b[A", b"\x1b[B"] * 4,
        *[bytes([code]) for code in b"123456<>[]nNdyw,."] * 3]  # fmt: skip
TEXTS = [b":theme\r", b"/busy>5\r", b"/lmp\r", b"J-20s\r", b"J+5s\r", b"mhere\r", b"/x", b"J9", b":x"]
ERROR = re.compile(r"\b[A-Z]\w*(Error|Exception)\b|NoneType|Traceback|<\w+ object at|\bnan\b")
UNFINISHED = re.compile(r"\x1b(\[[0-9;?]*|\][^\x07]*)?$")
LIMIT_S = 20.0


class Walk:
    def __init__(self, words: list[str], rng: random.Random) -> None:
        self.rng, self.cells, self.steps = rng, Cells(), list[str]()
        self.size, self.resized_s, self.slowest_s = terminal.SIZE, 0.0, 0.0
        self.screen = terminal.Screen([PERFTOP, *words])
        self.decoder, self.rest, self.tail = codecs.getincrementaldecoder("utf-8")(), "", ""

    def read(self, seconds: float) -> None:
        text = self.rest + self.decoder.decode(terminal.drained_bytes(self.screen.fd, seconds))
        cut = UNFINISHED.search(text)
        end = cut.start() if cut else len(text)
        text, self.rest = text[:end], text[end:]
        self.tail = (self.tail + text)[-4000:]
        self.cells.write(text, self.size[0])

    def send(self, data: bytes, name: str) -> None:
        self.steps.append(name)
        os.write(self.screen.fd, data)

    def resize(self, size: tuple[int, int]) -> None:
        self.steps.append("size {}x{}".format(*size))
        self.size, self.resized_s = size, time.monotonic()
        fcntl.ioctl(self.screen.fd, termios.TIOCSWINSZ, struct.pack("HHHH", *size[::-1], 0, 0))

    def step(self) -> None:
        rng, (columns, lines) = self.rng, self.size
        kind = rng.random()
        if kind < 0.6:
            key = rng.choice(KEYS)
            self.send(key, repr(key))
        elif kind < 0.65:
            text = rng.choice(TEXTS)
            self.send(text, repr(text))
        elif kind < 0.9:
            x, y = rng.randint(1, columns), rng.choice([1, 2, 3, lines, rng.randint(1, lines)])
            button = rng.choice([0, 0, 0, 64, 65, 2])
            ends = [f"\x1b[<{button};{x};{y}M"]
            if button in {0, 2}:
                if not rng.randrange(4):
                    x, y = rng.randint(1, columns), rng.randint(1, lines)
                    ends.append(f"\x1b[<{button + 32};{x};{y}M")
                ends.append(f"\x1b[<{button};{x};{y}m")
            self.send("".join(ends).encode(), f"mouse {button} {x},{y}")
        else:
            size = rng.choice([*SIZES, (rng.randint(1, 260), rng.randint(1, 80))])
            self.resize(size)

    def faults(self) -> list[str]:
        """Returns what is wrong on the screen now."""
        columns, lines = self.size
        text = self.cells.lines(columns, lines)
        wrong = [line.strip() for line in text if ERROR.search(line)]
        return wrong

    def check(self) -> list[str]:
        """Leaves whatever is open, asks for help, and returns what is wrong."""
        self.read(0.2)
        wrong = self.faults()
        self.resize((100, 30))
        for _ in range(5):
            self.send(b"\x1b", "esc")
            self.read(0.25)
        self.read(1.0)
        self.cells._cells.clear()
        self.send(b"\x0c", "ctrl+l")
        self.read(1.0)
        outside = [(y, x) for y, x in self.cells._cells if y >= 30 or x >= 100]
        if outside:
            wrong.append(f"cells outside 100x30: {len(outside)} {outside[:5]}")
            wrong.extend("".join(c[0] for c in self.cells.cells(260, y)) for y in sorted({y for y, _ in outside})[:4])
        begin_s = time.monotonic()
        self.send(b"?", "?")
        while not (after := self.cells.lines(100, 30))[0].startswith(" help   esc"):
            self.read(0.05)
            if time.monotonic() > begin_s + LIMIT_S or self.screen.has_ended():
                wrong.append("no help:\n" + "\n".join(after))
                break
        self.slowest_s = max(self.slowest_s, time.monotonic() - begin_s)
        self.send(b"\x1b", "esc")
        self.read(0.3)
        return wrong

    def run(self, end_s: float) -> list[str]:
        self.read(3.0)
        checked_s = time.monotonic()
        while time.monotonic() < end_s:
            for _ in range(self.rng.choice([1, 1, 1, 2, 5, 20])):
                self.step()
            self.read(self.rng.choice([0.0, 0.02, 0.1, 0.3]))
            wrong = []
            if time.monotonic() > checked_s + 12:
                wrong = self.check()
                checked_s = time.monotonic()
            if self.screen.has_ended() and self.screen.status == 0 and not ERROR.search(self.tail):
                return []  # a click on "quit"
            if self.screen.has_ended():
                wrong.append(f"ended with {self.screen.status}: {re.sub(chr(27) + '[^m]*m', '', self.tail)[-2500:]}")
            if wrong:
                return wrong
        for _ in range(4):
            self.send(b"\x1b", "esc")
            self.read(0.3)
        status = self.screen.quit()
        return [] if status == 0 else [f"status {status}"]


def main(seconds: float, seed: int, words: list[str]) -> int:
    end_s, bad, steps, slowest_s = time.monotonic() + seconds, 0, 0, 0.0
    while (left := end_s - time.monotonic()) > 5:
        walk = Walk(words, random.Random(seed))
        with walk.screen:
            try:
                wrong = walk.run(time.monotonic() + left)
            except OSError as error:
                wrong = [f"{error}; ended {walk.screen.has_ended()} {walk.screen.status}"]
        steps, slowest_s = steps + len(walk.steps), max(slowest_s, walk.slowest_s)
        if wrong:
            bad += 1
            print(f"seed {seed}: " + "\n".join(wrong) + f"\nafter {' '.join(walk.steps[-60:])}", flush=True)
        seed += 1
    print(f"{steps} steps, {bad} faults, help within {slowest_s:.2f} s: {' '.join(words)}")
    return bool(bad)


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))

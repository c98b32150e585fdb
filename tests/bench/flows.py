"""Counts the files of the app that run for one task of the program, and that a newcomer must
therefore read to understand it.

Run by hand: PYTHONPATH=tests/support python tests/bench/flows.py [--files]

Counted by sys.setprofile on eight simulated CPUs: files of the app that are entered, and the number
of calls from one file to another.
"""

from __future__ import annotations

import asyncio
import io
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from sim_streams import messages_lasting
from terminal_apps import messages, shown_app
from textual import events

import perftop
from perftop.session.session import Session
from perftop.verbs.measuring import Why

APP = str(Path(perftop.__file__).parent)
CPUS, WARM = 8, 40
PAINT_S = 1.0
"""Time in s in which even a busy machine completes a paint; Textual delays paints."""
GOALS = {"a sample to the overview": 45, "key 2 to the heat map": 35, "a drop to a sentence": 30}


class Flow:
    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        """Calls by file of the app, in the order of entry."""
        self.switches = 0


@contextmanager
def traced_flow() -> Iterator[Flow]:
    flow, current = Flow(), ""

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal current
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(APP):
            return
        flow.files[name] = flow.files.get(name, 0) + 1
        flow.switches += name != current
        current = name

    sys.setprofile(called)
    try:
        yield flow
    finally:
        sys.setprofile(None)


async def on_screen() -> dict[str, Flow]:
    feed = messages(CPUS, WARM + 2)
    results = {}
    async with shown_app(feed[:WARM], (160, 50)) as app:
        await asyncio.sleep(PAINT_S)
        with traced_flow() as results["a sample to the overview"]:
            for message in feed[WARM:]:
                app.source.process([message])
            app.source.show()
            await asyncio.sleep(PAINT_S)
        for key in "21":  # imports the view, whose module body is not counted
            app.post_message(events.Key(key, None))
            await asyncio.sleep(PAINT_S)
        with traced_flow() as results["key 2 to the heat map"]:
            app.post_message(events.Key("2", None))
            await asyncio.sleep(PAINT_S)
    return results


def to_a_sentence() -> Flow:
    """Returns the flow from the samples of a drop, passed to the loop that follows a stream, to the
    printed sentence."""
    hello, feed = messages_lasting(f"sim:turbo-drop,cpus={CPUS}", 10.0)
    session = Session(hello)
    for message in feed:
        session.apply(message)
    (drop,) = session.running
    before = [message for message in feed if message.time_ns <= drop.start_ns]
    for _ in range(2):  # the first imports modules, whose bodies are not counted
        why = Why(Namespace(file=Path("drop.perftop"), json=False))
        why.out = io.StringIO()
        why.process([hello, *before])
        with traced_flow() as flow:
            why.process(feed[len(before) :])
            why.on_end()
    return flow


def main() -> None:
    flows = {**asyncio.run(on_screen()), "a drop to a sentence": to_a_sentence()}
    print(f"{'':28}{'files':>8}{'goal':>8}{'switches':>10}")
    for what, flow in flows.items():
        print(f"{what:28}{len(flow.files):>8}{GOALS[what]:>8}{flow.switches:>10}")
        if "--files" in sys.argv:
            for name, calls in flow.files.items():
                print(f"    {calls:>6}  {Path(name).relative_to(APP)}")


if __name__ == "__main__":
    main()

"""`perftop -- CMD`: the terminal app around a command, whose output has a pane on the screen.

The command may outlive the screen: if the user quits before its end, the rest of its output and the
summary appear where the screen was. So a task of its own reads the stream, not the app.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from textual import work

from perfprobe.frozen import replace
from perftop.base.errors import Failed, complain
from perftop.base.text import in_ascii, printable, utf8
from perftop.base.times import length, running
from perftop.process.job import Run, raw_ns
from perftop.process.job_terminal import INTERRUPT, QUIT, Console
from perftop.process.launch import Feed
from perftop.process.printout import Printout
from perftop.process.probe_stream import REST_S, ProbeStream, attached
from perftop.process.signals import heed
from perftop.tui.app import Opener, PerfTopApp
from perftop.tui.config import Config
from perftop.tui.frame.command_output import Output
from perftop.tui.frame.status import Status
from perftop.tui.terminal_app import drawing_on_stdout

if TYPE_CHECKING:  # numpy comes with it
    from perfprobe import wire
    from perftop.output.live_measurement import Beside
    from perftop.process.run_notes import RunNotes
    from perftop.session.session import Session

LOOK_S = 0.1
"""Seconds between two updates of the output; nobody reads faster."""
NEWS_NS = 10_000_000_000
"""How long the end of the command is shown as news, in ns."""
MOST_UNSEEN = 1 << 16
"""Most bytes from between two updates that are still printed if the screen closes meanwhile."""
MOST_NAME = 16
"""Characters of the command's name that are shown."""
TYPED = {signal.SIGINT: INTERRUPT, signal.SIGQUIT: QUIT}
STOPPED = 130


class AroundApp(PerfTopApp):
    def __init__(
        self, tty: Console, opener: Opener, interval_ns: int, config: Config | None = None,
        **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(opener, interval_ns, config, **more)
        self.tty = tty
        self.measurement: Beside | None = None
        self._following: asyncio.Task[None] | None = None
        self._gone = False
        """Whether the screen has closed."""
        self._stopped = False
        """Whether the user stopped the run before the command started, so it must not start."""
        self._end_seen = False
        """Whether the user has pressed a key since the command's end was told."""
        self._printout = Printout()
        self._unseen = b""
        self._rest: Callable[[float], None] = lambda _: None
        """Tells the stream how many seconds may pass between two reads."""
        self._due: asyncio.TimerHandle | None = None
        """The next update of the output; None: nothing is to be shown."""
        argv = tty.job.argv
        self._called = PurePath(argv[0]).name[:MOST_NAME] or argv[0][:MOST_NAME]

    @property
    def ran(self) -> Run | None:
        """The outcome of the command; None until it has ended."""
        return None if self.measurement is None else self.measurement.bracket.run

    def on_ready(self) -> None:
        self.tty.follow(self._printed)
        self._watch()

    # --- the stream

    @work(exclusive=True)
    async def _feed(self) -> None:
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        assert self._open is not None
        try:
            async with self._open() as stream:
                from perftop.output.live_measurement import Beside
                from perftop.process.run_notes import RunNotes

                self.measurement = Beside(self.tty.job, rest_s=self._pause_s)
                self.measurement.bracket.reached(self._link())
                if isinstance(stream, ProbeStream):
                    self._rest = stream.rest
                    self.measurement.bracket.reads(stream.rest)
                notes = RunNotes(self.tty.job, self.measurement.bracket)
                async for messages in stream:
                    for some in [messages] if self._patient else [[one] for one in messages]:
                        self._measure(self.measurement, some, notes)
                        if self._gone and self.measurement.summary:
                            return
            self._end(Failed("the probe has ended", 0))
        except Failed as failed:
            self._end(failed)
        except Exception as error:  # noqa: BLE001 - as in the app's own tasks
            self._handle_exception(error)

    @property
    def _patient(self) -> bool:
        """Whether nothing waits for a sample: the command runs, or all of its run was measured. Its
        run begins and ends with samples."""
        measurement = self.measurement
        return measurement is not None and (measurement.running or bool(measurement.summary))

    @property
    def _pause_s(self) -> float:
        """Seconds between two reads then."""
        return min(self.status.interval_ns / 1e9, REST_S)

    def _set_pace(self, session: Session) -> None:
        super()._set_pace(session)
        if self._patient:
            self._rest(self._pause_s)

    def _played(self, session: Session, messages: Sequence[wire.Message]) -> Iterator[wire.Message]:
        for message in super()._played(session, messages):
            if self.measurement is not None:
                self.measurement.take(session, message)
            yield message

    def _measure(self, measurement: Beside, messages: list[wire.Message], notes: RunNotes) -> None:
        measured = bool(measurement.summary)
        if kept := [message for message in messages if measurement.admit(message)]:
            self._take(kept)
        session = self._session
        if session is not None:
            if not session.accounts:
                session.account()
            for note in notes.due(session.now_ns, over=measurement.bracket.closed):
                self._apply(session, note)
            if bool(measurement.summary) != measured:
                self._set_pace(session)
        if (run := self.ran) is not None and run.failed is not None:
            self.exit()
        if run is not None and self.status.job_status is None:
            self._watch()

    async def see_out(self) -> None:
        """Called after the screen has closed. Lets the command run to its end, even if the app
        failed."""
        self._gone = True
        following = self._following
        if following is None:
            return
        if self._stopped:
            following.cancel()
        else:
            await self._accompany(following)
        with contextlib.suppress(asyncio.CancelledError):
            await following
        if self.measurement is not None and self._session is not None:
            self.measurement.finish(self._session)  # all that was measured is still true

    async def _accompany(self, following: asyncio.Task[None]) -> None:
        """Copies the command's output to the terminal and passes signals on to the command, until
        its end."""
        if self.ran is None and (self.tty.job.start_ns or not following.done()):
            complain(f"{self._called} runs on, its summary will follow")
        self._heed(following)
        copying = asyncio.ensure_future(asyncio.to_thread(self.tty.copy, 1, self._unseen))
        if self.measurement is not None and self.measurement.summary:
            following.cancel()
        await asyncio.wait([following])
        if self.measurement is not None:
            await self.measurement.bracket.ended()
        self.tty.finish()
        await copying

    def _heed(self, following: asyncio.Task[None]) -> None:
        def pass_on(number: signal.Signals) -> None:
            if not self._pass_on(number):
                following.cancel()

        heed((*TYPED, signal.SIGTERM, signal.SIGHUP), pass_on)
        heed([signal.SIGWINCH], lambda _: self._fit())
        self._fit()
        for number in (signal.SIGTSTP, signal.SIGCONT):  # these handlers were the screen's
            signal.signal(number, signal.SIG_DFL)

    def _fit(self) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            self.tty.resize(*os.get_terminal_size(1))

    # --- the command's output and state

    def _printed(self, data: bytes) -> None:
        self._printout.take(data)
        self._unseen = (self._unseen + data)[-MOST_UNSEEN:]
        if self._due is None:
            loop = asyncio.get_running_loop()
            self._due = loop.call_later(LOOK_S, self.call_later, self._look)

    async def _look(self) -> None:
        self._due = None
        if self._unseen and (monitor := self._monitor) is not None:
            self._unseen = b""
            self._printout.settle()
            await monitor.show_output(self._printout)
        self._watch()

    def _seen(self) -> Status:
        status = super()._seen()
        return replace(
            status,
            job=self._told(),
            job_status=None if self.ran is None else self.ran.status,
            notice=status.notice or self._ended(),
        )

    def _told(self) -> str:
        run, measurement = self.ran, self.measurement
        if run is not None:
            return f"{self._called} ended: {run.status}"
        start_ns = 0 if measurement is None else measurement.job.start_ns
        if not start_ns:
            return f"{self._called} waits"
        seconds = (raw_ns() - start_ns) // 10**9
        return f"{self._called} {running(seconds)}"

    def _hush(self) -> None:
        self._end_seen = self.ran is not None
        super()._hush()

    def _ended(self) -> str:
        run = self.ran
        if run is None or self._end_seen or raw_ns() - run.end_ns > NEWS_NS:
            return ""
        after = length(run.end_ns - run.start_ns)
        told = f"{self._called} ended with status {run.status} after {after}"
        return f"{told} · q quits and prints the summary"

    def on_output_sized(self, message: Output.Sized) -> None:
        self.tty.resize(message.columns, message.lines)

    # --- signals and keys for the command

    def action_interrupt(self) -> None:
        if not self._pass_on(signal.SIGINT):
            self.exit()

    def exit(self, *results: Any, **more: Any) -> None:
        """Leaves the screen; output printed from now on does not go to its pane."""
        self.tty.leave()
        super().exit(*results, **more)

    def _signalled(self, number: signal.Signals) -> None:
        if self._pass_on(number) and number == signal.SIGINT:
            return  # it is for the command alone
        super()._signalled(number)

    def _pass_on(self, number: signal.Signals) -> bool:
        """Passes a signal on to the command. Returns False if none runs; a command that still waits
        is then not started."""
        measurement = self.measurement
        if measurement is None or not measurement.running:
            self._stopped = self.ran is None
            return False
        if number in TYPED:
            self.tty.type(TYPED[number])
        else:
            measurement.job.kill(number)
        return True


def run(
    probe: Feed, console: Console, interval_ns: int, config: Config, *,
    mouse: bool = True,
) -> int:  # fmt: skip
    """Runs the app; returns the command's exit status. Raises Failed if the command could not be
    run, or if the stream or the app failed."""
    plain = not utf8()
    app = AroundApp(
        console, lambda: attached(probe), interval_ns, config, link=lambda: probe.link, ascii_=plain
    )
    asyncio.run(_run(app, mouse=mouse))
    done, failure = app.ran, app.failure
    if done is not None and done.failed is not None:
        raise Failed(f"{console.job.argv[0]}: {done.failed}", done.status)
    said = app.ended_recording()
    lines = [f"perftop: {said}"] if said else []
    lines += app.measurement.summary if app.measurement is not None else []
    text = "".join(f"{printable(in_ascii(line) if plain else line)}\n" for line in lines)
    with contextlib.suppress(OSError):  # the status stays the command's, even if stderr fails
        print(text, end="", file=sys.stderr, flush=True)
    if failure is not None and (failure.status or done is None):
        raise Failed(str(failure), (done and done.status) or failure.status)
    return done.status if done is not None else app.return_code or STOPPED


async def _run(app: AroundApp, *, mouse: bool) -> None:
    with drawing_on_stdout():
        await app.run_async(mouse=mouse)
    await app.see_out()

"""`perftop -- CMD`: the live screen while a command runs, with its output in a pane. If the user
quits before the command ends, the rest of its output and the summary are printed on the terminal.
So the stream is read by a separate task, which may outlive the app."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING

from perftop.base import raw_ns
from perftop.base.errors import Failed, print_error
from perftop.base.text import ascii_line, long_duration, printable, running_time, supports_unicode
from perftop.process.job import Run
from perftop.process.job_terminal import INTERRUPT, QUIT, JobTerminal, OutputLines
from perftop.process.launch import AnyProbe
from perftop.process.link import Link
from perftop.process.signals import on_signal, run_loop
from perftop.process.streams import ProbeStream, open_stream
from perftop.session.follow import READ_PAUSE_S
from perftop.tui.app import PerfTopApp, drawing_on_stdout
from perftop.tui.config import Config
from perftop.tui.frame.top import AppStatus
from perftop.tui.stream import LiveSource, StreamOpener

if TYPE_CHECKING:  # imported here, because these modules import numpy
    from perfprobe import wire
    from perftop.model.kinds import Episode
    from perftop.process.measurement import CommandMeasurement
    from perftop.session.session import Session

PANE_UPDATE_S = 0.1
"""Seconds between two updates of the output pane; output that changes faster cannot be read."""
MAX_UNSEEN_BYTES = 1 << 16
"""Maximum bytes of output kept for the pane, or for the terminal if the screen closes first."""
MAX_NAME_LENGTH = 16
KEY_OF_SIGNAL = {signal.SIGINT: INTERRUPT, signal.SIGQUIT: QUIT}
INTERRUPTED_STATUS = 130


class CommandSource(LiveSource):
    summarises = True

    def __init__(
        self,
        tty: JobTerminal,
        opener: StreamOpener,
        interval_ns: int,
        link: Callable[[], Link | None] = lambda: None,
    ) -> None:
        super().__init__(opener, interval_ns, link=link)
        self.tty = tty
        self.measurement: CommandMeasurement | None = None
        self.summary: list[str] = []
        """Lines of the summary; empty until the run has been measured completely."""
        self._reading: asyncio.Task[None] | None = None
        self._is_screen_closed = False
        self._is_stopped = False
        """Whether the user ended perftop before the command started; then it must not start."""
        self._has_reported_end = False
        """Whether a notice has reported the command's end."""
        self._printout = OutputLines()
        self._unseen_output = b""
        self._set_read_pause: Callable[[float], None] = lambda _: None
        """Sets the seconds between two reads of the stream."""
        self._print_timer: asyncio.TimerHandle | None = None
        """Timer of the next update of the output pane; None if there is no new output."""
        argv = tty.job.argv
        self._name = PurePath(argv[0]).name[:MAX_NAME_LENGTH] or argv[0][:MAX_NAME_LENGTH]

    @property
    def run(self) -> Run | None:
        """The outcome of the command; None until it has ended."""
        return None if self.measurement is None else self.measurement.command_window.run

    @property
    def _is_running(self) -> bool:
        return self.measurement is not None and self.measurement.command_window.is_running

    # --- the stream

    async def read_data(self) -> None:
        self.tty.follow(self._on_output)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async with self._open() as stream:
                from perftop.process.measurement import CommandMeasurement

                self.measurement = CommandMeasurement(self.tty.job, read_pause_s=self._read_pause_s)
                command_window = self.measurement.command_window
                if self._is_stopped:
                    command_window.stop()
                command_window.set_link(self._link())
                if isinstance(stream, ProbeStream):
                    self._set_read_pause = stream.set_read_pause
                    stream.fails_when_silent = lambda: (
                        not command_window.is_running
                        and (self.run is None or self._is_screen_closed)
                    )
                    command_window.set_pause_function(stream.set_read_pause)
                async for messages in stream:
                    single_messages = [[message] for message in messages]
                    for batch in [messages] if self._may_read_late else single_messages:
                        self._measure(batch)
                        if self._is_screen_closed and self.summary:
                            return
            self.end(Failed("the probe has ended", 0))
        except Failed as failed:
            self.end(failed)
        except Exception as error:  # noqa: BLE001 - handled as in the app's own tasks
            self.app._handle_exception(error)  # noqa: SLF001

    def _measure(self, messages: list[wire.Message]) -> None:
        self.process(messages)
        self._add_due_notes()
        if self.run is not None and self.run.failure is not None:
            self.app.exit()

    def _add_due_notes(self, *, is_over: bool = False) -> None:
        if self.measurement is not None and self.has_started:
            for note in self.measurement.due_notes(self.session.now_ns, is_over=is_over):
                self.add(note)

    def on_hello(self, hello: wire.Hello) -> Session:
        from perftop.session.episodes import EpisodeTally

        self._tally = EpisodeTally()
        if self.measurement is not None:
            self.measurement.admit(hello)
        session = super().on_hello(hello)
        session.run.track_losses()
        return session

    def accepts(self, message: wire.Message) -> bool:
        return self.measurement is None or self.measurement.admit(message)

    def on_message(self, message: wire.Message) -> bool:
        from perfprobe import wire
        from perftop.output.stat_text import receipt

        super().on_message(message)
        if self.measurement is not None:
            self.measurement.follow(message)
            if isinstance(message, wire.Note) and message.kind == "run-end":
                self.summary = receipt(self.session, self.measurement, self._tally)
                self.on_interval_changed()
        return False

    def on_episode_end(self, episode: Episode) -> None:
        super().on_episode_end(episode)
        self._tally.add(episode, self.session.now_ns)

    @property
    def _may_read_late(self) -> bool:
        """Whether samples may be read late, which saves CPU time: while the command runs, and after
        it has been measured completely. At its start and end, samples are needed without delay."""
        return bool(self.summary) or self._is_running

    @property
    def _read_pause_s(self) -> float:
        return min(self.status.interval_ns / 1e9, READ_PAUSE_S)

    def on_interval_changed(self) -> None:
        """Reads the stream once an interval, if at all late; the probe's batches stay the same."""
        if self.has_started and self._may_read_late:
            self._set_read_pause(self._read_pause_s)

    # --- the command's output and state

    def _on_output(self, data: bytes) -> None:
        self._printout.add(data)
        self._unseen_output = (self._unseen_output + data)[-MAX_UNSEEN_BYTES:]
        if self._print_timer is None:
            self._print_later()

    def _print_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._print_timer = loop.call_later(PANE_UPDATE_S, self.app.call_later, self._show_output)

    async def _show_output(self) -> None:
        self._print_timer = None
        monitor = self.monitor
        if monitor is None:  # the main screen is not mounted yet
            self._print_later()
        elif self._unseen_output and not self.app._exit:  # noqa: SLF001 - nobody sees it any more
            self._unseen_output = b""
            self._printout.split_lines()
            await monitor.show_output(self._printout, self.tty.resize)

    def complete_status(self, status: AppStatus) -> AppStatus:
        status, name, run = super().complete_status(status), self._name, self.run
        if run is None:
            start_ns = 0 if self.measurement is None else self.tty.job.start_ns
            time_text = running_time((raw_ns() - start_ns) // 10**9) if start_ns else "waits"
            return status._replace(job_text=f"{name} {time_text}")
        return status._replace(job_text=f"{name} ended: {run.status}", job_status=run.status)

    def on_tick(self) -> None:
        super().on_tick()
        run = self.run
        if run is not None and not self._has_reported_end:
            self._has_reported_end = True
            run_length = long_duration(run.end_ns - run.start_ns)
            text = f"{self._name} ended with status {run.status} after {run_length}"
            self.show_notice(f"{text} · q quits and prints the summary")

    # --- signals and keys for the command

    def handle_signal(self, number: signal.Signals) -> bool:
        """Passes a signal to the command. Returns False if it is not running; if it has not started
        yet, it never will."""
        if not self._is_running:
            self._is_stopped = self.run is None
            if self.measurement is not None:
                self.measurement.command_window.stop()
            if self._is_screen_closed and self._reading is not None:
                self._reading.cancel()
            return False
        if number in KEY_OF_SIGNAL:
            self.tty.send_keys(KEY_OF_SIGNAL[number])
        else:
            self.tty.job.kill(number)
        return True

    def on_app_end(self) -> None:
        self.tty.stop_following()

    # --- after the screen

    async def wait_for_command(self) -> None:
        """Waits for the command to end, after the screen has closed, even if the app has failed."""
        self._is_screen_closed = True
        reading = self._reading
        if reading is None:
            return
        has_started = self._is_running or self.run is not None
        if self._is_stopped or (self.app.failure is not None and not has_started):
            reading.cancel()
        else:
            await self._forward_until_end(reading)
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        self._add_due_notes(is_over=True)  # what was measured remains valid

    async def _forward_until_end(self, reading: asyncio.Task[None]) -> None:
        """Copies the command's output to the terminal and passes signals to it until it ends."""

        def resize(_: signal.Signals = signal.SIGWINCH) -> None:
            with contextlib.suppress(OSError):  # the terminal may be gone
                self.tty.resize(*os.get_terminal_size(1))

        if self.run is None and (self.tty.job.start_ns or not reading.done()):
            print_error(f"{self._name} is still running; its summary will follow")
        on_signal((*KEY_OF_SIGNAL, signal.SIGTERM, signal.SIGHUP), self.handle_signal)
        on_signal([signal.SIGWINCH], resize)
        resize()
        for number in (signal.SIGTSTP, signal.SIGCONT):  # the screen had installed handlers
            signal.signal(number, signal.SIG_DFL)
        copying = asyncio.ensure_future(asyncio.to_thread(self.tty.copy, 1, self._unseen_output))
        if self.summary:
            reading.cancel()
        await asyncio.wait([reading])
        if self.measurement is not None:
            await self.measurement.command_window.wait_for_end()
        self.tty.finish()
        await copying


def run(
    probe: AnyProbe, tty: JobTerminal, interval_ns: int, config: Config, *, mouse: bool = True
) -> int:
    """Runs the app. Returns the command's exit status. Raises Failed if the command could not be
    run, or if the stream or the app has failed."""
    ascii_ = not supports_unicode()
    source = CommandSource(tty, lambda: open_stream(probe), interval_ns, lambda: probe.link)
    app = PerfTopApp(source, config, ascii_=ascii_)
    app.restore_theme()

    async def run_app() -> None:
        with drawing_on_stdout():
            await app.run_async(mouse=mouse)
        await source.wait_for_command()

    run_loop(run_app)
    command_run, failure = source.run, app.failure
    if command_run is not None and command_run.failure is not None:
        raise Failed(f"{tty.job.argv[0]}: {command_run.failure}", command_run.status)
    recorded = source.end_recording()
    lines = [f"perftop: {recorded}"] if recorded else []
    lines += source.summary
    text = "".join(f"{printable(ascii_line(line) if ascii_ else line)}\n" for line in lines)
    with contextlib.suppress(OSError):  # a broken stderr must not change the exit status
        print(text, end="", file=sys.stderr, flush=True)
    if failure is not None and (failure.status or command_run is None):
        raise Failed(str(failure), (command_run and command_run.status) or failure.status)
    return command_run.status if command_run is not None else app.return_code or INTERRUPTED_STATUS

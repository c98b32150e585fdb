"""Sources of a fleet's numbers: probes over ssh, or recordings. A source's method `run` updates its
`Fleet`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from math import isfinite
from pathlib import Path

from perfprobe import wire
from perftop.base.errors import USAGE, Failed
from perftop.base.text import time_of_day
from perftop.process import launch
from perftop.process.link import ByteRate, retry_waits_s
from perftop.process.streams import ProbeStream
from perftop.recording.file import AnyRecording, damage_suffix, has_parts, open_recording
from perftop.session.fleet import Fleet
from perftop.session.fleet_machine import ROW_SPAN_S, LiveMachine, Machine
from perftop.session.packing import TimedMessage

MAX_HOSTS = 64
"""Maximum number of machines over ssh; more machines need Prometheus."""
MAX_STARTING = 8
"""Maximum number of machines that start at the same time; each needs a process here and one
there."""
MAX_START_S = 2.0
"""Time in s after which the next machine may start although this one has not answered."""
RATE_SPAN_S = 10.0
"""Seconds over which the rate of received bytes is averaged."""
SIMULATED_PREFIX = "sim:"
"""Hosts whose names begin with this prefix are simulated, to try out the screen."""


# --- over ssh


class SshSource:
    """Machines reached over ssh, each with its own probe. All probes are read concurrently."""

    problem = ""
    damages = None
    shown_time_text = ""
    is_over = False

    def __init__(
        self, hosts: Sequence[str], update_s: float = 1.0, *, remote: str | None = None
    ) -> None:
        """Raises Failed for host names that ssh would misinterpret, and for too many hosts."""
        hosts = list(dict.fromkeys(hosts))
        if len(hosts) > MAX_HOSTS:
            text = f"{len(hosts)} machines: at most {MAX_HOSTS} over ssh"
            raise Failed(f"{text}; for more: --prometheus URL", USAGE)
        self.update_s = update_s
        are_simulated = all(host.startswith(SIMULATED_PREFIX) for host in hosts)
        self.origin = "simulated" if are_simulated else "over ssh"
        self._receive_rate = ByteRate(RATE_SPAN_S)
        self._feeds = [_host_machine(host, update_s, remote) for host in hosts]
        self.fleet = Fleet([live.machine for _, live in self._feeds])

    @property
    def shown_time_s(self) -> float:
        return time.time()

    def cost_texts(self) -> list[str]:
        shares = [m.probe_share for m in self.fleet.answering_machines if isfinite(m.probe_share)]
        dropped_frames = sum(m.frames_lost for m in self.fleet.answering_machines)
        cost = [f"{100 * sum(shares) / len(shares):.2f} % there"] if shares else []
        rate = self._receive_rate.per_s()
        received = [f"{rate / 1e3:.0f} kB/s"] if isfinite(rate) else []
        return [*cost, *received, f"dropped frames {dropped_frames}"]

    async def run(self) -> None:
        """Reads all machines until cancelled, and then closes all connections at the same time."""
        permits = asyncio.Semaphore(MAX_STARTING)
        async with asyncio.TaskGroup() as group:
            for argv, live in self._feeds:
                group.create_task(self._keep_reading(argv, live, permits))

    async def _keep_reading(
        self, argv: Sequence[str], live: LiveMachine, permits: asyncio.Semaphore
    ) -> None:
        """Reads a machine's stream, and opens it again whenever it has ended. Only MAX_STARTING
        machines hold a permit to start at a time. A machine releases its permit at its first
        message, or after MAX_START_S."""
        waits, loop = retry_waits_s(), asyncio.get_running_loop()
        while True:
            await permits.acquire()
            permit = loop.create_future()  # may be cancelled several times, and is released once
            permit.add_done_callback(lambda _: permits.release())
            timer = loop.call_later(MAX_START_S, permit.cancel)
            try:
                probe = launch.start_probe(argv)
                async with ProbeStream(probe, self._receive_rate.count) as stream:
                    stream.fails_when_silent = lambda: True
                    async for messages in stream:
                        permit.cancel()
                        live.process(messages)
                reason = "the probe on that machine has ended"
            except Failed as failed:
                reason = str(failed)
            except wire.WireError as error:
                reason = f"it sent impossible data: {error}"
            finally:
                permit.cancel()
                timer.cancel()
            if live.machine.is_answering:
                waits = retry_waits_s()
            wait_s = next(waits)
            live.fail(reason, wait_s)
            await asyncio.sleep(wait_s)

    def move_in_time(self, _: int) -> bool:
        return False

    def toggle_pause(self) -> None:
        """Does nothing: the screen itself freezes the view."""


def _host_machine(host: str, update_s: float, remote: str | None) -> tuple[list[str], LiveMachine]:
    """Returns the command line of a host's probe, and the machine that its stream fills."""
    is_simulated = host.startswith(SIMULATED_PREFIX)
    source = host if is_simulated else "auto"
    arguments = ["stream", "--source", source, "--sample", f"{update_s:g}"]
    if is_simulated:
        argv = launch.probe_command(*arguments)
        open_arguments = ["live", "--source", host]
    else:
        argv = launch.ssh_command(host, arguments, remote=remote or launch.REMOTE_PROBE)
        open_arguments = ["live", "--host", host] + ([] if remote is None else ["--remote", remote])
    return argv, LiveMachine(Machine(host, tuple(open_arguments)), update_s, time.time)


# --- recordings

FILE_PATTERN = "*.perftop"
MAX_FILES = 256
WARM_UP_S = ROW_SPAN_S + 5.0
"""Seconds of a recording that are read before the target of a jump, so that all averages cover
their full span."""
STEP_S = 0.5
MAX_MESSAGES_AT_ONCE = 64
"""Maximum number of messages of a recording that are processed together."""


class RecordingsSource:
    """Recordings of several machines on one time axis, placed by their machines' clocks. Playback
    starts at the beginning and can jump to any time."""

    update_s = 1.0
    problem = ""

    def __init__(self, directory: Path, *, playing: bool = True) -> None:
        """Raises Failed if there is no readable recording. An unreadable recording is shown as a
        machine that does not answer."""
        files = (path for path in directory.glob(FILE_PATTERN) if path.is_file() or has_parts(path))
        paths = [directory] if has_parts(directory) else sorted(files)
        if not paths:
            raise Failed(f"no recordings (NAME.perftop) in {directory}", USAGE)
        if len(paths) > MAX_FILES:
            raise Failed(f"{directory}: {len(paths)} recordings; at most {MAX_FILES}", USAGE)
        with ExitStack() as stack:
            self._recordings = list[_PlayedRecording]()
            failed: dict[str, Failed] = {}
            for path in paths:
                try:
                    file = open_recording(path)
                except Failed as why:
                    failed[path.stem] = why
                else:
                    stack.enter_context(file)
                    self._recordings.append(_PlayedRecording(path, file))
            if not self._recordings:
                raise next(iter(failed.values()))
            self._open = stack.pop_all()
        self.first = min(track.first for track in self._recordings)
        self.last = max(track.last for track in self._recordings)
        self.origin = "recorded"
        self._unreadable = {name: Machine(name) for name in failed}
        for name, failure in failed.items():
            self._unreadable[name].fall_silent(self.first, str(failure))
        machines = (track.live.machine for track in self._recordings)
        self.fleet = Fleet([*machines, *self._unreadable.values()])
        self._now = self.first
        self._target: float | None = self.first + 1.0
        self._playing = playing
        self._is_reading = False

    @property
    def shown_time_s(self) -> float:
        return self._now

    @property
    def shown_time_text(self) -> str:
        state = "reading" if self._is_reading else "playing" if self._playing else "paused"
        return f"{state} · {time_of_day(self._now)} of {time_of_day(self.last)}"

    @property
    def is_over(self) -> bool:
        return self._now >= self.last and self._target is None

    @property
    def damages(self) -> Sequence[str]:
        """Each unreadable recording, and damage in the others as far as they have been read."""
        unreadable = (machine.why for machine in self._unreadable.values())
        tracks = self._recordings
        damaged = (f"{t.path.name}: {t.recording.damage}" for t in tracks if t.recording.damage)
        return [*unreadable, *damaged]

    def cost_texts(self) -> Sequence[str]:
        damaged = [f"{count} damaged"] if (count := len(self.damages)) else []
        return [*damaged, "times by each machine's own clock"]

    async def run(self) -> None:
        """Plays the recordings, and jumps to a chosen time on request, until cancelled."""
        with self._open:
            while True:
                began_s, target = time.monotonic(), self._target
                self._target = None
                if target is not None:
                    await self._read_to(min(max(target, self.first), self.last))
                await asyncio.sleep(0 if self._target is not None else STEP_S)
                if self._playing and self._target is None:
                    await self._read_to(min(self._now + time.monotonic() - began_s, self.last))
                    self._playing = self._now < self.last

    async def read_interval(self) -> None:
        """Reads the next interval at once, while nothing is played."""
        await self._read_to(min(self._now + self.update_s, self.last))

    async def _read_to(self, moment: float) -> None:
        """Reads each recording up to this Unix time. After a jump back or far ahead, reading
        restarts shortly before it."""
        must_restart = moment < self._now or moment > self._now + WARM_UP_S
        self._is_reading = must_restart
        tracks = [
            _PlayedRecording(t.path, t.recording, t.last) if must_restart else t
            for t in self._recordings
        ]
        for track in tracks:
            if must_restart:
                await asyncio.to_thread(track.start_at, moment)
            else:
                track.advance_to(moment)
                await asyncio.sleep(0)
        if must_restart:  # Replaced in one step, so that the screen never mixes two times.
            self._recordings = tracks
            played_machines = {track.live.machine.name: track.live.machine for track in tracks}
            self.fleet.machines = played_machines | self._unreadable
        self._now, self._is_reading = moment, False

    def move_in_time(self, steps: int) -> bool:
        """Jumps by this many seconds, back if negative, and pauses there."""
        moment = self._now if self._target is None else self._target
        self._target, self._playing = moment + steps, False
        return True

    def toggle_pause(self) -> None:
        self._playing = not self._playing


class _PlayedRecording:
    """A recording, read up to the displayed time."""

    def __init__(self, path: Path, recording: AnyRecording, last: float | None = None) -> None:
        self.path, self.recording = path, recording
        # an absolute path: a file name that starts with a dash must not become an option
        self.live = LiveMachine(Machine(path.stem, ("replay", str(path.absolute()))))
        self.live.process([recording.hello])
        self.first = self._unix_s(recording.first_ns)
        self.last = self._unix_s(recording.last_ns) if last is None else last
        self._messages: Iterator[TimedMessage] = recording.messages()
        self._next_message: TimedMessage | None = next(self._messages, None)

    def _unix_s(self, time_ns: int) -> float:
        session = self.live.session
        assert session is not None
        return session.unix_s(time_ns)

    def start_at(self, moment: float) -> None:
        """Restarts reading WARM_UP_S before this Unix time, and reads up to it."""
        hello = self.recording.hello
        since_ns = hello.raw_ns + round((moment - WARM_UP_S) * 1e9) - hello.wall_ns
        self._messages = self.recording.messages(max(0, since_ns))
        self._next_message = next(self._messages, None)
        self.advance_to(moment)

    def advance_to(self, moment: float) -> None:
        machine, messages = self.live.machine, list[TimedMessage]()
        while self._next_message is not None and self._unix_s(self._next_message.time_ns) <= moment:
            messages.append(self._next_message)
            self._next_message = next(self._messages, None)
            if len(messages) == MAX_MESSAGES_AT_ONCE:
                self.live.process(messages)
                messages.clear()
        self.live.process(messages)
        if self._next_message is None and moment > self.last:
            end_text = f"{time_of_day(self.last)}{damage_suffix(self.recording)}"
            machine.fall_silent(moment, f"its recording ends at {end_text}")
        elif moment < self.first:
            machine.fall_silent(moment, f"its recording begins at {time_of_day(self.first)}")

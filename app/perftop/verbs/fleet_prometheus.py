"""A fleet read from a Prometheus server that scrapes the exporter: the source, its queries, the
machines, histories and episodes in the answers, and the connection to the server."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import socket
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from http import HTTPStatus
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from perftop.base.errors import USAGE, Failed
from perftop.base.text import safe_text, time_of_day
from perftop.process.signals import run_in_thread
from perftop.session.fleet import Fleet
from perftop.session.fleet_machine import (
    PAST_S,
    UNKNOWN_NUMBERS,
    Machine,
    MachineEpisode,
    lost_share,
)

SCRAPE_S = 15.0
"""Default seconds between two queries; a common scrape interval."""
MIN_PAUSE_S = 0.1
"""Minimum seconds between two queries, and between the end of one and the next."""
WINDOW_INTERVALS = 4
"""Number of intervals over which a rate is computed; it needs at least two scrapes."""
MAX_AGE_S = 30 * 86400.0


class Series(NamedTuple):
    labels: dict[str, str]
    points: list[tuple[float, float]]
    """Unix time by the server's clock, and value."""


class PrometheusSource:
    """Up to thousands of machines, with their history, read from a Prometheus server."""

    damages = None
    is_over = False

    def __init__(
        self, url: str, match: str = "", update_s: float = SCRAPE_S, *,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._server, self._clock = PrometheusServer(url), clock
        self.update_s = max(update_s, MIN_PAUSE_S)
        self._queries = FleetQueries(match, WINDOW_INTERVALS * self.update_s)
        self.fleet = Fleet([])
        self.origin = f"prometheus {safe_text(url, 60)}"
        self.problem = ""
        self._age_s = 0.0
        """Age of the displayed time, in seconds; 0: live."""
        self._shown_s = clock()
        self._wake = asyncio.Event()
        self._rate = 0.0

    @property
    def shown_time_s(self) -> float:
        return self._clock() if not self._age_s else self._shown_s

    @property
    def shown_time_text(self) -> str:
        return f"at {time_of_day(self._shown_s)}" if self._age_s else ""

    def cost_texts(self) -> Sequence[str]:
        return [f"{self._rate / 1e3:.0f} kB/s"]

    async def run(self) -> None:
        """Queries the server repeatedly. Raises Failed if the first query is refused."""
        while True:
            self._wake.clear()
            began_s, bytes_before = self._clock(), self._server.byte_count
            try:
                await run_in_thread(partial(self._query_server, self._age_s), delays_exit=False)
                self.problem = ""
            except Failed as failed:
                if not self.fleet.machines and not self._age_s:
                    raise
                self.problem = str(failed)
            self._rate = (self._server.byte_count - bytes_before) / self.update_s
            left_s = max(MIN_PAUSE_S, began_s + self.update_s - self._clock())
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self._age_s else left_s):
                    await self._wake.wait()

    def _query_server(self, age_s: float) -> None:
        """Queries numbers, history and episodes, all of the same time; runs in a thread. The
        machines on the screen are replaced at the end, in one step."""
        server, queries = self._server, self._queries
        moment = newest_time(server.query("vector(time())")) - age_s if age_s else None
        numbers = server.query(queries.numbers(), moment)
        end = newest_time(numbers) if moment is None else moment
        if moment is None and not isfinite(end):
            raise Failed("the server has no series of perftop exporter that match")
        now_s = self._clock() - age_s
        offset_s = now_s - end
        fleet = scraped_fleet(numbers, now_s, {} if age_s else self.fleet.machines)
        step = history_step_s(len(fleet.machines), self.update_s)
        history = server.query_range(queries.history(), end - PAST_S, end, step)
        fill_histories(fleet, history, offset_s)
        step = max(self.update_s, EPISODES_SPAN_S / EPISODE_STEPS)
        start = end - EPISODES_SPAN_S
        episodes = server.query_range(queries.episodes(), start, end, step)
        fill_episodes(fleet, episodes, max(end - step, newest_time(episodes)), step, offset_s)
        self._shown_s = now_s
        self.fleet.machines = fleet.machines

    def move_in_time(self, steps: int) -> bool:
        """Moves the displayed time by `steps` update intervals, back if negative. A move beyond the
        newest time returns to live."""
        self._age_s = min(max(0.0, self._age_s - steps * self.update_s), MAX_AGE_S)
        self._wake.set()
        return True

    def toggle_pause(self) -> None:
        """Freezes the view at the current time, or returns to live."""
        self._age_s = 0.0 if self._age_s else 0.001
        self._wake.set()


# --- the queries, and the machines, histories and episodes in the answers

NUMBER_LABEL, INSTANCE = "perftop_number", "instance"
"""Labels of a series in an answer: the name of the number, and the machine."""
MAX_MACHINES = 10_000
MAX_POINTS = 100_000
"""Maximum number of points in the histories of all machines together."""
EPISODES_SPAN_S, EPISODE_STEPS = 1800.0, 120
"""Time in s for which episodes are queried, and its number of steps."""
MIN_RUNNING_SHARE = 0.05
"""Minimum share of a window for which a listed episode must run."""
LOOKBACK = "1h"
"""Time, in PromQL, for which a machine is listed as silent after the server stops scraping it."""
_SHARES = {"busy": "busy", "involuntary": "involuntary_halt", "steal": "steal"}
_HISTORY_KEYS = ("busy", "involuntary", "steal", "clock_hz", "ceiling_hz", "below")


class FleetQueries:
    """PromQL queries. Each query is for all machines at once, so that answers are small and all
    values in an answer are from the same moment."""

    def __init__(self, match: str, window_s: float) -> None:
        """`match`: label matchers, with or without braces. `window_s`: time in s for rates."""
        self._match = match.strip().removeprefix("{").removesuffix("}").strip().strip(",")
        self._window = f"{max(1, round(window_s))}s"

    def numbers(self) -> str:
        queries = self._numbers() | {
            "power_w": self._sum_query("energy_joules_total"),
            "power_limit_w": f"sum by ({INSTANCE}) ({self._selector('power_limit_watts')})",
            "suspects": f"sum by ({INSTANCE}) (increase({self._selector('suspect_samples_total')}"
            f"[{self._window}]))",
            "age": f"time() - max by ({INSTANCE}) (timestamp({self._selector('series')}))",
            "known": f"max by ({INSTANCE})"
            f" (last_over_time({self._selector('series')}[{LOOKBACK}]))",
        }
        smt = self._rate_query("smt_seconds_total")
        per_machine = f"on ({INSTANCE}) group_left sum by ({INSTANCE}) ({smt})"
        states = f"sum by ({INSTANCE}, state) ({smt}) / {per_machine}"
        named_states = f'label_replace({states}, "{NUMBER_LABEL}", "$1", "state", "(.*)")'
        return f"{_join_queries(queries)} or {named_states}"

    def history(self) -> str:
        numbers = self._numbers()
        return _join_queries({key: numbers[key] for key in _HISTORY_KEYS})

    def episodes(self) -> str:
        """Returns the query for the share of the window in which each kind and cause ran."""
        rate = self._rate_query("episode_seconds_total")
        return f"max by ({INSTANCE}, kind, cause) ({rate}) > {MIN_RUNNING_SHARE}"

    def _numbers(self) -> dict[str, str]:
        cpu_seconds = self._sum_query("cpu_seconds_total")
        queries = {
            key: self._sum_query("cpu_seconds_total", f'mode="{mode}"') + f" / {cpu_seconds}"
            for key, mode in _SHARES.items()
        }
        cycles = self._sum_query("cycles_total", 'ring="all"')
        tsc_hz = f"max by ({INSTANCE}) ({self._selector('tsc_hertz')})"
        queries["clock_hz"] = f"{cycles} / {self._sum_query('reference_cycles_total')} * {tsc_hz}"
        queries["ceiling_hz"] = f"avg by ({INSTANCE}) ({self._selector('ceiling_hertz')})"
        rate = self._rate_query("below_ceiling_seconds_total")
        below_ceiling = f"sum by ({INSTANCE}, package) ({rate})"
        queries["below"] = f"clamp_max(max by ({INSTANCE}) ({below_ceiling}), 1)"
        return queries

    def _selector(self, family: str, *matchers: str) -> str:
        return f"perftop_{family}{{{','.join(part for part in (self._match, *matchers) if part)}}}"

    def _rate_query(self, family: str, *matchers: str) -> str:
        return f"rate({self._selector(family, *matchers)}[{self._window}])"

    def _sum_query(self, family: str, *matchers: str) -> str:
        return f"sum by ({INSTANCE}) ({self._rate_query(family, *matchers)})"


def _join_queries(queries: dict[str, str]) -> str:
    """Joins expressions into one query. In the answer, a label names the number of each series."""
    return " or ".join(
        f'label_replace({query}, "{NUMBER_LABEL}", "{key}", "", "")'
        for key, query in queries.items()
    )


def scraped_fleet(
    answers: Iterable[Series], now: float, previous_machines: Mapping[str, Machine]
) -> Fleet:
    """Returns the fleet in the answers to `FleetQueries.numbers`. `now`: Unix time of the viewer,
    or of a past moment. `previous_machines`: the machines in the previous answers. Machines that
    the server no longer scrapes have been silent since their last numbers."""
    numbers_by_machine: dict[str, dict[str, float]] = {}
    for labels, points in answers:
        if points and (name := labels.get(INSTANCE, "")):
            numbers_by_machine.setdefault(name, {})[labels.get(NUMBER_LABEL, "")] = points[-1][1]
    machines = []
    for name, answer in list(numbers_by_machine.items())[:MAX_MACHINES]:
        machine = Machine(name, ("live", "--host", _host_name(name)))
        machines.append(machine)
        if "age" in answer:
            numbers = {key: answer.get(key, nan) for key in UNKNOWN_NUMBERS}
            numbers["lost"] = lost_share(numbers)
            machine.set_numbers(now - answer["age"], numbers, round(answer.get("suspects", 0.0)))
        else:
            previous = previous_machines.get(name)
            machine.silent_since = now if previous is None else previous.silent_since
            machine.fall_silent(now, "target down, or not scraped")
    return Fleet(machines)


def _host_name(instance: str) -> str:
    """Returns the host name in an `instance` label, without the port."""
    host, colon, port = instance.rpartition(":")
    return host.strip("[]") if colon and port.isdecimal() else instance


def fill_histories(fleet: Fleet, answers: Iterable[Series], offset_s: float) -> None:
    """Adds the answers to `FleetQueries.history` to the machines' histories. `offset_s`: the
    viewer's time minus the server's."""
    numbers_by_time: dict[str, dict[float, dict[str, float]]] = {}
    for labels, points in answers:
        name, key = labels.get(INSTANCE, ""), labels.get(NUMBER_LABEL, "")
        if name in fleet.machines and key in UNKNOWN_NUMBERS:
            for time, value in points:
                numbers_by_time.setdefault(name, {}).setdefault(time, {})[key] = value
    for name, times in numbers_by_time.items():
        history = fleet.machines[name].history
        for time in sorted(times):
            numbers = dict(UNKNOWN_NUMBERS) | times[time]
            history.add(time + offset_s, lost_share(numbers))


def fill_episodes(
    fleet: Fleet, answers: Iterable[Series], end: float, step: float, offset_s: float
) -> None:
    """Adds the episodes in the answers to `FleetQueries.episodes` to the fleet. `end`: the server's
    time of the newest step, in which episodes are still running. `step`: seconds between points.
    `offset_s`: the viewer's time minus the server's."""
    for labels, points in answers:
        machine = fleet.machines.get(labels.get(INSTANCE, ""))
        if machine is None:
            continue
        times = np.array([time for time, _ in points])
        gaps = np.flatnonzero(np.diff(times) > 1.5 * step) + 1
        for run in np.split(times, gaps) if points else ():
            first, last = float(run[0]), float(run[-1])
            is_running = last >= end - step / 2 and machine.is_answering
            kind, cause = labels.get("kind", ""), labels.get("cause", "unknown")
            episode = MachineEpisode(machine.name, kind, cause, first + offset_s, None, share=1.0)
            if not is_running:
                episode.end = min(last + step, end) + offset_s
            (machine.running if is_running else machine.ended).append(episode)


def history_step_s(machines: int, update_s: float) -> float:
    """Returns the seconds between two points of a queried history, at least `update_s`. With more
    machines, each has fewer points."""
    points = max(10, MAX_POINTS // max(1, machines * len(_HISTORY_KEYS)))
    return max(update_s, PAST_S / points, 1.0)


def newest_time(answers: Iterable[Series]) -> float:
    """Returns the newest time in an answer, by the server's clock; NaN if the answer is empty."""
    return max((points[-1][0] for _, points in answers if points), default=nan)


# --- The connection to the server. The duration and the size of an answer are limited, and its
# structure is checked completely.

MAX_BYTES = 32 << 20
"""Maximum bytes received for a query, including headers."""
MAX_QUERY_S = 20.0
"""Longest time in s for a query and its answer."""
MAX_SILENCE_S = 10.0
"""Longest time in s between two pieces of an answer."""
MAX_SERIES = 200_000
MAX_UNIX_S = 1e11
"""Latest time that is accepted, in Unix seconds; it is in the year 5138."""
MAX_VALUE = 1e18
"""Largest value that is accepted, so that sums of values stay finite."""
MAX_ERROR_LENGTH = 300
_READ_BYTES = 1 << 16


class PrometheusServer:
    def __init__(self, url: str) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            valid = parts.hostname and parts.port != 0 and not parts.username
        except ValueError:  # a malformed port or IPv6 address
            valid = False
        if not valid or parts.scheme not in {"http", "https"}:
            text = f"--prometheus: invalid URL {safe_text(url, 80)!r} (try http://HOST:9090)"
            raise Failed(text, USAGE)
        self.url, self._parts = url.rstrip("/"), parts
        self.byte_count = 0

    def query(self, expression: str, time_s: float | None = None) -> list[Series]:
        """Returns the series at a Unix time; None: now, by the server's clock. Raises Failed."""
        time_fields = {} if time_s is None else {"time": f"{time_s:.3f}"}
        return self._get("query", {"query": expression, **time_fields})

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """Returns the series between two Unix times, in steps of `step` seconds. Raises Failed."""
        span = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return self._get("query_range", {"query": expression, **span})

    def _get(self, endpoint: str, parameters: dict[str, str]) -> list[Series]:
        query = urllib.parse.urlencode(parameters | {"timeout": f"{MAX_QUERY_S:g}s"})
        path = f"{self._parts.path.rstrip('/')}/api/v1/{endpoint}?{query}"
        is_safe, until_s = self._parts.scheme == "https", time.monotonic() + MAX_QUERY_S
        connect = http.client.HTTPSConnection if is_safe else http.client.HTTPConnection

        def limited_reply(sock: Any, *arguments: Any, **options: Any) -> http.client.HTTPResponse:
            answer: Any = _LimitedAnswer(self, sock, until_s)
            return http.client.HTTPResponse(answer, *arguments, **options)

        try:
            # Without a port, the end of an IPv6 address would be taken for one.
            host, port = self._parts.hostname or "", self._parts.port or connect.default_port
            wait_s = min(MAX_QUERY_S, MAX_SILENCE_S)
            with closing(connect(host, port, timeout=wait_s)) as connection:
                connection.response_class = limited_reply  # type: ignore[assignment]
                connection.request("GET", path)
                reply = connection.getresponse()
                if reply.status != HTTPStatus.OK:
                    raise Failed(_refusal_text(reply))
                return _parse_series(reply.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = str(getattr(error, "strerror", None) or error)
            url = safe_text(self.url, 80)
            text = f"{url} does not answer: {safe_text(reason, MAX_ERROR_LENGTH)}"
            raise Failed(text) from None


class _LimitedAnswer(io.RawIOBase):
    """The answer to one query, which an HTTPResponse reads in place of the socket. Time and size
    are limited at each read: a server that sends a byte from time to time could otherwise keep
    http.client reading a header forever."""

    def __init__(self, server: PrometheusServer, sock: socket.socket, until_s: float) -> None:
        self._server, self._socket, self._until_s = server, sock, until_s
        self._file, self._bytes = sock.makefile("rb", buffering=0), 0

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, _READ_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._set_read_timeout()
        try:
            byte_count = self._file.readinto(buffer) or 0
        except TimeoutError:
            self._set_read_timeout()
            raise
        self._bytes += byte_count
        self._server.byte_count += byte_count
        if self._bytes > MAX_BYTES:
            raise Failed(f"the server's answer is larger than {MAX_BYTES >> 20} MB")
        return byte_count

    def _set_read_timeout(self) -> None:
        """Sets the timeout of the next read. Raises Failed if no time is left."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise Failed(f"the server's answer took longer than {MAX_QUERY_S:.0f} s")
        self._socket.settimeout(min(left_s, MAX_SILENCE_S))

    def close(self) -> None:
        self._file.close()
        super().close()


def _refusal_text(reply: http.client.HTTPResponse) -> str:
    """Returns the server's error message as safe text, or else the HTTP status. For a
    redirection, which is not followed, adds the URL."""
    message = ""
    try:
        answer = json.loads(reply.read(_READ_BYTES))
        message = str(answer["error"]) if isinstance(answer, dict) else ""
    except (OSError, ValueError, KeyError, RecursionError, http.client.HTTPException):
        pass
    message = message or f"{reply.status} {reply.reason} {reply.headers.get('Location', '')}"
    return f"the server returned an error: {safe_text(message.strip(), MAX_ERROR_LENGTH)}"


def _parse_series(answer: bytes) -> list[Series]:
    try:
        parsed = json.loads(answer)
    except (ValueError, RecursionError):
        raise Failed("the server's answer is not JSON: is it a Prometheus server?") from None
    data = parsed.get("data") if isinstance(parsed, dict) else None
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(result, list):
        raise Failed("the server's answer has no result: is it a Prometheus server?")
    if len(result) > MAX_SERIES:
        raise Failed(f"the server's answer has over {MAX_SERIES} series: narrow it with --match")
    series = []
    for entry in result:
        if not isinstance(entry, dict) or not isinstance(labels := entry.get("metric"), dict):
            continue
        pairs = entry.get("values", [entry.get("value")])
        if isinstance(pairs, list):
            text_labels = {str(key): str(value)[:MAX_ERROR_LENGTH] for key, value in labels.items()}
            points = [point for pair in pairs if (point := _parse_point(pair)) is not None]
            series.append(Series(text_labels, points))
    return series


def _parse_point(pair: Any) -> tuple[float, float] | None:
    """Returns the time and the value of a point; None if one of them is invalid."""
    try:
        time_, value = map(float, pair)
    except (TypeError, ValueError, OverflowError):
        return None
    return (time_, value) if 0 <= time_ <= MAX_UNIX_S and abs(value) <= MAX_VALUE else None

"""Queries to a Prometheus server, for one moment or for a span. The size of an answer and the time
for it are limited, and its structure is checked completely."""

from __future__ import annotations

import http.client
import io
import json
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from perftop.base.errors import USAGE, Failed
from perftop.base.text import safe_text

MAX_BYTES = 32 << 20
"""Maximum number of bytes that a query may receive, with all headers and redirections."""
MAX_S = 20.0
"""Longest time in s for a query and its answer, with all redirections."""
MAX_SILENCE_S = 10.0
"""Longest time in s between two pieces of an answer."""
MAX_SERIES = 200_000
MAX_TIME = 1e11
"""Latest time that is accepted, in Unix seconds; it is in the year 5138."""
MAX_VALUE = 1e18
"""Largest value that is accepted, so that sums of values stay finite."""
MAX_TEXT = 300
"""Maximum number of characters kept of a message from the server."""
_READ_BYTES = 1 << 16

Labels = dict[str, str]


class Series(NamedTuple):
    labels: Labels
    points: list[tuple[float, float]]
    """Pairs of the server's time, in Unix seconds, and the value."""


class Server:
    def __init__(self, url: str) -> None:
        """Raises Failed for an invalid URL."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
            raise Failed(
                f"--prometheus {safe_text(url, 80)}: is no http://HOST[:PORT][/PATH]", USAGE
            )
        self.url = url.rstrip("/")
        self.bytes = 0
        """Bytes received so far."""

    def query(self, expression: str, time_s: float | None = None) -> list[Series]:
        """Values at a moment; None: the server's present time. Raises Failed."""
        more = {} if time_s is None else {"time": f"{time_s:.3f}"}
        return self._ask("query", {"query": expression, **more})

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """Values between two times of the server's clock, in steps of `step` seconds. Raises
        Failed."""
        span = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return self._ask("query_range", {"query": expression, **span})

    def _ask(self, what: str, asked: dict[str, str]) -> list[Series]:
        asked["timeout"] = f"{MAX_S:g}s"
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(asked)}"
        try:
            answer = self._read(url)
        except urllib.error.HTTPError as error:
            with error:
                raise Failed(_refusal(error)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise Failed(
                f"the server does not answer: {safe_text(str(reason), MAX_TEXT)}"
            ) from None
        return _series(answer)

    def _read(self, url: str) -> bytes:
        def note_received(count: int) -> None:
            self.bytes += count

        limits = _Limits(note_received)
        with _opener(limits).open(url, timeout=limits.wait_s()) as reply:
            return bytes(reply.read())


class _Limits:
    """Limits of time and size for one query. They apply to every read from its connections, because
    a server that sends a byte from time to time can keep http.client in a header for ever."""

    def __init__(self, received: Callable[[int], None]) -> None:
        """`received` is called with the number of bytes of each read."""
        self._received, self._until, self._bytes = received, time.monotonic() + MAX_S, 0

    def wait_s(self) -> float:
        """Returns the longest time in s for the next read. Raises Failed if no time is left."""
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise Failed(f"the server's answer took longer than {MAX_S:.0f} s")
        return min(left_s, MAX_SILENCE_S)

    def count(self, read: int) -> None:
        self._bytes += read
        self._received(read)
        if self._bytes > MAX_BYTES:
            raise Failed(f"the server's answer is larger than {MAX_BYTES >> 20} MB")


class _LimitedFile(io.RawIOBase):
    """The bytes that arrive on a connection."""

    def __init__(self, sock: socket.socket, limits: _Limits) -> None:
        self._socket, self._file = sock, sock.makefile("rb", buffering=0)
        self._limits = limits

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._socket.settimeout(self._limits.wait_s())
        try:
            read = self._file.readinto(buffer) or 0
        except TimeoutError:
            self._limits.wait_s()  # raises Failed if the whole time is over
            raise
        self._limits.count(read)
        return read

    def close(self) -> None:
        self._file.close()
        super().close()


class _LimitedReply(http.client.HTTPResponse):
    def __init__(self, limits: _Limits, sock: socket.socket, *arguments: Any, **more: Any) -> None:
        super().__init__(sock, *arguments, **more)
        self.fp.close()
        self.fp = io.BufferedReader(_LimitedFile(sock, limits), _READ_BYTES)


class _LimitedHandler(urllib.request.AbstractHTTPHandler):
    def __init__(self, limits: _Limits) -> None:
        super().__init__()
        self._limits = limits

    def do_open(self, http_class: Any, req: urllib.request.Request, **more: Any) -> Any:
        def connection(host: str, **options: Any) -> http.client.HTTPConnection:
            made: http.client.HTTPConnection = http_class(
                host, **options | {"timeout": self._limits.wait_s()}
            )
            made.response_class = partial(_LimitedReply, self._limits)  # type: ignore[assignment]
            return made

        return super().do_open(connection, req, **more)


class _Http(_LimitedHandler, urllib.request.HTTPHandler):
    """Opens http: within the limits."""


class _Https(_LimitedHandler, urllib.request.HTTPSHandler):
    """Opens https: within the limits."""


def _opener(limits: _Limits) -> urllib.request.OpenerDirector:
    """Opens http: and https: alone, so that a redirection leads to no file and no FTP server."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        _Http(limits), _Https(limits), urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(), urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(), urllib.request.HTTPErrorProcessor(),
    ):  # fmt: skip
        opener.add_handler(handler)
    return opener


def _refusal(error: urllib.error.HTTPError) -> str:
    """Returns a text with the server's error message, made safe, or with the HTTP status if there
    is no message."""
    message = ""
    try:
        answer = json.loads(error.read(_READ_BYTES))
        message = str(answer["error"]) if isinstance(answer, dict) else ""
    except (OSError, ValueError, KeyError, RecursionError, http.client.HTTPException):
        pass
    return f"the server refuses: {safe_text(message or f'{error.code} {error.reason}', MAX_TEXT)}"


def _series(answer: bytes) -> list[Series]:
    try:
        parsed = json.loads(answer)
    except (ValueError, RecursionError):
        raise Failed("the server's answer is no JSON: is it a Prometheus?") from None
    data = parsed.get("data") if isinstance(parsed, dict) else None
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(result, list):
        raise Failed("the server's answer has no result: is it a Prometheus?")
    if len(result) > MAX_SERIES:
        raise Failed(f"the server's answer has more than {MAX_SERIES} series: narrow it by --match")
    series = []
    for entry in result:
        if not isinstance(entry, dict) or not isinstance(labels := entry.get("metric"), dict):
            continue
        pairs = entry.get("values", [entry.get("value")])
        if isinstance(pairs, list):
            named = {str(key): str(value)[:MAX_TEXT] for key, value in labels.items()}
            points = [point for pair in pairs if (point := _point(pair)) is not None]
            series.append(Series(named, points))
    return series


def _point(pair: Any) -> tuple[float, float] | None:
    """Returns a time and its value; None if one of them is unknown or impossible."""
    try:
        time_, value = map(float, pair)
    except (TypeError, ValueError, OverflowError):
        return None
    return (time_, value) if 0 <= time_ <= MAX_TIME and abs(value) <= MAX_VALUE else None

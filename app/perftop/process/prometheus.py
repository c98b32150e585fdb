"""Two questions to a Prometheus server: what is, and what was. Answers are bounded in size and
time; nothing in them is believed to be of any shape."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from perftop.base.errors import USAGE, Failed
from perftop.base.text import safe

MOST_BYTES = 32 << 20
"""Longest answer that is read."""
MOST_S = 20.0
"""Longest time for a question and its answer."""
QUIET_S = 10.0
"""Longest time between two pieces of an answer."""
MOST_SERIES = 200_000
MOST_TEXT = 300
"""Characters kept of what the server says."""
_PIECE = 1 << 16

Labels = dict[str, str]


class Series(NamedTuple):
    labels: Labels
    points: list[tuple[float, float]]
    """Unix seconds of the server, and values."""


class Server:
    def __init__(self, url: str) -> None:
        """Raises Failed for what is no URL of a server."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
            raise Failed(f"--prometheus {safe(url, 80)}: is no http://HOST[:PORT][/PATH]", USAGE)
        self.url = url.rstrip("/")
        self.bytes = 0
        """Received so far."""

    def query(self, expression: str, at: float | None = None) -> list[Series]:
        """What is at a moment; None: the server's now. Raises Failed."""
        more = {} if at is None else {"time": f"{at:.3f}"}
        return self._ask("query", {"query": expression, **more})

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """What was between two moments of the server, in steps. Raises Failed."""
        span = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return self._ask("query_range", {"query": expression, **span})

    def _ask(self, what: str, asked: dict[str, str]) -> list[Series]:
        asked["timeout"] = f"{MOST_S:g}s"
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(asked)}"
        try:
            answer = self._read(url)
        except urllib.error.HTTPError as error:
            with error:
                raise Failed(_refusal(error)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise Failed(f"the server does not answer: {safe(str(reason), MOST_TEXT)}") from None
        return _series(answer)

    def _read(self, url: str) -> bytes:
        until, found = time.monotonic() + MOST_S, bytearray()
        with urllib.request.urlopen(url, timeout=QUIET_S) as reply:  # noqa: S310 - http alone
            while piece := reply.read1(_PIECE):
                found += piece
                self.bytes += len(piece)
                if len(found) > MOST_BYTES:
                    raise Failed(f"the server's answer is larger than {MOST_BYTES >> 20} MB")
                if time.monotonic() > until:
                    raise Failed(f"the server's answer took longer than {MOST_S:.0f} s")
        return bytes(found)


def _refusal(error: urllib.error.HTTPError) -> str:
    """The server's own words, made safe; else the status."""
    said = ""
    try:
        told = json.loads(error.read(_PIECE))
        said = str(told["error"]) if isinstance(told, dict) else ""
    except (OSError, ValueError, KeyError, RecursionError, http.client.HTTPException):
        pass
    return f"the server refuses: {safe(said or f'{error.code} {error.reason}', MOST_TEXT)}"


def _series(answer: bytes) -> list[Series]:
    try:
        told = json.loads(answer)
    except (ValueError, RecursionError):
        raise Failed("the server's answer is no JSON: is it a Prometheus?") from None
    data = told.get("data") if isinstance(told, dict) else None
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(result, list):
        raise Failed("the server's answer has no result: is it a Prometheus?")
    if len(result) > MOST_SERIES:
        raise Failed(
            f"the server's answer has more than {MOST_SERIES} series: narrow it by --match"
        )
    return [one for each in result if (one := _one(each)) is not None]


def _one(each: Any) -> Series | None:
    """A series of the answer; None if it is none."""
    if not isinstance(each, dict) or not isinstance(labels := each.get("metric"), dict):
        return None
    told = each.get("values", [each.get("value")])
    if not isinstance(told, list):
        return None
    named = {str(key): str(value)[:MOST_TEXT] for key, value in labels.items()}
    return Series(named, [point for pair in told if (point := _point(pair)) is not None])


def _point(pair: Any) -> tuple[float, float] | None:
    try:
        time_, value = pair
        return float(time_), float(value)
    except (TypeError, ValueError, OverflowError):
        return None

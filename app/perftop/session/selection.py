"""Selections that users type: CPUs by a filter such as `pkg:1 busy>80 | offline !type:E`, and
moments of history by a time.

A CPU must match all terms of an alternative. `|` separates alternatives, and `!` before a term
negates it. An unknown value matches no comparison, not even a negated one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from perftop.base import text as text_of
from perftop.base.arrays import Bools, Floats
from perftop.base.text import clock_time, did_you_mean, is_digits, safe_text
from perftop.model.numbers import METRICS, PER_KI, RARE_METRICS, is_event_key
from perftop.model.smt import STATES
from perftop.session.history import Times
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import COLUMNS_BY_KEY, columns_by_key, displayed_values

if TYPE_CHECKING:
    from perftop.model.kinds import Episode

MAX_LENGTH = 200
"""Maximum number of characters of a filter. A longer text was probably pasted by mistake."""
WIDTH = 80
"""Width in cells of the narrowest terminal, which messages must fit into."""

HELP: tuple[tuple[str, str], ...] = (
    ("0-15,32", "CPUs by number"),
    ("core:0-3,7", "by core; also pkg: (or package:), die:, l3:, node:"),
    ("type:E", "by core type"),
    ("busy>80", "any metric, with > >= < <= =; shares in %"),
    ("clock<2.5", "clocks in GHz, or clock<2500MHz"),
    ("ipc=1.25", "= means as shown on the screen"),
    ("both>50", "SMT states of the CPU's core: both, lp0, lp1, neither"),
    ("offline", "also online, suspect"),
    ("nginx", "a task with this in its name runs there"),
    ("pid:4711", "this task runs there"),
    ('"util 1"', "text with spaces, or that looks like something else"),
    ("pkg:1 busy>80", "both are required"),
    ("offline | busy<5", "one of them is enough"),
    ("!type:E", "all but those"),
)

CpuTest = Callable[[Session, Interval | None], Bools]
Ranges = tuple[tuple[float, float], ...]
"""First and last number of each range. A large range needs no more memory than a small one."""


class FilterError(ValueError):
    """An invalid filter. The text is one line for the user."""

    def __init__(self, text: str, position: int) -> None:
        super().__init__(text)
        self.offset = position
        """Index of the first invalid character, or of the position where text is missing."""


@dataclass(frozen=True)
class _Term:
    test: CpuTest
    is_steady: bool = False


@dataclass(frozen=True)
class Filter:
    text: str
    is_steady: bool
    """Whether the mask depends only on the topology, so that only hotplug changes it."""
    _alternatives: tuple[tuple[_Term, ...], ...]
    """Alternatives. A CPU must match all terms of one of them."""

    def cpus(self, session: Session, interval: Interval | None) -> Bools:
        """Returns a mask of the matching CPUs. Without an interval, all values are unknown."""
        mask = np.zeros(len(session.topology), bool)
        for terms in self._alternatives:
            mask |= np.logical_and.reduce([term.test(session, interval) for term in terms])
        return mask


def parse_filter(text: str) -> Filter | None:
    """Parses a filter. Returns None for blank text. Raises FilterError."""
    if not text.strip():
        return None
    if len(text) > MAX_LENGTH:
        raise FilterError(f"too long: a filter has at most {MAX_LENGTH} characters", MAX_LENGTH)
    alternatives: list[list[_Term]] = [[]]
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
        elif text[position] != "|":
            term, position = _next_term(text, position)
            alternatives[-1].append(term)
        elif alternatives[-1]:
            alternatives.append([])
            position += 1
        else:
            break
    if not alternatives[-1]:
        raise FilterError("| belongs between two terms: type:E | busy>80", position)
    is_steady = all(term.is_steady for terms in alternatives for term in terms)
    return Filter(text.strip(), is_steady, tuple(tuple(terms) for terms in alternatives))


_WORD_PATTERN = re.compile(r'(!*)(?:"([^"]*)("?)|([^\s|"<>=]*(?:\s*[<>=]+\s*[^\s|"]*)?))')


def _next_term(text: str, position: int) -> tuple[_Term, int]:
    """Returns the term at index `position`, and the index of its end."""
    match = _WORD_PATTERN.match(text, position)
    assert match is not None
    negations, quoted, closing_quote, word = match.groups()
    start, end = match.end(1), match.end()
    if quoted is not None and not closing_quote:
        raise FilterError('a quote is not closed: "a b"', start)
    if end < len(text) and text[end] != "|" and not text[end].isspace():
        raise FilterError('quotes go around a whole term: "a b"', end)
    if not (quoted or word):
        problem = "no text in the quotes" if closing_quote else "! belongs right before a term"
        raise FilterError(problem + ': !core:3 or !"a b"', end)
    is_negated = len(negations) % 2 == 1
    if quoted is None and (comparison := _COMPARISON_PATTERN.fullmatch(word)):
        return _Term(_metric_test(comparison, start, negated=is_negated)), end
    term = _Term(partial(_task_test, quoted, ())) if quoted else _word_term(word, start)
    return (_Term(partial(_inverted, term.test), term.is_steady) if is_negated else term), end


def _inverted(test: CpuTest, session: Session, interval: Interval | None) -> Bools:
    return ~test(session, interval)


_TOPOLOGY_KEYS = "package", "core", "die", "l3", "node"
_TOPOLOGY_FIELDS = {"pkg": "package"} | {name: name for name in _TOPOLOGY_KEYS}
_LIST_PATTERN = re.compile(r"[0-9,-]*[0-9][0-9,-]*")
_RANGE_PATTERN = re.compile(r"([0-9]*)(-?)([0-9]*)(.*)", re.DOTALL)
_PREFIX_PATTERN = re.compile(r"([a-z][a-z0-9_]*):(.*)", re.IGNORECASE | re.DOTALL)


def _word_term(word: str, position: int) -> _Term:
    """Returns the term for a word without an operator."""
    if _LIST_PATTERN.fullmatch(word):
        ranges = _ranges(word, position, "0-15,32")
        return _Term(partial(_topology_test, "cpu", ranges), is_steady=True)
    match = _PREFIX_PATTERN.fullmatch(word)
    if match is None:
        return _Term(_WORD_TESTS.get(word.lower()) or partial(_task_test, word, ()))
    prefix, value, value_position = match[1].lower(), match[2], position + match.start(2)
    if prefix == "type":
        if not value:
            raise FilterError("a core type is missing: type:E", value_position)
        return _Term(partial(_type_test, value.lower()), is_steady=True)
    if prefix == "pid":
        return _Term(partial(_task_test, "", _ranges(value, value_position, "pid:4711")))
    if prefix not in _TOPOLOGY_FIELDS:
        known_terms = "known: core pkg die l3 node type pid; or quote it"
        raise FilterError(f"unknown '{_shorten_text(prefix)}:' ({known_terms})", position)
    ranges = _ranges(value, value_position, f"{prefix}:0-3,7")
    return _Term(partial(_topology_test, _TOPOLOGY_FIELDS[prefix], ranges), is_steady=True)


def _ranges(text: str, position: int, example: str) -> Ranges:
    ranges = []
    for item in text.split(","):
        first, dash, last, rest = _RANGE_PATTERN.findall(item)[0]
        if rest or not first or (dash and not last):
            problem = "a number is missing"
            problem = f"'{_shorten_text(item)}' is not a number or range" if item else problem
            error_position = position + (len(item) - len(rest) if first else 0)
            raise FilterError(f"{problem}: {example}", error_position)
        ranges.append((float(first), float(last or first)))
        if ranges[-1][0] > ranges[-1][1]:
            text = f"'{_shorten_text(item)}' runs backwards: {_shorten_text(f'{last}-{first}')}"
            raise FilterError(text, position)
        position += len(item) + 1
    return tuple(ranges)


def _in_ranges(values: list[object], ranges: Ranges) -> Bools:
    """Returns a mask of the values in these ranges. Only integers can match; rows and records may
    contain values of any type."""
    ids = np.array([value if isinstance(value, int) else np.nan for value in values], float)
    mask = np.zeros(len(ids), bool)
    for low, high in ranges:
        mask |= (low <= ids) & (ids <= high)
    return mask


def _topology_test(name: str, ranges: Ranges, session: Session, _: Interval | None) -> Bools:
    return _in_ranges([getattr(row, name) for row in session.topology], ranges)


def _type_test(name: str, session: Session, _: Interval | None) -> Bools:
    types = (row.type for row in session.topology)
    return np.array([isinstance(text, str) and text.lower() == name for text in types])


class _Unit(NamedTuple):
    powers: dict[str, int]  # powers of ten by suffix, in lower case
    step: float  # value of the last digit on the screen
    show: Callable[[float], str]
    example: str


_UNITS = {
    "ratio": _Unit({"": -2, "%": -2}, 1e-3, text_of.percent, "80"),
    "Hz": _Unit({"": 9, "ghz": 9, "mhz": 6}, 1e7, text_of.clock_ghz, "2.5GHz"),
    "1": _Unit({"": 0}, 1e-2, text_of.two_decimals, "1.5"),
}
_RATE = _Unit({"": 0, "k": 3, "m": 6, "g": 9}, 1e-1, "{:.1f}".format, "10k")
_NAMES = {metric.label.lower().replace(" ", "_"): key for key, metric in METRICS.items()}
_NAMES |= {name: name for name in (*METRICS, *STATES)}
_ORDER_OPERATORS = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}
_EQUAL_OPERATORS = {"=", "=="}
_COMPARISON_PATTERN = re.compile(r"([^<>=\s]*)\s*([<>=]+)\s*(.*)", re.DOTALL)
_NUMBER_PATTERN = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(.*)", re.DOTALL)


def _metric_test(match: re.Match[str], position: int, *, negated: bool) -> CpuTest:
    name, operator, number = match.groups()
    key = name if is_event_key(name) else _NAMES.get(name.lower())
    if key is None:
        raise _unknown_metric(name, operator, position)
    unit = _UNITS["1"] if key.endswith(PER_KI) else _RATE  # a counter of an event
    column = COLUMNS_BY_KEY.get(key) or RARE_METRICS.get(key)
    unit = unit if column is None else _UNITS[column.unit]
    if operator not in _ORDER_OPERATORS.keys() | _EQUAL_OPERATORS:
        text = f"unknown '{_shorten_text(operator)}' (try > >= < <= =)"
        raise FilterError(text, position + match.start(2))
    level = _typed_level(number, unit, position + match.start(3), f"{name}{operator}{unit.example}")
    compare = _ORDER_OPERATORS.get(operator) or partial(_equals_as_shown, unit)

    def test(session: Session, interval: Interval | None) -> Bools:
        column = columns_by_key(session).get(key)
        if interval is None or column is None:
            return np.zeros(len(session.topology), bool)
        values = displayed_values(column, session, interval)
        mask: Bools = ~np.isnan(values) & (compare(values, level) != negated)
        return mask

    return test


def _unknown_metric(name: str, operator: str, position: int) -> FilterError:
    if not name:
        return FilterError(
            f"a metric is missing before {_shorten_text(operator)}: busy>80", position
        )
    if name.endswith("!"):
        return FilterError("!= is unknown; put ! before a term: !busy=80", position + len(name) - 1)
    suggestion = did_you_mean(name.lower(), _NAMES, "try busy.")
    text = f"unknown metric '{_shorten_text(name)}'{suggestion}"
    quote = " To search for the text, quote it"
    return FilterError(text + quote if len(text + quote) < WIDTH else text, position)


def _typed_level(text: str, unit: _Unit, position: int, example: str) -> float:
    """Returns the value of a typed number in the base unit."""
    match = _NUMBER_PATTERN.fullmatch(text)
    power = unit.powers.get(match[2].lower()) if match else None
    if match is None or power is None:
        problem = f"'{_shorten_text(text)}' does not fit" if text else "a number is missing"
        raise FilterError(f"{problem}: {example}", position + (match.start(2) if match else 0))
    return float(f"{match[1]}e{power}")  # 29 % equals 29 / 100 to the last bit


def _equals_as_shown(unit: _Unit, values: Floats, level: float) -> Bools:
    text = unit.show(level)
    steps = np.abs(values - float(f"{text}e{unit.powers['']}")) / unit.step
    mask: Bools = steps < 0.499
    for row in np.flatnonzero(np.abs(steps - 0.5) <= 0.001):  # at a limit, texts are compared
        mask[row] = unit.show(float(values[row])) == text
    return mask


def _online_test(session: Session, interval: Interval | None) -> Bools:
    return session.online if interval is None else interval.online


_WORD_TESTS: dict[str, CpuTest] = {
    "online": _online_test,
    "offline": partial(_inverted, _online_test),
    "suspect": lambda session, interval: np.isin(
        np.arange(len(session.topology)),
        [] if interval is None else list(interval.suspect_counters),
    ),
}


def _task_test(text: str, pids: Ranges, session: Session, interval: Interval | None) -> Bools:
    """Returns a mask of the CPUs whose main task has this text in its name, or as its PID."""
    tasks = {} if interval is None else interval.tasks
    by_cpu = (tasks.get(str(row.cpu)) for row in session.topology)
    records = [record if isinstance(record, list) else [] for record in by_cpu]
    number = ((float(text), float(text)),) if is_digits(text) else ()
    mask = _in_ranges([record[0] if record else None for record in records], pids + number)
    names = [record[1] if text and len(record) > 1 else None for record in records]
    part = text.casefold()
    mask |= [isinstance(name, str) and part in name[:64].casefold() for name in names]
    return mask


def _shorten_text(text: str) -> str:
    """Returns typed text, printable and shortened, for a message."""
    return safe_text(text, 16)


# --- Moments of history to jump to: of episodes, and typed by users.

TimeRange = tuple[int, int]
"""First and last moment of a part of the history, in raw ns."""
MAX_SHOWN_EPISODE_NS = 60_000_000_000
"""Maximum length in ns of a range that displays an episode. Reading more would take too long."""
MAX_REREAD_VALUES = 40_000
"""Maximum number of values (samples times CPUs) that are read from the history for one report."""
MOMENT_HINT = "12:03:05, 12:03, -30s or -2m"
_CLOCK_PATTERN = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}(?:\.[0-9]{1,9})?))?")
_SPAN_PATTERN = re.compile(r"([+-])([0-9]{1,6}(?:\.[0-9]{1,3})?)(ms|s|m|h)?")
_UNIT_NS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


def reachable_episodes(session: Session, cpus: Iterable[int] | None = None) -> list[Episode]:
    """Returns the marks and episodes whose samples are in history or in a recording. `cpus`: only
    episodes on at least one of these CPUs; None: all."""
    episodes = [*session.ended, *session.log.listed_running, *session.marks]
    if cpus is not None:
        asked_cpus = set(cpus)
        episodes = [e for e in episodes if not e.cpus or not asked_cpus.isdisjoint(e.cpus)]
    return [episode for episode in episodes if is_reachable(session, episode)]


def is_reachable(session: Session, episode: Episode) -> bool:
    """Returns whether an episode's samples are in history or in a recording."""
    if session.log.recording is not None:
        return True
    first_ns = session.history.first_ns if session.history is not None else None
    return first_ns is not None and (episode.end_ns is None or episode.end_ns >= first_ns)


def max_read_ns(session: Session) -> int:
    """Returns the length in ns of the longest span that is read again from the history."""
    return MAX_REREAD_VALUES * session.hello.sample_ns // len(session.topology)


def max_shown_ns(session: Session) -> int:
    """Returns the maximum length in ns of a range that displays an episode."""
    return min(MAX_SHOWN_EPISODE_NS, max_read_ns(session))


def episode_range(session: Session, episode: Episode, times: Times) -> TimeRange:
    """Returns the range in raw ns that displays an episode: all samples in which it ran, or those
    of its first part if it was long. Both ends of a mark are its moment. `times`: raw times in ns
    of the ends of all samples in the history, at least one."""
    sample_ns = session.hello.sample_ns
    end_ns = session.until_ns if episode.end_ns is None else episode.end_ns
    end_ns = min(end_ns, episode.start_ns + max_shown_ns(session))
    # Ends of samples, which may be slightly late. With any other moments, the start of the shown
    # range would differ, and navigation would return to the same episode.
    first = int(times.searchsorted(episode.start_ns + sample_ns // 2, side="right")) - 1
    if episode.kind == "mark":
        return (moment_ns := int(times[max(0, first)])), moment_ns
    first = max(0, min(first, len(times) - 2))
    last = min(max(first + 1, int(times.searchsorted(end_ns))), len(times) - 1)
    return int(times[first]), int(times[last])


def nearest_episode(
    session: Session, shown_ns: int, episodes: Iterable[Episode], direction: int
) -> TimeRange | None:
    """Returns the range of the first episode that begins after this moment (`direction` 1) or of
    the last one before it (-1); None if there is none. Of episodes that begin together, it is that
    of the longest."""
    if session.history is None or not len(times := session.history.times()):
        return None
    ranges = (episode_range(session, episode, times) for episode in episodes)
    beyond = [ends for ends in ranges if (ends[0] - shown_ns) * direction > 0]
    return min(beyond, key=lambda ends: (ends[0] * direction, -ends[1]), default=None)


def typed_moment(
    text: str, session: Session, interval: Interval, extent_ns: tuple[int, int] | None = None
) -> int:
    """Returns the typed moment in raw ns. A duration is relative to `interval`. `extent_ns`: range
    of possible moments; None: the session's history. Raises ValueError with a line for the user."""
    history = session.history
    if extent_ns is None and history is not None and history.first_ns is not None:
        extent_ns = history.first_ns, history.last_ns or history.first_ns
    if extent_ns is None:
        raise ValueError("no history is kept")
    ahead_ns = session.hello.wall_ns - session.hello.raw_ns
    known_times = interval.time_ns, *extent_ns
    return parse_moment(text, *(raw_ns + ahead_ns for raw_ns in known_times)) - ahead_ns


def parse_moment(text: str, shown_ns: int, first_ns: int, last_ns: int) -> int:
    """Returns the typed moment in Unix ns. A time of day means its latest occurrence before the
    newest sample. A duration, in seconds if it has no unit, is relative to `shown_ns`. Raises
    ValueError with one line for the user."""
    text = text.strip()
    if match := _SPAN_PATTERN.fullmatch(text):
        sign, number, unit = match.groups()
        span_ns = round(float(number) * _UNIT_NS[unit or "s"])
        start = end = shown_ns + span_ns if sign == "+" else shown_ns - span_ns
    elif match := _CLOCK_PATTERN.fullmatch(text):
        hour, minute, second = int(match[1]), int(match[2]), float(match[3] or 0)
        if hour > 23 or minute > 59 or second >= 60:
            raise ValueError(f"invalid time of day (try {MOMENT_HINT})")
        day = time.localtime(last_ns // 10**9)
        for days_ago in (0, 1):
            date = (day.tm_year, day.tm_mon, day.tm_mday - days_ago)
            whole_s = time.mktime((*date, hour, minute, 0, 0, 0, -1))
            start = int(whole_s) * 10**9 + round(second * 1e9)
            if start <= last_ns:
                break
        # a time without seconds, such as 12:03, means the whole minute
        end = start + _UNIT_NS["s" if match[3] else "m"] - 1
    else:
        raise ValueError(f"invalid time (try {MOMENT_HINT})")
    if end < first_ns or start > last_ns:
        first, last = clock_time(first_ns / 1e9), clock_time(last_ns / 1e9)
        raise ValueError(f"history holds {first} to {last}")
    return max(start, first_ns)

"""Text that a terminal can show, and numbers, times and spans as text."""

from __future__ import annotations

import codecs
import contextlib
import locale
import math
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TextIO, get_args
from unicodedata import category


def ranges(numbers: Iterable[int], *, strides: bool = False) -> str:
    """Returns numbers in the kernel's format of CPU lists, such as 0-2,5. `strides`: four or more
    numbers at equal distances become 0-46:1/2, also as in the kernel."""
    todo, parts, begin = sorted(set(numbers)), [], 0
    while begin < len(todo):
        step = todo[begin + 1] - todo[begin] if begin + 1 < len(todo) else 1
        end = begin + 1
        while (strides or step == 1) and end < len(todo) and todo[end] - todo[end - 1] == step:
            end += 1
        if step > 1 and end - begin < 4:
            end = begin + 1
        stride_text = f":1/{step}" if step > 1 else ""
        last = f"-{todo[end - 1]}{stride_text}" if end - begin > 1 else ""
        parts.append(f"{todo[begin]}{last}")
        begin = end
    return ",".join(parts)


def cpu_list(cpus: Collection[int]) -> str:
    """Returns these CPUs by number: CPU 3, or CPUs 0-2,5."""
    return f"CPU{'s' if len(cpus) > 1 else ''} {ranges(cpus)}"


def short_cpu_list(cpus: Collection[int], max_cells: int) -> str:
    """Returns the numbers of these CPUs, or their count (9 CPUs) if they exceed `max_cells`."""
    text = cpu_list(cpus)
    return text if len(text) <= max_cells else count_noun(len(cpus), "CPU")


_FILLERS = frozenset("\u115f\u1160\u3164\uffa0")
"""Hangul fillers: letters that are displayed as blanks."""


def _is_displayable(sign: str) -> bool:
    """Returns whether a terminal draws this character as itself, in its own cell. Control
    characters, direction marks and zero-width characters are not displayable."""
    return sign.isprintable() and category(sign) not in {"Mn", "Me"} and sign not in _FILLERS


NON_ASCII_PATTERN = re.compile(r"[^ -~]")
"""A character that is not printable ASCII."""


def printable(text: str) -> str:
    """Makes untrusted text safe for a terminal: characters that could control it or deceive the
    reader become question marks."""
    if text.isascii() and text.isprintable():
        return text
    return NON_ASCII_PATTERN.sub(lambda sign: sign[0] if _is_displayable(sign[0]) else "?", text)


def escaped(text: str) -> str:
    """Makes untrusted text safe for a data format: characters that `printable` replaces,
    except line ends, are escaped as in JSON: \u001b."""
    if text.isascii() and text.isprintable():
        return text
    signs = ""
    for sign in text:
        if sign == "\n" or _is_displayable(sign):
            signs += sign
        else:
            units = sign.encode("utf-16-be", "surrogatepass").hex()
            signs += "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
    return signs


ELLIPSIS = "…"


def is_digits(text: str) -> bool:
    """Returns whether the text has only the digits 0 to 9, at least one."""
    return text.isascii() and text.isdecimal()


def fit(text: str, size: int) -> str:
    """Returns the text padded or cut to exactly `size` cells. Cut text ends with an ellipsis."""
    if len(text) > size:
        return text[: size - 1] + ELLIPSIS if size > 0 else ""
    return f"{text:<{size}}"


def cut(text: str, size: int) -> str:
    """Returns the text, cut with an ellipsis if it is longer than `size` cells."""
    return fit(text, min(len(text), size))


def safe_text(text: str, max_length: int) -> str:
    """Makes untrusted text printable and cuts it to at most `max_length` characters."""
    return cut(printable(text), max_length)


MIN_WIDTH = 40
"""Minimum width of wrapped lines in cells. A narrower terminal breaks them itself."""
_UNIT = re.compile(r"(?<=[0-9]) (?=(?:%|°C|[kMG]?Hz|[kMG]?B|k?J|W|[mµn]?s)(?![A-Za-z]))")
"""The space between a number and its unit."""
_PROGRAMS = (
    "cpupower|echo|kill|modprobe|mount|numactl|numastat|perf|perftop|sudo|sysctl|taskset|ulimit"
)
_PROSE = "and|does|for|has|is|lists|may|measures|names|of|on|or|outside|restores|shows|to|which"
_COMMAND = re.compile(
    r"for p in [0-9 ]+; do [^;]+; done|"
    rf"(?<![^ (])(?:{_PROGRAMS})(?: (?!(?:{_PROSE})\b)\S*[^\s,;:](?=[\s,;:]|$))+"
)
"""A command in a text: a loop over PIDs, or from the name of a program to punctuation or a word
that no command has."""


def wrap_text(text: str, width: int, **options: Any) -> list[str]:
    """Wraps text as `textwrap.wrap` does, but not inside a word or a command, so that these can be
    copied, and not between a number and its unit."""
    joined = _COMMAND.sub(lambda command: command[0].replace(" ", "\u00a0"), text)
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False, **options)
    return [line.replace("\u00a0", " ") for line in wrapper.wrap(_UNIT.sub("\u00a0", joined))]


def wrap_indented(text: str, width: int, indent: int) -> list[str]:
    """Returns the text in lines of `width` cells, all but the first indented."""
    return wrap_text(
        text, max(width, 2 * indent, MIN_WIDTH), subsequent_indent=" " * indent,
        replace_whitespace=False,
    )  # fmt: skip


def describe_machine(answer: Mapping[str, Any]) -> list[str]:
    """Returns the host, CPU model, guest status and kernel of a machine from its probe's answer."""
    parts = [answer["host"] or "this machine", answer["model"] or "unknown CPU"]
    if guest := answer["virtualisation"]:
        parts.append("guest" if guest == "hypervisor" else f"guest of {guest}")
    return [*parts, f"Linux {answer['kernel']}"]


def supports_unicode() -> bool:
    """Returns whether graphic characters can be drawn: the locale and stdout are both UTF-8."""
    if "LC_ALL" not in os.environ and os.environ.get("LANG") in {"C", "POSIX"}:
        # Python replaces a C locale by C.UTF-8, but a user who explicitly sets C wants plain text.
        is_utf8 = os.environ.get("LC_CTYPE", "C.UTF-8") not in {"C.UTF-8", "C", "POSIX"}
    else:
        is_utf8 = codecs.lookup(locale.getencoding()).name == "utf-8"
    # A full-screen app replaces stdout by an object without encoding, but draws on the real stdout.
    encoding = getattr(sys.stdout, "encoding", None) or getattr(sys.__stdout__, "encoding", None)
    return is_utf8 and codecs.lookup(encoding or "ascii").name == "utf-8"


def is_full_terminal(stream: TextIO) -> bool:
    """Returns whether the stream is a terminal that can do more than print lines."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def terminal_problem() -> str | None:
    """Returns why stdin and stdout cannot be used for a screen; None if they can."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return "the screen needs a terminal"
    if is_full_terminal(sys.stdout):
        return None
    return "the screen needs a terminal that can move its cursor, which TERM=dumb denies"


def supports_colour(stream: TextIO) -> bool:
    return is_full_terminal(stream) and not os.environ.get("NO_COLOR")


def with_style(text: str, code: str) -> str:
    """Returns the text with an SGR code (colour or style); unchanged if the code is ''."""
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def terminal_text(text: str, code: str = "", *, unicode: bool) -> str:
    """Makes one line of untrusted text safe for a terminal, and adds an SGR code (colour or style)
    unless it is ''. `unicode`: whether characters outside ASCII may be used."""
    safe = printable(text if unicode else ascii_line(text))
    return with_style(safe, code if safe else "")


CLEAR_LINE = "\r\x1b[K"
"""Moves the cursor of a terminal to the start of the line, and clears the line."""


def signed(value: float, digits: int) -> str:
    """Formats a number with its sign, which is a minus (not a hyphen) if it is negative."""
    return f"{value:+z.{digits}f}".replace("-", "−")


def show_progress(text: str) -> None:
    """Shows a line on stderr, if that is a terminal, in place of the one shown before; '' clears
    it."""
    if sys.stderr.isatty():
        with contextlib.suppress(OSError):  # the terminal may be gone
            columns = shutil.get_terminal_size().columns
            print(CLEAR_LINE + text[: columns - 1], end="", file=sys.stderr, flush=True)


_ASCII_SIGNS = {
    "█": "#", "▀": "'", "▁": "_", "▂": "_", "▃": ",", "▄": ",", "▅": ";", "▆": ";", "▇": "*",
    "·": ".", "▒": "?", "▓": "%", "╳": "x", "━": "=", "┅": "w", "╸": "-",
    "┃": "|", "│": "|", "▼": "v", "≁": "~", "▸": ">", "─": "-", "…": ".", "µ": "u", "×": "x",
    "°": " ", "↑": "^", "↓": "v", "→": ">", "←": "<", "–": "-", "−": "-", "—": "-", "┄": "-",
    "▲": "^", "■": "*", "║": "H", "◐": "&", "▣": "Q", "↯": "I", "▤": "m", "◊": "+", "╱": "/",
    "○": "o", "•": "O", "▮": "S",
    "┴": "^", "└": "`", "├": "|", "▌": ">", "▔": "-", "◂": "<", "┬": "+", "✕": "x", "≈": "~",
    "✓": "+", "●": "o", "≥": ">", **dict.fromkeys("╺╸╻╹┏┓┳┗┛┻┣┫╋╶╴╷╵┌┐┘┤┼", "+"),
}  # fmt: skip
_CUT_END = re.compile("..…")
"""An ellipsis and the two characters before it: in ASCII, three dots replace all three."""
_CUT_NAME = re.compile(r"\S\S…")
"""The end of a name that was cut. In a table, the replacement must not be wider."""
_WIDER_ASCII = {"±": "+-", "σ": "sd", " · ": ", ", "…": "...", "°C": "C"}
"""More readable ASCII replacements, for lines whose width may change."""
_ASCII_TABLE = str.maketrans(_ASCII_SIGNS)
_STATE_MARKS = {
    "usable": "✓+", "ready": "✓+", "trusted": "✓+", "limited": "~~", "matters": "~~",
    "close": "~~", "unknown": "??", "disturbed": "??", "not usable": "✗-", "unusable": "✗X",
    "not there": "  ", "works": "✓+", "wrong": "✗X", "undecided": "??", "not tried": "??",
    "holds": "✓+", "broken": "✗X",
}  # fmt: skip
"""Marks for the states that the probe reports: a graphic character, then an ASCII character."""


def state_mark(state: str, *, unicode: bool) -> str:
    return _STATE_MARKS[state][0 if unicode else 1]


def to_ascii(text: str) -> str:
    """Returns the text in ASCII, at the same width."""
    if "…" in text:
        text = _CUT_END.sub("...", text)
    text = text.replace(" °C", " C ")
    return text.translate(_ASCII_TABLE).encode("ascii", "replace").decode()


def ascii_line(line: str) -> str:
    """Returns a line in ASCII, for terminals without UTF-8. Its width may change, but not that of a
    name that was cut."""
    line = _CUT_NAME.sub("...", line)
    for sign, replacement in _WIDER_ASCII.items():
        line = line.replace(sign, replacement)
    return to_ascii(line)


EIGHTHS = " ▁▂▃▄▅▆▇█"


def bar_chart(counts: Sequence[int], chars: str) -> str:
    """Returns a chart of one line, with a character of `chars` for each count: the last one for the
    highest count, and the first one only for 0."""
    highest, last = max(counts, default=0), len(chars) - 1
    return "".join(chars[-(-count * last // highest) if count else 0] for count in counts)


def did_you_mean(word: str, known_words: Iterable[str], alternative: str = "") -> str:
    """Returns the end of a message on an unknown word: the most similar known word, or
    `alternative`. All options begin with dashes, so these are ignored."""
    import difflib  # imported late, because few commands have a misspelt word

    by_stem = {name.lstrip("-"): name for name in known_words}
    close = difflib.get_close_matches(word.lstrip("-"), list(by_stem), 1)
    return f": did you mean {by_stem[close[0]]}?" if close else alternative and f"; {alternative}"


# --- Numbers, times and spans as text, with no more digits than the measurement supports.

MISSING = "n/a"


def percent(share: float) -> str:
    """Returns a share in per cent to 0.1, without the % sign."""
    return f"{100 * share:.1f}" if math.isfinite(share) else MISSING


def whole_percent(share: float) -> str:
    """Returns a share in whole per cent: 80 %."""
    return f"{100 * share:.0f} %"


def short_percent(share: float) -> str:
    """Returns a share with two significant digits: 80 %, 2.0 %."""
    return whole_percent(share) if share >= 0.095 else f"{percent(share)} %"


def clock_ghz(hz: float) -> str:
    """Returns a clock in GHz to 0.01, without the unit."""
    return f"{hz / 1e9:.2f}" if math.isfinite(hz) else MISSING


Units = Literal["GHz", "MHz", "base"]
UNITS: tuple[Units, ...] = get_args(Units)
"""Units of clocks; `base`: multiples of the base clock."""


class ClockUnit(NamedTuple):
    """Unit in which clocks are shown, as selected by the user."""

    name: str
    per_hz: float
    digits: int


def clock_unit(units: str, base_hz: float) -> ClockUnit:
    """Returns the unit of this name. Multiples of an unknown (NaN) base clock are NaN."""
    if units == "MHz":
        return ClockUnit("MHz", 1e-6, 0)
    if units == "base":
        return ClockUnit("×base", 1 / base_hz if base_hz > 0 else math.nan, 2)
    return ClockUnit("GHz", 1e-9, 2)


def rate_unit(highest: float) -> ClockUnit:
    """Returns the unit in which rates of up to `highest` per second have at most four digits."""
    power, prefix = scale(highest)
    return ClockUnit(f"{prefix}/s", 10.0**-power, 1)


GHZ = clock_unit("GHz", math.nan)


def two_decimals(value: float) -> str:
    """Returns a plain number, such as IPC, to 0.01."""
    return f"{value:.2f}" if math.isfinite(value) else MISSING


PREFIXES = ((12, "T"), (9, "G"), (6, "M"), (3, "k"))


def scale(value: float) -> tuple[int, str]:
    """Returns the power of ten and the SI prefix for one to three digits before the point."""
    return next(((power, name) for power, name in PREFIXES if abs(value) >= 10**power), (0, ""))


def with_si_prefix(value: float) -> str:
    """Returns a number of any size to 0.1 with k, M, G or T: 12.3k."""
    if not math.isfinite(value):
        return MISSING
    for power, prefix in PREFIXES:
        if abs(value) >= 0.99995 * 10**power:
            return f"{value / 10**power:.1f}{prefix}"
    return f"{value:.1f}"


def round_number(value: float) -> str:
    """Returns a number without unnecessary digits, such as 500k or 2.5."""
    power, prefix = scale(value)
    return f"{value / 10**power:g}{prefix}"


def count_noun(number: int, noun: str) -> str:
    """Returns a number with its noun in singular or plural: 1 core, 2 cores."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def join_words(words: Sequence[str]) -> str:
    """Joins words into one phrase: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


Line = dict[str, Any]
"""An object of JSON output."""


def json_number(value: float | None) -> float | None:
    """Rounds a number to seven digits: more than any counter's precision, but readable. Returns
    None if it is unknown or not finite."""
    return float(f"{value:.7g}") if value is not None and math.isfinite(value) else None


# --- times and spans


def clock_time(unix: float) -> str:
    """Returns the local time of day to 0.1 s."""
    tenths = int(unix * 10)
    return time.strftime("%H:%M:%S", time.localtime(tenths // 10)) + f".{tenths % 10}"


def time_of_day(unix: float, step_s: int = 1) -> str:
    """Returns the local time of day to the second, or to the minute for steps of whole minutes."""
    return time.strftime("%H:%M" if step_s % 60 == 0 else "%H:%M:%S", time.localtime(unix))


def duration(seconds: float) -> str:
    """Returns an interval as the user types it: 100 ms, 2 s."""
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"


def long_duration(ns: int) -> str:
    """Returns a duration: 4.1 s, 3 min 12 s, 2 h 05 min."""
    tenths = round(max(0, ns) / 1e8)
    if tenths < 600:
        return f"{tenths / 10:.1f} s"
    minutes, seconds = divmod(tenths // 10, 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def player_time(ns: int) -> str:
    """Returns a position in a recording, as media players show it: 0:28, 1:02:28."""
    minutes, seconds = divmod(max(0, ns) // 10**9, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def running_time(seconds: int) -> str:
    """Returns the time that something has lasted so far: 59 s, 1 min 00 s."""
    return f"{seconds} s" if seconds < 60 else long_duration(seconds * 10**9)


def short_duration(seconds: float) -> str:
    """Returns a short duration: 16 ms, 1.2 s."""
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def brief_duration(seconds: float) -> str:
    """Returns a duration to two digits: 9.8 µs, 16 ms, 1.2 s."""
    if seconds <= 0:
        return "0 µs"
    seconds = round(seconds, 1 - math.floor(math.log10(seconds)))
    name, per_s = next((u for u in _TIME_UNITS if seconds * u[1] >= 1), _TIME_UNITS[-1])
    value = seconds * per_s
    return f"{value:.1f} {name}" if value < 10 else f"{value:.0f} {name}"


_TIME_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))


def resolution_text(ns: float | None) -> str:
    """Returns the resolution of a clock: 4 ms, 1 µs, 27.8 ns."""
    if ns is None:
        return MISSING
    for name, size in (("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:g} {name}"
    return f"{ns:.3g} ns"

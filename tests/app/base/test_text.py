"""Untrusted text: escaping for terminals and for data formats."""

from __future__ import annotations

import json
import sys
from math import isnan, nan

import pytest

from perftop.base import text
from perftop.base.errors import print_error
from perftop.verbs import machine as machine_verbs

HOSTILE = {
    "C0": "\x1b", "line": "\n", "DEL": "\x7f", "C1": "\x9b", "bidi": "\u202e", "isolate": "\u2066",
    "zero width": "\u200b", "joiner": "\u200d", "order mark": "\ufeff", "mark": "\u0301",
    "selector": "\ufe0f", "filler": "\u3164", "separator": "\u2028", "tag": "\U000e0041",
    "surrogate": "\ud800",
}  # fmt: skip


@pytest.mark.parametrize("sign", HOSTILE.values(), ids=HOSTILE)
def test_control_and_deceptive_characters_are_replaced_or_escaped(sign: str) -> None:
    assert text.printable(f"a{sign}b") == "a?b"
    output = text.escaped(f"a{sign}b") if sign != "\n" else "a\\nb"  # line ends are not replaced
    assert output.isascii()
    assert output.isprintable()
    assert json.loads(f'"{output}"') == f"a{sign}b"


@pytest.mark.parametrize(("size", "expected"), [(3, "abc"), (2, "a…"), (1, "…"), (0, "")])
def test_a_cut_text_ends_with_an_ellipsis(size: int, expected: str) -> None:
    assert text.safe_text("abc", size) == text.cut("abc", size) == text.fit("abc", size) == expected


@pytest.mark.parametrize("sign", [sign for sign in HOSTILE.values() if sign != "\n"])
def test_errors_and_answers_of_a_probe_are_printable(
    capsys: pytest.CaptureFixture[str], sign: str
) -> None:
    machine_verbs.print_answer({}, lambda *_, **__: [f"driver a{sign}b"], as_json=False)
    print_error(f"no driver a{sign}b")
    out, err = capsys.readouterr()
    lines = (out + err).splitlines()
    assert len(lines) >= 2
    assert all(line.isprintable() and sign not in line for line in lines)


@pytest.mark.parametrize(("numbers", "expected", "with_strides"), [
    ([], "", ""), ([3], "3", "3"), ([5, 3, 4, 3], "3-5", "3-5"),
    ([2, 5, 7, 8], "2,5,7-8", "2,5,7-8"),
    ([0, 2, 4], "0,2,4", "0,2,4"), ([0, 2, 4, 6], "0,2,4,6", "0-6:1/2"),
    ([1, 5, 9, 13, 14, 15], "1,5,9,13-15", "1-13:1/4,14-15"),
])  # fmt: skip
def test_numbers_are_printed_as_in_the_kernel(
    numbers: list[int], expected: str, with_strides: str
) -> None:
    assert text.ranges(numbers) == expected
    assert text.ranges(numbers, strides=True) == with_strides


def test_a_number_and_its_unit_are_on_one_line() -> None:
    assert text.wrap_text("steal 0.00 %", 10) == ["steal", "0.00 %"]
    assert text.wrap_text("ran 3 s at 20 GHz", 8) == ["ran 3 s", "at", "20 GHz"]
    assert text.wrap_text("took 8 tasks", 6) == ["took 8", "tasks"]


@pytest.mark.parametrize("command", [
    "sudo sysctl kernel.perf_event_paranoid=0", "numactl --cpunodebind=N --membind=N",
    "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "taskset -acp 0-3,8 4048", "for p in 48 52; do taskset -acp 0-3,8 $p; done",
    "perf record -g -e cpu-clock:k", "kill -CONT 17",
    "cpupower frequency-set -g performance", "ulimit -Hn 65536", "perftop why demo:quota",
])  # fmt: skip
def test_a_command_is_never_broken_so_that_it_can_be_copied(command: str) -> None:
    for hint in (command, f"raise it ({command}), or", f"x, or {command}; then restart it, or not"):
        for width in (1, 20, 40, len(hint) - 1):
            lines = text.wrap_text(hint, width)
            assert sum(command in line for line in lines) == 1
            assert " ".join(lines) == hint
    assert text.wrap_text("perftop may run", 8) == ["perftop", "may run"], "not a command"


SHOWN: dict[str, list[tuple[float, str]]] = {
    "percent": [(0.1234, "12.3"), (nan, "n/a")], "clock_ghz": [(3.456e9, "3.46"), (nan, "n/a")],
    "short_percent": [(0.0949, "9.5 %"), (0.095, "10 %")], "two_decimals": [(nan, "n/a")],
    "with_si_prefix": [(999.94, "999.9"), (999.95, "1.0k"), (-1e6, "-1.0M"), (nan, "n/a")],
    "round_number": [(2.5, "2.5"), (999, "999"), (1000, "1k"), (500_000, "500k"), (2e12, "2T")],
    "long_duration": [(-1, "0.0 s"), (59_949_999_999, "59.9 s"), (59_950_000_000, "1 min 00 s"),
                      (3599 * 10**9, "59 min 59 s"), (3600 * 10**9, "1 h 00 min")],
    "player_time": [(-1, "0:00"), (3599 * 10**9, "59:59"), (3600 * 10**9, "1:00:00")],
    "running_time": [(59, "59 s"), (60, "1 min 00 s")],
    "duration": [(0.9999, "999.9 ms"), (1.0, "1 s")],
    "short_duration": [(0.016, "16 ms"), (1.0, "1.0 s")],
    "brief_duration": [
        (0.0, "0 µs"), (3.33e-6, "3.3 µs"), (9.96e-6, "10 µs"), (123e-6, "120 µs"),
        (0.9996e-3, "1.0 ms"), (4.04e-3, "4.0 ms"), (0.5, "500 ms"), (1.0, "1.0 s"),
        (12.3, "12 s"), (2e-8, "0.0 µs"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_numbers_and_times_have_few_digits(name: str) -> None:
    for value, expected in SHOWN[name]:
        assert getattr(text, name)(value) == expected


def test_clocks_and_rates_have_units() -> None:
    assert text.clock_unit("base", 2e9) == ("×base", 0.5e-9, 2)
    assert isnan(text.clock_unit("base", 0.0).per_hz)
    assert text.clock_unit("MHz", nan) == ("MHz", 1e-6, 0)
    assert (text.rate_unit(999.0), text.rate_unit(1000.0)) == (("/s", 1.0, 1), ("k/s", 1e-3, 1))


def test_cpus_are_listed_or_counted() -> None:
    assert [text.cpu_list(cpus) for cpus in ([3], [0, 1])] == ["CPU 3", "CPUs 0-1"]
    assert [text.short_cpu_list([0, 1], cells) for cells in (8, 7)] == ["CPUs 0-1", "2 CPUs"]


def test_progress_leaves_the_last_column_free(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "10")
    text.show_progress("abcdefghijkl")
    assert capsys.readouterr().err == text.CLEAR_LINE + "abcdefghi"


def test_lines_break_between_words() -> None:
    hint = "to fix it: now apt install linux-tools-common"
    lines = text.wrap_indented(hint, 10, 4)  # a width narrower than any terminal
    assert max(map(len, lines)) <= text.MIN_WIDTH
    assert [line.startswith("    ") for line in lines] == [False, True]
    assert " ".join(lines).split() == hint.split()
    assert text.wrap_indented("x" * 50, 40, 10) == ["x" * 50]


def test_bar_heights_follow_counts() -> None:
    assert text.bar_chart([0, 1, 40, 80], text.EIGHTHS) == " ▁▄█"
    assert text.bar_chart([1, 10**9], text.EIGHTHS) == "▁█"  # any count above 0 is drawn
    assert text.bar_chart([], text.EIGHTHS) == ""
    assert text.bar_chart([0, 0], text.EIGHTHS) == "  "
    assert text.bar_chart([8, 0, 1], " .:#") == "# ."


def test_a_typing_error_suggests_the_most_similar_word() -> None:
    assert (
        text.did_you_mean("busi_hz", ["util", "busy_hz"], "try util") == ": did you mean busy_hz?"
    )
    assert text.did_you_mean("xyzzy", ["util", "ipc"], "known: util, ipc") == "; known: util, ipc"
    assert not text.did_you_mean("xyzzy", ["util", "ipc"])

"""`perftop ramp`: measures how long the clock of an idle CPU takes to rise under load. The probe
runs the load; the result is text with a chart, or JSON."""

from __future__ import annotations

import argparse
import functools
import math
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfprobe import stream_options
from perftop.base.errors import USAGE, Failed
from perftop.base.text import (
    brief_duration,
    count_noun,
    show_progress,
    signed,
    supports_colour,
    supports_unicode,
    terminal_text,
    whole_percent,
    wrap_indented,
)
from perftop.verbs import machine
from perftop.verbs.machine import Answer, add_instrument, fact_lines

if TYPE_CHECKING:
    from perftop.verbs.ramp_runs import Gap, Ramp, Spread

    MeasuredCpu = Sequence[tuple[Answer, Ramp]]

AskProbe = Callable[..., Answer]
INTERRUPTED = 130
SCREEN_LINES = 7
"""Lines of the screen that are not chart or text: title, gaps, axis, blank lines, the prompt."""
MIN_CHART_LINES, MAX_CHART_LINES = 6, 20
MAX_WIDTH = 160
INDENT = 12
MAX_SAME_DIFFERENCE = 0.001
"""Maximum relative difference between clocks of wide and scalar code that count as equal."""
MAX_CHAIN_DEVIATION = 0.01
"""Maximum relative difference between the clock from counted cycles and the clock from the chain
(of dependent instructions of known latency). The latter is off by about 0.1 %, because only the
minimum cost of a time stamp is subtracted."""


def add_parser(subparsers: Any) -> None:
    text = "measure how long a core takes from idle to a steady clock (warm-up)"
    parser = add_instrument(subparsers, "ramp", run, text)
    text = "CPU to measure, or all, one by one (default: the last one that perftop may use)"
    parser.add_argument("--cpu", type=parse_cpu_or_all, metavar="N|all", help=text)
    text = "instructions to execute; wide ones may lower the clock (default: scalar)"
    parser.add_argument("--isa", choices=("scalar", "avx2", "avx512"), default="scalar", help=text)
    text = "time for the five runs on a CPU, in seconds, 1 to 60 (default: 5)"
    seconds = stream_options.parse_number
    parser.add_argument("--seconds", type=seconds, default=5.0, metavar="S", help=text)


def parse_cpu_or_all(text: str) -> str:
    if text != "all" and re.fullmatch("[0-9]{1,6}", text) is None:
        raise argparse.ArgumentTypeError(f"invalid CPU {text!r} (try 0, or all)")
    return text


def run(args: argparse.Namespace) -> int:
    with machine.checked_answer(args):
        return measure(args, functools.partial(machine.ask_machine, args))


def measure(args: argparse.Namespace, ask: AskProbe) -> int:
    """Measures one CPU, or all CPUs in turn, and prints the results, with a chart of the slowest.
    Returns the exit status."""
    cpus: list[str | None] = [args.cpu]
    if args.cpu == "all":
        cpus = [str(row["cpu"]) for row in ask("topology")["cpus"] if row["online"]]
    measured, failed, interrupted = _measured_cpus(args, cpus, ask)
    answer, ramp = _slowest(measured)
    if args.json:
        import json

        results = [_json_object(answer, ramp) for answer, ramp in measured]
        failures = {str(cpu): reason for cpu, reason in failed.items()}
        all_results = {"cpus": results, "failed": failures}
        print(json.dumps(all_results if args.cpu == "all" else results[0]))
    else:
        unicode, colour = supports_unicode(), supports_colour(sys.stdout)
        size = shutil.get_terminal_size((80, 24))
        lines = report_lines(answer, ramp, size, unicode=unicode, colour=colour)
        if args.cpu == "all":
            table = table_lines(measured, failed)
            lines = [*(terminal_text(line, unicode=unicode) for line in table), "", *lines]
        print(*lines, sep="\n")
    return INTERRUPTED if interrupted else 0


def _measured_cpus(
    args: argparse.Namespace, cpus: list[str | None], ask: AskProbe
) -> tuple[MeasuredCpu, dict[int, str], bool]:
    """Measures each CPU in turn. Returns the results, the reasons for failures by CPU, and whether
    Ctrl-C ended the measurement. Raises the last failure if no CPU was measured."""
    from perftop.verbs.ramp_runs import summarise_runs

    measured: list[tuple[Answer, Ramp]] = []
    failed: dict[int, str] = {}
    last_error: BaseException = KeyboardInterrupt()
    interrupted = False
    for i, cpu in enumerate(cpus, 1):
        cpu_text = f"CPU {cpu}, {i} of {len(cpus)}, " if len(cpus) > 1 else ""
        show_progress(f"{cpu_text}{args.seconds:g} s …")
        cpu_option = [] if cpu is None else ["--cpu", cpu]
        try:
            answer = ask("ramp", *cpu_option, "--isa", args.isa, "--seconds", f"{args.seconds:g}")
        except Failed as error:
            if error.status == USAGE or cpu is None:
                raise
            last_error, failed[int(cpu)] = error, str(error)
            continue
        except KeyboardInterrupt:
            interrupted = True
            break
        finally:
            show_progress("")
        measured.append((answer, summarise_runs(answer)))
        if not args.json:
            drawn_answer, _ = _slowest(measured)
            for earlier_answer, _ in measured:
                if earlier_answer is not drawn_answer:
                    earlier_answer["runs"] = []  # the runs of a CPU take a megabyte
    if not measured:
        raise last_error
    return measured, failed, interrupted


def _slowest(measured: MeasuredCpu) -> tuple[Answer, Ramp]:
    return max(measured, key=lambda pair: pair[1].steady_s.high if pair[1].steady_s else math.inf)


def report_lines(
    answer: Answer, ramp: Ramp, size: os.terminal_size, *, unicode: bool, colour: bool
) -> list[str]:
    """Returns the report on a CPU, for a terminal of this size."""
    from perftop.verbs import ramp_chart
    from perftop.verbs.ramp_runs import median_run, phase_traces

    def safe(lines: Sequence[str]) -> list[str]:
        return [terminal_text(line, unicode=unicode) for line in lines]

    width = min(size.columns, MAX_WIDTH)
    rows = fact_rows(answer, ramp, width)
    words = wrap_indented(ramp_sentence(answer, ramp), width, 0)
    room = size.lines - len(rows) - len(words) - SCREEN_LINES
    height = max(MIN_CHART_LINES, min(room, MAX_CHART_LINES))
    chart: list[str] = []
    if ramp.climbs:
        shown_run = median_run(ramp)
        phases = phase_traces(answer, answer["runs"][shown_run])
        chart = ramp_chart.chart_lines(
            ramp, ramp.climbs[shown_run], phases, width, height, unicode=unicode, colour=colour
        )
    return [*safe([title_line(answer), ""]), *chart, *safe(["", *rows, "", *words])]


def _json_object(answer: Answer, ramp: Ramp) -> Answer:
    """Returns the results of a CPU, with the points of each run: seconds since the start of the
    load, and clock."""
    from dataclasses import asdict

    from perftop.verbs.ramp_runs import phase_traces

    line = {key: value for key, value in answer.items() if key != "runs"} | asdict(ramp)
    line["clock"] = "busy clock (cycles counter)" if is_counted(answer) else "probe clock"
    line["unit"] = "Hz" if unit_name(answer) == "GHz" else "steps/s"
    line["sentence"] = ramp_sentence(answer, ramp)
    for climb, run in zip(line["climbs"], answer["runs"], strict=True):
        climb["around"] = run["around"]
        climb["points"] = [
            [round(at_s, 7), round(hz)]
            for part in phase_traces(answer, run)
            for at_s, hz in zip(part.start_s.tolist(), part.hz.tolist(), strict=True)
        ]
    return line


# --- text


def is_counted(answer: Mapping[str, Any]) -> bool:
    """Returns whether cycles were counted; otherwise the clock is computed from the chain."""
    return answer["cycles_why"] is None


def unit_name(answer: Answer) -> str:
    """Returns the unit of the clock: GHz, or G steps/s of the chain if neither cycles were counted
    nor the cycles of a step are known."""
    return "GHz" if is_counted(answer) or answer["step_cycles"] else "G steps/s"


def title_line(answer: Answer) -> str:
    title_parts = [answer["host"] or "this machine", answer["model"] or "unknown CPU"]
    return " · ".join([*title_parts, f"CPU {answer['cpu']}", answer["isa"], unit_name(answer)])


def ramp_sentence(answer: Answer, ramp: Ramp) -> str:
    """Returns a sentence: how long to warm up the CPU, and with which confidence."""
    cpu, runs = f"CPU {answer['cpu']}", count_noun(len(ramp.climbs), "run")
    if ramp.steady_s is None or ramp.steady_hz is None:
        load = brief_duration(answer["phases"][0]["seconds"])
        text = f"No answer: the clock of {cpu} did not settle within {load}"
        if first := [climb.levels[0] for climb in ramp.climbs if climb.levels]:
            low, high = min(level.low_hz for level in first), max(level.high_hz for level in first)
            text += f", but went from {low / 1e9:.2f} to {high / 1e9:.2f} {unit_name(answer)}"
        return f"{text} in any of {runs}; try longer ones: --seconds."
    count, slowest_s = len(ramp.used), ramp.steady_s.high
    # rounded up to two significant digits
    step_s = 10.0 ** (math.floor(math.log10(slowest_s)) - 1) if slowest_s > 0 else 1.0
    warm_up = brief_duration(math.ceil(slowest_s / step_s - 1e-9) * step_s)
    text = f"Warm up {cpu} for {warm_up}: in {count} of {runs}"
    text += f" it was steady at {_steady_text(answer, ramp)} by then"
    if not ramp.is_clean:
        return f"{text}; low confidence: the runs were disturbed."
    confidence = 100 * ramp.confidence
    return f"{text}; {confidence:.0f} % confidence that the next run will be no slower."


def _steady_text(answer: Answer, ramp: Ramp) -> str:
    """Formats the steady clock with its error, the largest deviation of runs or of parts of a run,
    which also determines the number of decimals."""
    hz, error_hz = ramp.steady_hz or 0.0, ramp.error_hz or 0.0
    digits = 2 if error_hz >= 5e6 else 3
    error = max(error_hz / 1e9, 10.0**-digits)
    return f"{hz / 1e9:.{digits}f} ± {error:.{digits}f} {unit_name(answer)} (largest deviation)"


def fact_rows(answer: Answer, ramp: Ramp, width: int) -> list[str]:
    """Returns a table as lines: how the clock was measured, when it rose, its steady level,
    interruptions, and disturbances of the runs."""
    first_s = min((climb.first_s for climb in ramp.climbs), default=0.0)
    first = f"{ramp.first_hz / 1e9:.2f} {unit_name(answer)} in the first {brief_duration(first_s)}"
    steady_text = _range_text(ramp.steady_s)
    if ramp.steady_hz is not None:
        bursts_s = [ramp.climbs[i].bursts_s for i in ramp.used if ramp.climbs[i].bursts_s]
        steady_text += f": {_steady_text(answer, ramp)}"
        if bursts_s:
            longest = brief_duration(max(map(max, bursts_s)))
            runs = count_noun(len(bursts_s), "run")
            steady_text += f"; not held later in {runs}, for up to {longest}"
    rows = [
        *_source_rows(answer, ramp),
        ("first", first if is_counted(answer) else f"{first}, including cold caches"),
        ("90 %", f"{_range_text(ramp.t90_s)}; 99 % {_range_text(ramp.t99_s)}"),
        ("steady", steady_text),
    ]
    if ramp.scalar_hz is not None and ramp.steady_hz is not None and ramp.error_hz is not None:
        # the clock of wide code compared with scalar code, and the cost of switching
        isa, difference_hz = answer["isa"], abs(ramp.steady_hz - ramp.scalar_hz)
        is_same = difference_hz <= max(ramp.error_hz, MAX_SAME_DIFFERENCE * ramp.scalar_hz)
        change_percent = 100 * (ramp.steady_hz / ramp.scalar_hz - 1)
        change = "no different" if is_same else f"{signed(change_percent, 1)} %"
        scalar = f"scalar code runs at {ramp.scalar_hz / 1e9:.3f} {unit_name(answer)}"
        rows.append(("level", f"{scalar}: {isa} {change}"))
        if len(ramp.switch_s) == 2:
            back, lost = (brief_duration(seconds) for seconds in ramp.switch_s)
            cost = f"{lost} lost from scalar to {isa}, {back} back, in the first ms each"
            rows.append(("switch", cost))
    if len(ramp.used) > 1:
        halts = [
            f"{brief_duration(h.length_s)} at {brief_duration(h.at_s)} ({h.runs} runs)"
            for h in ramp.halts
        ]
        rows.append(("halts", "; ".join(halts) or "none recurred at the same place in most runs"))
    if ramp.climbs:
        rows.append(("gaps", _gap_text(ramp)))
    rows.append(("runs", _disturbance_texts(ramp)))
    if not answer["tsc"]["invariant"]:
        text = "not known to be invariant: if it follows the clock, all these numbers are wrong"
        rows.append(("TSC", text))
    if answer["virtualisation"]:
        text = "only idle time of this VM is visible; the host's CPU may have run other VMs"
        rows.append(("VM", text))
    return [line for name, text in rows for line in fact_lines(name, text, width, INDENT)]


def _range_text(times: Spread | None) -> str:
    if times is None:
        return "not reached"
    low, middle, high = map(brief_duration, (times.low, times.middle, times.high))
    return f"by {middle}" if low == high else f"by {middle} ({low} to {high})"


def _source_rows(answer: Answer, ramp: Ramp) -> list[tuple[str, str]]:
    """Returns rows: how the clock was measured, and why it may be wrong."""
    chain, cycles = "a chain of multiplications", answer["step_cycles"]
    if not is_counted(answer):
        unknown_text = f"how many cycles one takes on this CPU ({answer['uarch']}) is not known"
        text = f"{chain}, {cycles} cycles each, timed by the TSC"
        text = text if cycles else f"steps of {chain}; {unknown_text}"
        return [("probe clock", text), ("no counter", answer["cycles_why"])]
    text = "cycles counter, read by RDPMC"
    if ramp.steady_hz is not None and ramp.chain_hz:
        deviation = ramp.chain_hz / ramp.steady_hz - 1
        if not cycles:
            cycles_text = f"{ramp.steady_hz / ramp.chain_hz:.2f} cycles"
            text += f"; by it, each step of {chain} takes {cycles_text}"
        elif abs(deviation) <= MAX_CHAIN_DEVIATION:
            text += f"; {chain}, {cycles} cycles each, agrees to {abs(100 * deviation):.1f} %"
        else:
            chain_text = f"{ramp.chain_hz / 1e9:.2f} GHz, {signed(100 * deviation, 1)} %"
            reason = f"its steps do not take {cycles} cycles here, or the counter is wrong"
            text += f"; but {chain} shows {chain_text}: {reason}"
    return [("busy clock", text)]


_GAP_KINDS = (
    ("short", "of 5 to 60 µs", " (halts, interrupts)"),
    ("long", "longer", " (hypervisor, firmware, interrupts)"),
    ("preempted", "by other tasks", ""),
)
"""Kinds of gaps, their names, and their possible causes if cycles were not counted."""


def _gap_text(ramp: Ramp) -> str:
    """Returns the mean number of gaps per run, by kind. If cycles were counted, adds the number of
    gaps without cycles, which no interrupt or other task can have caused."""
    climbs = [ramp.climbs[i] for i in ramp.used] or ramp.climbs
    gaps: list[Gap] = [gap for climb in climbs for gap in climb.gaps]
    cycles_known = all(gap.halted is not None for gap in gaps)
    count = Counter(gap.kind for gap in gaps)
    mean_counts = {kind: round(count[kind] / len(climbs)) for kind in count}
    texts = [
        f"{mean_counts[kind]} {text}{'' if cycles_known else cause_text}"
        for kind, text, cause_text in _GAP_KINDS
        if mean_counts.get(kind)
    ]
    if not texts:
        return "fewer than one a run"
    text = f"a run: {', '.join(texts)}"
    if cycles_known:
        halted = round(sum(gap.halted is True for gap in gaps) / len(climbs))
        text += f"; {halted or 'none'} without cycles{', so no interrupts' if halted else ''}"
    return text


_DISTURBANCES: dict[str, tuple[str, Callable[[float], str]]] = {
    "idle": ("only {} idle before the run", whole_percent),
    "steal_s": ("the hypervisor took {}", brief_duration),
    "lost": ("halted for {}", whole_percent),
    "preempted": ("preempted {} times", "{:.0f}".format),
    "sibling": ("its sibling was busy for {}", whole_percent),
}
"""Text of each disturbance and format of its amount, by key of `Climb.disturbed`."""


def _disturbance_texts(ramp: Ramp) -> str:
    runs, omitted_count = len(ramp.climbs), len(ramp.climbs) - len(ramp.used)
    amounts: dict[str, list[float | None]] = {}
    for climb in ramp.climbs:
        for key, value in climb.disturbed.items():
            amounts.setdefault(key, []).append(value)
    texts = []
    for key, values in amounts.items():
        text, format_value = _DISTURBANCES[key]
        known_values = [value for value in values if value is not None]
        amount = "an unknown part"
        if known_values:
            low, high = format_value(min(known_values)), format_value(max(known_values))
            amount = low if low == high else f"{low} to {high}"
        texts.append(f"{text.format(amount)} (in {len(values)})")
    if wavering_runs := sum(not climb.is_usable for climb in ramp.climbs):
        texts.append(f"not steady (in {wavering_runs})")
    if not texts:
        return f"{runs} from idle, undisturbed"
    return f"{omitted_count} of {runs} left out: {'; '.join(texts)}"


# --- several CPUs


def table_lines(measured: MeasuredCpu, failed: Mapping[int, str]) -> list[str]:
    """Returns a table with a row for each CPU, or the reason if it failed, and lines that explain
    the terms."""
    rows = dict(failed)
    for answer, ramp in measured:
        hz = "n/a" if ramp.steady_hz is None else f"{ramp.steady_hz / 1e9:.3f}"
        error = "n/a" if ramp.error_hz is None else f"{max(1e-3, ramp.error_hz / 1e9):.3f}"
        row = f"{ramp.first_hz / 1e9:6.2f} {hz:>7} {error:>6}"
        for spread in (ramp.t90_s, ramp.t99_s, ramp.steady_s):
            row += f" {'n/a' if spread is None else brief_duration(spread.high):>8}"
        state = "" if ramp.is_clean else ", disturbed"
        rows[answer["cpu"]] = f"{row}  {len(ramp.used)} of {len(ramp.climbs)}{state}"
    last = unit_name(measured[-1][0])
    return [
        "  CPU  first  steady      ±     90 %     99 %   steady  runs",
        *(f"{cpu:>5} {rows[cpu]}" for cpu in sorted(rows)),
        f"Times are the slowest run's; steady is within 2 %, but for bursts; clocks in {last}.",
        "±: the largest deviation of runs, or of parts of a run.",
    ]

"""`perftop wake`: shows the cost of a wake-up of an idle CPU, and its effect on a program."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from perftop.base.text import describe_machine as machine_text
from perftop.base.text import percent, whole_percent, wrap_indented
from perftop.verbs import machine
from perftop.verbs.machine import Answer, add_instrument

WAKE_UP_RATES = (100, 1_000, 10_000)
"""Wake-ups per second for which the cost is shown."""
MIN_IDLE_SHARE = 0.8
"""Minimum share of the wake-ups that must find the CPU idle; with less, a note is shown."""
_COST_KEYS = ("median_us", "p95_us", "p99_us", "most_us")


def add(verbs: Any) -> None:
    text = "what a wake-up costs on this CPU, by idle state, and from where"
    parser = add_instrument(verbs, "wake", run, text)
    text = "measure on this CPU (default: the last one allowed)"
    parser.add_argument("--cpu", type=int, metavar="N", help=text)


def run(args: argparse.Namespace) -> int:
    return machine.answer(args, draw, "wake", *machine.cpu_option(args))


def draw(answer: Answer, width: int = 100, *, unicode: bool = True) -> list[str]:
    width, rows = max(width, machine.MIN_WIDTH), answer["rows"]
    lines = [*wrap_indented(sentence(answer), width, 0), ""]
    head = "".join(f"{name:>7}" for name in ("median", "95 %", "99 %", "most"))
    lines.append(f"{'woken by':<12}{'deepest state':<14}{head}  in us")
    for row in rows:
        cells = "".join(f"{row[key]:>7.{1 if row[key] < 1000 else 0}f}" for key in _COST_KEYS)
        state = (row["deepest"] or "as it is")[:13]
        bars = machine.bar_line(row["histogram"]["counts"], unicode=unicode)
        line = f"{row['kind']:<12}{state:<14}{cells}  {bars}"
        lines.append(line.rstrip())
    costs = [
        f"{rate:,} a second: {percent(min(1.0, rate * rows[0]['median_us'] / 1e6))} %"
        for rate in WAKE_UP_RATES
    ]  # shares of its time that a program spends on wake-ups by a timer
    text = "A program that waits for each wake-up waits so much of its time"
    lines += ["", *wrap_indented(f"{text}: {', '.join(costs)}.", width, 2), ""]
    for note in _note_lines(answer):
        lines += wrap_indented(note, width, 2)
    lines += machine.disturbances(answer, width)
    source_text = f"measured on CPU {answer['cpu']} in {answer['elapsed_s']:.1f} s"
    return [*lines, "", *wrap_indented(" · ".join([*machine_text(answer), source_text]), width, 0)]


def sentence(answer: Answer) -> str:
    """Returns one sentence on the cost of a wake-up in the present state of the machine."""
    costs = {row["kind"]: row["median_us"] for row in answer["rows"] if row["deepest"] is None}
    parts = [f"{cost:.0f} us by {'a timer' if kind == 'timer' else kind}"
             for kind, cost in costs.items()]  # fmt: skip
    return f"A wake-up of CPU {answer['cpu']} takes {' and '.join(parts)} (median)."


def _note_lines(answer: Answer) -> Iterator[str]:
    idle = [min(1.0, row["idle_entries"] / row["samples"]) for row in answer["rows"]]
    if answer["states"] and min(idle) < MIN_IDLE_SHARE:
        yield (
            f"CPU {answer['cpu']} was idle before {whole_percent(min(idle))} of the wake-ups of a"
            " row: other tasks ran there, and these costs hold the time of waiting for them."
            " Repeat it at rest."
        )
    if answer["virtualisation"] is not None:
        yield (
            "This is a VM: a halt returns to the hypervisor, whose time to start the VM again is in"
            " these costs. The states of the real CPU are not visible here."
        )
    if answer["states_why"]:
        yield f"States were not held one by one: {answer['states_why']}."
    elif answer["states"]:
        names = [f"{state['name']} ({state['latency_us']} us)" for state in answer["states"]]
        yield (
            f"Idle states, with the latency that their driver states: {', '.join(names)}. To keep"
            " CPUs from deep ones: cpupower idle-set -D LATENCY, or a PM QoS request."
        )
    if answer["waker_why"]:
        yield f"No wake-up from another CPU: {answer['waker_why']}."
    yield (
        f"The CPU sleeps {1000 * answer['pause_s']:g} ms before each. The cost has the way out of"
        " the idle state, the interrupt, the scheduler and the return to the program."
    )

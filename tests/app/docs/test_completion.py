"""Completions contain all names, and shells accept the scripts."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from roots import ROOT
from waiting import MAX_WAIT_S

from perfprobe import stream_options
from perfprobe.perf.event_catalogue import CACHE_EVENTS, HARDWARE_EVENTS, SOFTWARE_EVENTS
from perfprobe.sources.sim.machine import SCENARIOS
from perftop import cli
from perftop.docs import command_line
from perftop.docs.command_line import described_verbs, names_in_table
from perftop.model.kinds import KINDS
from perftop.output.export.fields import MEASURES

COMPLETIONS = {
    "perftop sta": "stat",
    "perftop --pr": "--print-completion",
    "perftop --sou": "--source",
    "perftop stat --source sim:tu": "sim:turbo-drop",
    "perftop export x --metrics util,bus": "util,busy_hz",
    "perftop stat -e cycles,page-f": "cycles,page-faults",
    "perftop record --on ram": "ramp",
    "perftop demo gu": "guest",
    "perftop help gl": "glossary",
    "perftop stat -- ech": "echo",
    "perftop export --format p": "parquet",
    "perftop replay README.m": "README.md",
    "perftop stat -i ": "",
}
"""Typed lines, each with the word to which a shell completes it."""


def test_all_names_can_be_completed() -> None:
    assert set(names_in_table("numbers", "key")) == {
        field.key for field in MEASURES if field.kind != "count"
    } - {"counted"}
    catalogue = (*SOFTWARE_EVENTS, *HARDWARE_EVENTS, *CACHE_EVENTS)
    assert set(names_in_table("events", "event")) == {event.name for event in catalogue}
    assert set(names_in_table("episodes", "kind")) == set(KINDS)
    assert set(names_in_table("sim", "scenario")) == set(SCENARIOS)
    assert set(names_in_table("sources", "method")) == {*stream_options.SMT_METHODS, "single"}


def test_all_scripts_have_all_options() -> None:
    scripts = {shell: command_line.completion_script(shell, cli._parser()) for shell in cli.SHELLS}
    for verb in described_verbs(cli._parser()):
        for option in verb.options:
            for shell, text in scripts.items():
                for name in option.names:
                    expected = name
                    if shell == "fish":
                        expected = f"-l {name[2:]} " if name.startswith("--") else f"-s {name[1:]} "
                    assert expected in text, (shell, verb.name, name)


def test_fish_offers_the_events_of_the_pmu_only_as_events() -> None:
    lines = command_line.completion_script("fish", cli._parser()).splitlines()
    events, metrics = (
        next(line for line in lines if "__perftop_verb stat" in line and f"-l {name} " in line)
        for name in ("events", "metrics")
    )
    assert "page-faults" in events
    assert "$__perftop_pmu" in events
    assert "(__perftop_list util busy_hz" in metrics
    assert "$__perftop_pmu" not in metrics


@pytest.mark.parametrize("shell", cli.SHELLS)
def test_shells_use_the_completions(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    text = command_line.completion_script(shell, cli._parser())
    if shell == "zsh":  # zsh completes in interactive shells only; the script must at least parse
        subprocess.run([shell, "-n"], input=text, text=True, check=True, timeout=MAX_WAIT_S)
        return
    given = text + _ASK[shell] + "\n".join(f"ask '{typed}'" for typed in COMPLETIONS)
    subprocess.run([shell], input=given, text=True, check=True, timeout=MAX_WAIT_S, cwd=ROOT)
    assert capfd.readouterr().out.splitlines() == [f"[{word}]" for word in COMPLETIONS.values()]


_ASK = {
    "bash": """
ask() {
  COMP_LINE="$1" COMP_POINT=${#1}
  read -ra COMP_WORDS <<<"$1"
  [[ $1 == *" " ]] && COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_WORDBREAKS=
  compopt() { :; }
  _perftop
  echo "[${COMPREPLY[*]}]"
}
""",
    "fish": """
function ask
    set -l found (complete -C $argv[1] | string replace -r '\\t.*' '')
    echo "[$found]"
end
""",
}
"""Shell code that prints the completions of a typed line."""

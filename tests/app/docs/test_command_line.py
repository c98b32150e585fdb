"""Man pages and completions of the command line, and the programs that read them."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from roots import ROOT
from waiting import MAX_WAIT_S

from perfprobe import __version__, stream_options
from perfprobe.perf.event_catalogue import CACHE_EVENTS, HARDWARE_EVENTS, SOFTWARE_EVENTS
from perfprobe.sources.sim.machine import SCENARIOS
from perftop import cli
from perftop.docs import command_line
from perftop.docs.command_line import described_verbs, names_in_table
from perftop.docs.page import parse_blocks, topics
from perftop.model.kinds import KINDS
from perftop.output.export.fields import MEASURES


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return command_line.man_pages(cli._parser(), "1.2.3", "2026-11-23")


def test_all_verbs_and_pages_have_a_man_page(pages: dict[str, str]) -> None:
    results = {f"perftop-{verb.name}.1" for verb in described_verbs(cli._parser())[1:]}
    results |= {f"perftop-{topic}.7" for topic in topics()} | {"perftop.1"}
    assert set(pages) == results


def test_all_options_are_explained(pages: dict[str, str]) -> None:
    for verb in described_verbs(cli._parser()):
        text = pages[f"perftop-{verb.name}.1" if verb.name else "perftop.1"]
        for option in verb.options:
            for name in option.names:
                assert f"\\fB{name.replace('-', chr(92) + '-')}\\fR" in text, (verb.name, name)


def test_arguments_become_requests_for_pages() -> None:
    text = "# Title\n\n.dot `a-b` **c** …\n\n- one\n\n| a | b |\n|---|---|\n| `x` | y |\n"
    lines = [line for block in [*parse_blocks(text)][1:] for line in command_line._block(block)]
    assert lines == [
        ".PP", "\\&.dot \\fBa\\-b\\fR \\fBc\\fR ...", ".IP \\(bu 2", "one",
        ".PP", ".TP", "\\fBx\\fR", "y",
    ]  # fmt: skip


@pytest.mark.parametrize("reader", ["mandoc -Tlint -W warning", "groff -man -t -wall -z -Tutf8"])
def test_man_page_readers_report_no_errors(
    reader: str, tmp_path: Path, pages: dict[str, str]
) -> None:
    words = reader.split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]} here")
    for name, text in pages.items():
        assert text.isascii()
        (tmp_path / name).write_text(text)
    result = subprocess.run(
        [*words, *sorted(pages)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    message = [line for line in (result.stdout + result.stderr).splitlines() if "break" not in line]
    assert not message  # except for long names in narrow table columns


def test_the_parser_needs_no_libraries() -> None:
    """Wheels are built with setuptools and cffi only."""
    code = "from perftop import cli; cli._parser()"
    paths = [str(ROOT / "app"), str(ROOT / "probe")]
    given = f"import sys; sys.path[:0] = {paths!r}; {code}"
    subprocess.run([sys.executable, "-S", "-c", given], check=True, timeout=MAX_WAIT_S)


def test_the_wheel_contains_pages_and_scripts(
    monkeypatch: pytest.MonkeyPatch, pages: dict[str, str]
) -> None:
    """The wheel has them in the directories below the prefix that man and shells search."""
    pytest.importorskip("setuptools")
    monkeypatch.syspath_prepend(str(ROOT))
    module = importlib.import_module("app.build_manual")
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = module.files("1.2.3", "2026-11-23")
    assert {"share/man/man1/perftop.1", *module.COMPLETIONS.values()} <= result.keys()
    assert result["share/man/man7/perftop-why.7"] == pages["perftop-why.7"]
    assert all(result.values())


def test_the_version_contains_the_built_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The build writes the commit to a file in the package; without that file, the commit of the
    source tree is used."""
    pytest.importorskip("setuptools")
    head = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=False).stdout
    if not commit:
        pytest.skip("not a clone")
    monkeypatch.syspath_prepend(str(ROOT))
    assert importlib.import_module("app.build_manual").commit() == commit

    def printed_version() -> str:
        with pytest.raises(SystemExit):
            cli.main(["--version"])
        return capsys.readouterr().out

    assert printed_version() == f"perftop {__version__} ({commit.strip()})\n"
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "perftop" / "cli.py"))
    assert printed_version() == f"perftop {__version__}\n"
    (tmp_path / "perftop").mkdir()
    (tmp_path / "perftop" / "COMMIT").write_text("0123abcd\n")
    assert printed_version() == f"perftop {__version__} (0123abcd)\n"


def test_the_source_archive_contains_all_tracked_files(monkeypatch: pytest.MonkeyPatch) -> None:
    dist = pytest.importorskip("setuptools").dist
    kept = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if kept.returncode != 0:
        pytest.skip("not a clone")
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.chdir(ROOT)
    module = importlib.import_module("app.build_manual")
    result = module.build_py(dist.Distribution()).get_source_files()
    by_setuptools = {"LICENSE", "README.md", "pyproject.toml"}
    assert set(kept.stdout.splitlines()) <= {*result, *by_setuptools}
    assert not any(path.endswith(".pyc") for path in result)


# --- completions


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

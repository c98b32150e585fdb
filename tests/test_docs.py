"""README and pages are correct: commands are valid, examples print the output shown, links have
targets, and every number, scenario and verb is documented."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path

import examples
import make
import pytest
import textual
from nightly import cases_by_day
from roots import ROOT
from shown_output import TEXTS, shown_texts

from perfprobe.sources.sim.machine import SCENARIOS
from perftop import cli
from perftop.cli import GENERAL_OPTIONS, add_default_verb, split_command
from perftop.docs import page
from perftop.model.numbers import METRICS

README = TEXTS["README"].read_text(encoding="utf-8")
ALL_TEXT = "\n".join(path.read_text(encoding="utf-8") for path in TEXTS.values())
DAILY_PICTURES = ("guest", "overview", "table", "remote", "fleet")
"""Pictures that are compared by day; the others are compared at night."""
PICTURED = "8.2.8"
FOREIGN_FLAGS = {"--from", "--no-deps", "--idle", "--all-tasks", "--pid"}
"""Flags of perfprobe or other programs that the texts name."""
OTHER_PAGES = [ROOT / "app/README.md", ROOT / ".github/CONTRIBUTING.md", ROOT / "app/CHANGELOG.md"]
MAX_README_LINES = 160
MAX_PAGE_LINES = 250
"""Maximum number of lines, because nobody reads long pages."""


def parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    found = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found += [p for sub in action.choices.values() for p in parsers(sub)]
    return found


def flags() -> set[str]:
    return {
        option
        for parser in parsers(cli._parser())
        for action in parser._actions
        for option in action.option_strings
    }


def named_flags(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


def test_every_flag_that_is_named_exists() -> None:
    named = named_flags(ALL_TEXT)
    assert named
    assert named <= flags() | FOREIGN_FLAGS


@pytest.mark.parametrize("name", examples.documents())
def test_every_command_is_understood(name: str) -> None:
    """Includes commands that tests/test_examples.py runs only at night, or cannot run."""
    for line in examples.lines(examples.documents()[name]):
        program, *typed = shlex.split(re.split(r" [|>] (?!.*')", line)[0])
        given, command = split_command(typed)
        words = add_default_verb(given, command, screen=True)
        if program != "perftop" or words[0] in GENERAL_OPTIONS or words == ["VERB", "--help"]:
            continue
        cli._parse_arguments(words, command)


@pytest.mark.parametrize(
    ("line", "printed"), shown_texts(ALL_TEXT), ids=lambda text: text.splitlines()[0]
)
def test_examples_print_the_output_shown(
    line: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(shlex.split(line)[1:]) == 0
    assert capsys.readouterr().out == printed


def test_the_extractors_find_examples() -> None:
    assert len(shown_texts(README)) == 2


def test_the_moving_picture_shows_each_frame_once_and_is_small() -> None:
    picture = ROOT / "screenshots" / "moving.svg"
    assert picture.stat().st_size <= 400_000
    moments = next(one.moments for one in make.PICTURES if one.name == "moving")
    text = picture.read_text(encoding="utf-8")
    delays = re.findall(r'<g class="f" style="animation-delay:(\d+)s">', text)
    assert [int(delay) for delay in delays] == [make.FRAME_S * n for n in range(len(moments))]
    assert f"animation:f {make.FRAME_S * len(moments)}s" in text


def test_the_front_page_is_short() -> None:
    assert len(README.splitlines()) <= MAX_README_LINES


def test_the_extractor_finds_flags() -> None:
    """If the extractor found nothing, the test above would always pass."""
    assert named_flags("use `--json`, not a--b or --Big") == {"--json"}
    assert {"--json", "--interval", "-i", "--source"} <= flags()


def test_every_metric_is_explained() -> None:
    for key in METRICS:
        assert f"`{key}`" in TEXTS["numbers"].read_text(encoding="utf-8"), key


def test_every_scenario_is_named() -> None:
    text = TEXTS["sim"].read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE) == list(SCENARIOS)


def test_the_glossary_has_the_words_of_the_screen() -> None:
    text = TEXTS["glossary"].read_text(encoding="utf-8")
    words = re.findall(r"^\*\*([^*]+)\*\*", text, re.MULTILINE)
    for word in ("busy clock", "net clock", "ceiling", "involuntary halt", "four states", "suspect",
                 "steal", "halted", "waits", "own", "dropped frames", "mark"):  # fmt: skip
        assert word in words
    assert len(words) == len(set(words))


@pytest.mark.parametrize("path", [*TEXTS.values(), *OTHER_PAGES], ids=lambda path: path.name)
def test_links_have_targets(path: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).is_file(), target


@pytest.mark.parametrize("topic", page.topics())
def test_a_page_is_short(topic: str) -> None:
    lines = page.page_lines(page.read_page(topic), 80, colour=False, unicode=True)
    assert len(lines) <= MAX_PAGE_LINES


def test_readme_names_every_page() -> None:
    assert set(re.findall(r"\(app/perftop/docs/([a-z-]+)\.md\)", README)) == set(page.topics())


@pytest.mark.parametrize("name", sorted(set(re.findall(r"screenshots/[a-z0-9.-]+", ALL_TEXT))))
def test_each_linked_picture_exists(name: str) -> None:
    assert (ROOT / name).read_bytes().startswith(b"<svg")


def test_readme_has_every_verb_of_the_help() -> None:
    for parser in parsers(cli._parser())[1:]:
        verb = parser.prog.split()[-1]
        assert verb == "live" or re.search(rf"perftop {verb}\b", README), verb


@pytest.mark.parametrize("name", cases_by_day([one.name for one in make.PICTURES], DAILY_PICTURES))
def test_pictures_are_current(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python screenshots/make.py` changes no picture. The version of Textual is fixed."""
    if textual.__version__ != PICTURED:
        pytest.skip(f"drawn with Textual {PICTURED}, here is {textual.__version__}")
    for variable in ("COLORTERM", "NO_COLOR"):  # restored at the end, because the script sets them
        monkeypatch.setenv(variable, "")
    monkeypatch.setattr(sys, "argv", ["make.py", "--check", name])
    assert (make.main(), capsys.readouterr().out) == (0, "")


def test_the_architecture_page_names_every_folder() -> None:
    """The picture of app/README.md has exactly the folders of the packages."""
    page = (ROOT / "app" / "README.md").read_text(encoding="utf-8")
    for package in ("app/perftop", "probe/perfprobe"):
        picture = page.partition(f"{package}/\n")[2].partition("\n\n")[0].partition("```")[0]
        drawn = set(re.findall(r"(?<![\w/])([a-z_]+)/", picture))
        there = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
        assert drawn == there

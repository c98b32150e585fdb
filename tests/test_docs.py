"""The README is true: its flags, keys, scenarios, commands and pictures exist."""

from __future__ import annotations

import argparse
import re
import runpy
import sys

import pytest
import textual
from roots import ROOT

from perfprobe.sources.sim.spec import SCENARIOS
from perftop import cli
from perftop.samples.metrics import METRICS

README = (ROOT / "README.md").read_text(encoding="utf-8")
PICTURED = "8.2.8"
OTHERS = {"--duration"}
"""Flags of other programs, or of perfprobe, that the README names too."""


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


def test_every_flag_that_readme_names_exists() -> None:
    named = named_flags(README)
    assert named
    assert named <= flags() | OTHERS


def test_the_extractor_finds_flags() -> None:
    """A guard whose extractor finds nothing passes everything."""
    assert named_flags("use `--json`, not a--b or --Big") == {"--json"}
    assert {"--json", "--interval", "-i", "--source"} <= flags()


def test_every_metric_is_explained() -> None:
    for key in METRICS:
        assert f"`{key}`" in README, key


def test_every_scenario_is_named() -> None:
    section = README.partition("## The simulated machine")[2].partition("\n## ")[0]
    for scenario in SCENARIOS:
        assert f"`{scenario}`" in section, scenario


def test_verbs_in_readme_are_verbs() -> None:
    verbs = {p.prog.split()[-1] for p in parsers(cli._parser())[1:]}
    named = set(re.findall(r"^perftop ([a-z]+)", README, re.MULTILINE))
    assert named
    assert named <= verbs


@pytest.mark.parametrize("name", re.findall(r"\]\((screenshots/[^)]+)\)", README))
def test_pictures_are_there(name: str) -> None:
    begins = b"\x89PNG" if name.endswith(".png") else b"<svg"
    assert (ROOT / name).read_bytes().startswith(begins)


def test_help_has_no_verb_that_readme_keeps_silent_about() -> None:
    for parser in parsers(cli._parser())[1:]:
        verb = parser.prog.split()[-1]
        assert verb == "live" or f"perftop {verb}" in README, verb


def test_pictures_are_current(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python screenshots/make.py` would change none. They are pictures of one Textual."""
    if textual.__version__ != PICTURED:
        pytest.skip(f"drawn with Textual {PICTURED}, here is {textual.__version__}")
    for name in ("COLORTERM", "NO_COLOR"):  # it sets them, and they are to be as before
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "argv", ["make.py", "--check"])
    make = runpy.run_path(str(ROOT / "screenshots/make.py"))
    assert (make["main"](), capsys.readouterr().out) == (0, "")


def test_the_architecture_page_names_every_folder() -> None:
    """Each folder of the packages stands in the picture of app/README.md, and no other does."""
    page = (ROOT / "app" / "README.md").read_text(encoding="utf-8")
    for package in ("app/perftop", "probe/perfprobe"):
        picture = page.partition(f"{package}/\n")[2].partition("\n\n")[0].partition("```")[0]
        drawn = set(re.findall(r"(?<![\w/])([a-z_]+)/", picture))
        there = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
        assert drawn == there

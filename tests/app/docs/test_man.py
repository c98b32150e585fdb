"""Man pages: one for each verb and help page, without warnings of the programs that read them."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from roots import ROOT
from waiting import MAX_WAIT_S

from perfprobe import __version__
from perftop import cli
from perftop.docs import command_line
from perftop.docs.command_line import described_verbs
from perftop.docs.page import parse_blocks, topics


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

"""Pages: from Markdown to blocks, and from blocks to lines of a terminal."""

from __future__ import annotations

import pytest

from perftop import cli
from perftop.docs import page as pages
from perftop.docs.command_line import described_verbs
from perftop.docs.page import Page, parse_blocks, read_page, split_cells, topics

TEXT = """# Title: what it is about

One `a b` and
**two**, [three](three.md).

## Part

- first
  goes on
- second

| key | what it is |
|---|---|
| `a|b` | long words that need more than one line |

```
kept   as it is
```

![left out](picture.svg)
"""


def page_lines(width: int = 40, *, colour: bool = False) -> list[str]:
    page = Page("topic", "Title", tuple(parse_blocks(TEXT))[1:])
    return pages.page_lines(page, width, colour=colour, unicode=True)


def test_markdown_is_parsed_into_blocks() -> None:
    results = [(block.kind, block.lines[0]) for block in parse_blocks(TEXT)]
    assert results == [
        ("heading", "Title: what it is about"),
        ("paragraph", "One `a b` and **two**, [three](three.md)."),
        ("heading", "Part"),
        ("item", "first goes on"),
        ("item", "second"),
        ("table", "| key | what it is |"),
        ("code", "kept   as it is"),
    ]
    assert split_cells("| `a|b` | c |") == ["`a|b`", "c"]


def test_blocks_are_rendered_as_lines() -> None:
    assert page_lines() == [
        "Title",
        "",
        "  One `a b` and two, three.",
        "",
        "Part",
        "",
        "  - first goes on",
        "  - second",
        "",
        "  key    what it is",
        "  --------------------------------------",
        "  `a|b`  long words that need more than",
        "         one line",
        "",
        "    kept   as it is",
    ]


def test_colour_replaces_markup() -> None:
    assert page_lines(colour=True)[2] == (
        f"  One {pages.CODE}a b{pages.RESET} and {pages.BOLD}two{pages.RESET}, three."
    )


@pytest.mark.parametrize("topic", topics())
def test_all_pages_fit_an_ordinary_terminal(topic: str) -> None:
    page = read_page(topic)
    code = {line for block in page.blocks if block.kind == "code" for line in block.lines}
    for line in pages.page_lines(page, 80, colour=False, unicode=True):
        assert len(line) <= 80 or line.strip() in {each.strip() for each in code}, line


def test_help_of_a_verb_has_its_description() -> None:
    choices = cli._parser().get_default("verbs")
    for verb in described_verbs(cli._parser())[1:]:
        usage, message, *_ = choices[verb.name].format_help().split("\n\n")
        assert " ".join(message.split()) == verb.parser.description != ""
        assert usage.endswith("[-- CMD [ARG ...]]") is bool(verb.parser.get_default("runs"))


def test_help_lists_pages_and_accepts_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n  {topic} " in listed for topic in topics())
    assert cli.main(["help", "stat"]) == 0
    assert capsys.readouterr().out.startswith("usage: perftop stat")
    assert cli.main(["help", "glosary"]) == 2
    assert "did you mean glossary?" in capsys.readouterr().err
    assert cli.main(["help", "PROCHOT"]) == 2
    assert "unknown page 'PROCHOT'; see episodes, glossary" in capsys.readouterr().err

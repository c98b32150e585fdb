"""Compares the words of the idle program with its listing."""

from __future__ import annotations

import re

import pytest
from bpf_listing import MAP, listing
from roots import ROOT

CSRC = ROOT / "probe/csrc"


def words() -> list[int]:
    table = (CSRC / "idle_program.c").read_text().partition("words[] = {")[2].partition("}")[0]
    return [int(word, 16) for word in re.findall("0x[0-9a-f]{16}", table)]


def listed() -> tuple[list[str], dict[int, str]]:
    """The instructions of the listing, and its labels by the number of a word."""
    lines, labels, number = list[str](), dict[int, str](), 0
    for text in (CSRC / "idle_program.s").read_text().splitlines():
        line = text.partition(";")[0].strip()
        if line.endswith(":"):
            labels[number] = line[:-1]
        elif line:
            lines.append(line)
            number += 2 if line.endswith("= map") else 1
    return lines, labels


def test_words_match_the_listing() -> None:
    lines, labels = listed()
    assert listing(words(), labels) == lines
    assert set(labels.values()) <= set(re.findall(r"goto (\w+)", "\n".join(lines)))


@pytest.mark.parametrize(("name", "holds"), [("CPU_MAP", "= map"), ("CORE_MAP", "= map"),
                                             ("SWAPS", "r1 = 8")])  # fmt: skip
def test_words_completed_by_the_loader_exist(name: str, holds: str) -> None:
    (number,) = re.findall(rf"\b{name} = ([0-9]+)", (CSRC / "idle_program.c").read_text())
    program, (_, labels) = words(), listed()
    before = sum(word & 0xFF == MAP for word in program[: int(number)])
    assert listing(program, labels)[int(number) - before].endswith(holds)


def test_a_wrong_word_is_detected() -> None:
    lines, labels = listed()
    for number in (0, 10, 30, 98):
        other = [word ^ (1 << 8) * (at == number) for at, word in enumerate(words())]
        assert listing(other, labels) != lines

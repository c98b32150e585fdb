"""Compares the words of the idle program with its listing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pytest
from roots import ROOT

CSRC = ROOT / "probe/csrc"
SIZES = {0x00: "u32", 0x18: "u64"}
ALU = {0x00: "+=", 0x10: "-=", 0x40: "|=", 0x50: "&=", 0x60: "<<=", 0x70: ">>=", 0xA0: "^=",
       0xB0: "="}  # fmt: skip
JUMPS = {0x10: "==", 0x30: ">=", 0x40: "&", 0x50: "!=", 0xA0: "<"}
CALLS = {1: "map_lookup_elem", 5: "ktime_get_ns"}
ATOMIC = {
    0x00: "lock *(u64 *)({to}) += {src}",
    0x50: "lock *(u64 *)({to}) &= {src}",
    0xE1: "{src} = xchg_64({to}, {src})",
    0xF1: "r0 = cmpxchg_64({to}, r0, {src})",
}
EXIT, CALL, GOTO, MAP = 0x95, 0x85, 0x05, 0x18


def sign_extended(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def place(register: int, offset: int) -> str:
    return f"r{register} {'-' if offset < 0 else '+'} {abs(offset)}"


def listing(words: Sequence[int], labels: Mapping[int, str]) -> list[str]:
    """A line for each instruction, in the syntax of LLVM's assembler. `labels` are the names of
    jump targets, by instruction number. Only instructions of the idle program are decoded."""
    lines = []
    numbers = iter(range(len(words)))
    for number in numbers:
        word = words[number]
        code, dst, src = word & 0xFF, word >> 8 & 0xF, word >> 12 & 0xF
        offset, constant = sign_extended(word >> 16 & 0xFFFF, 16), sign_extended(word >> 32, 32)
        kind, operation = code & 0x07, code & 0xF0
        operand = f"r{src}" if code & 0x08 else str(constant)
        if code == EXIT:
            lines.append("exit")
        elif code == CALL:
            lines.append(f"call {CALLS[constant]}")
        elif code == GOTO:
            lines.append(f"goto {labels[number + 1 + offset]}")
        elif code == MAP:
            lines.append(f"r{dst} = map" if src == 1 else f"r{dst} = {constant} ll")
            assert words[next(numbers)] == 0, "it takes two words"
        elif kind == 7:
            lines.append(f"r{dst} {ALU[operation]} {operand}")
        elif kind in {5, 6}:
            name = f"{'r' if kind == 5 else 'w'}{dst}"
            lines.append(
                f"if {name} {JUMPS[operation]} {operand} goto {labels[number + 1 + offset]}"
            )
        elif kind == 1:
            lines.append(f"r{dst} = *({SIZES[code & 0x18]} *)({place(src, offset)})")
        elif code & 0xE0 == 0x60:
            lines.append(f"*({SIZES[code & 0x18]} *)({place(dst, offset)}) = r{src}")
        else:
            assert code == 0xDB, hex(code)
            lines.append(ATOMIC[constant & 0xFF].format(to=place(dst, offset), src=f"r{src}"))
    return lines


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

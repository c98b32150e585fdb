"""The cells of a terminal, by what is written to it."""

from __future__ import annotations

import re

from rich.cells import cell_len

_PIECES = re.compile(
    r"\x1b\[(\d+);(\d+)H|\x1b\[(\d+)([P@])|\x1b\[([0-9;]*)m"
    r"|\x1b\][^\x07]*\x07|\x1b\[[0-9;?]*[A-Za-z]|([^\x1b\n]+)"
)
Cell = tuple[str, str, str, frozenset[int]]
"""A sign, the colours of its letter and its ground, and its other attributes."""
BLANK: Cell = (" ", "", "", frozenset())


class Cells:
    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], Cell] = {}
        """By line and column; blank where nothing was written."""

    def write(self, data: str, columns: int) -> None:
        """Writes to a terminal of so many columns."""
        x = y = 0
        style = BLANK[1:]
        for found in _PIECES.finditer(data):
            if found[1]:
                y, x = int(found[1]) - 1, int(found[2]) - 1
            elif found[3]:
                self._move(x, y, int(found[3]) * (-1 if found[4] == "P" else 1), columns)
            elif found[5] is not None:
                style = _styled(style, found[5])
            for sign in found[6] or "":
                self._cells[y, x] = (sign, *style)
                x += cell_len(sign)

    def _move(self, x: int, y: int, by: int, columns: int) -> None:
        """Deletes cells where `by` is negative, else inserts blanks."""
        before = {at: self._cells.get((y, at), BLANK) for at in range(x, columns)}
        for at in range(x, columns):
            self._cells[y, at] = before.get(at - by, BLANK)

    def lines(self, columns: int, lines: int) -> list[str]:
        return ["".join([cell[0] for cell in self.cells(columns, y)]) for y in range(lines)]

    def cells(self, columns: int, y: int) -> list[Cell]:
        """The cells of a line."""
        return [self._cells.get((y, x), BLANK) for x in range(columns)]

    def looks(self, columns: int, y: int) -> list[tuple[str, ...]]:
        """What is seen of them: of a blank only its ground."""
        return [cell[:3] if cell[0] != " " else (" ", cell[2]) for cell in self.cells(columns, y)]


def _styled(style: tuple[str, str, frozenset[int]], codes: str) -> tuple[str, str, frozenset[int]]:
    """The style after a sequence that switches it."""
    fore, ground, others = style
    left = [int(code or 0) for code in codes.split(";")]
    while left:
        code = left.pop(0)
        if code == 0:
            fore, ground, others = "", "", frozenset()
        elif code in {38, 48}:
            count = 4 if left[0] == 2 else 2
            colour, left = str(left[:count]), left[count:]
            fore, ground = (colour, ground) if code == 38 else (fore, colour)
        elif code // 10 in {3, 9}:
            fore = str(code)
        elif code // 10 in {4, 10}:
            ground = str(code)
        else:
            others |= {code}
    return fore, ground, others

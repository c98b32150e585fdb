"""A probe far away that answers no echo by itself."""

from __future__ import annotations


class Far:
    def __init__(self) -> None:
        self.asked: list[int] = []

    def echo(self, number: int) -> None:
        self.asked.append(number)

    def start(self) -> None: ...

    def end(self) -> None: ...

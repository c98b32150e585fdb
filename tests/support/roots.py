"""Paths of the project and of the data of its tests."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
SUPPORT = TESTS / "support"
DATA = TESTS / "data"
ROOT = TESTS.parent

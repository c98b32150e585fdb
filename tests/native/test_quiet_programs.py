"""The C programs that need a quiet CPU."""

from __future__ import annotations

import c_programs
import pytest

pytestmark = pytest.mark.machine


@pytest.mark.parametrize(("cc", "build", "program"), c_programs.cases(c_programs.QUIET))
def test_program(
    tmp_path_factory: pytest.TempPathFactory, cc: str, build: str, program: str
) -> None:
    c_programs.succeeds(cc, build, program, tmp_path_factory.getbasetemp())

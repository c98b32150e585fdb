"""Every C program here passes in every build."""

from __future__ import annotations

import c_programs
import pytest


@pytest.mark.parametrize(("cc", "build", "program"), [*c_programs.cases()])
def test_c_program_succeeds(
    tmp_path_factory: pytest.TempPathFactory, cc: str, build: str, program: str
) -> None:
    c_programs.assert_success(cc, build, program, tmp_path_factory.getbasetemp())

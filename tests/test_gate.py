"""The list that `.ci/run` prints before the tests: which privileged tests can run here."""

from __future__ import annotations

import capabilities
from command import python
from roots import ROOT

SCRIPT = ROOT / "tests/support/capabilities.py"


def test_each_kind_of_privileged_test_has_a_line() -> None:
    said = capabilities.report({"BPF": lambda: "", "devices": lambda: "needs CAP_MKNOD"})
    assert said == ["run  BPF", "SKIP devices: needs CAP_MKNOD"]
    gate = (ROOT / ".ci/run").read_text()
    assert gate.index(SCRIPT.name) < gate.index('exec "$suite"')


def test_the_report_describes_this_process() -> None:
    path = [str(ROOT / "tests"), str(SCRIPT.parent)]
    start = f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    done = python(f"import runpy, sys; sys.path[:0] = {path}; {start}")
    assert done.stdout.splitlines() == capabilities.report()

"""The list that `.ci/run` prints before the tests: which privileged tests can run here. And the
release: a tag of this tree is refused until its commit has dated the version."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import capabilities
import pytest
from roots import ROOT

from perfprobe import __version__

DATE_HEADING = re.compile(r"^(sed .*) app/CHANGELOG\.md$", re.MULTILINE)
RELEASED_CHECK = re.compile(r"^ +run: \|\n((?: +version=.*\n)(?: +grep .*\n)+)", re.MULTILINE)
SCRIPT = ROOT / "tests/support/capabilities.py"


def test_each_kind_of_privileged_test_has_a_line() -> None:
    said = capabilities.report({"BPF": lambda: "", "devices": lambda: "needs CAP_MKNOD"})
    assert said == ["run  BPF", "SKIP devices: needs CAP_MKNOD"]
    gate = (ROOT / ".ci/run").read_text()
    assert gate.index(SCRIPT.name) < gate.index('exec "$suite"')


@pytest.mark.parametrize(("tag", "dated", "status"), [
    (__version__, False, 1), (__version__, True, 0), ("9.9.9", True, 1)
])  # fmt: skip
def test_a_release_is_the_version_of_the_tree_with_a_date(
    tmp_path: Path, tag: str, dated: bool, status: int
) -> None:
    """Runs the commands of CONTRIBUTING and of the workflow on copies of the two files."""
    for name in ("app/CHANGELOG.md", "probe/perfprobe/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    heading = (tmp_path / "app/CHANGELOG.md").read_text().partition("\n## ")[2].splitlines()[0]
    if not heading.endswith("(not released)"):
        pytest.skip("this tree is a release")
    found = DATE_HEADING.search((ROOT / ".github/CONTRIBUTING.md").read_text())
    check = RELEASED_CHECK.search((ROOT / ".github/workflows/release.yml").read_text())
    assert found
    assert check
    script = f"set -e\nGITHUB_REF_NAME=v{tag}\n{found[0] if dated else ''}\n{check[1]}"
    assert subprocess.run(["bash", "-c", script], cwd=tmp_path, check=False).returncode == status

"""The build_py of perftop: also writes man pages and completion scripts, which the wheel installs
below share/, and the commit, and lists the contents of the source archive.
`[tool.setuptools.cmdclass]` names it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from setuptools.command import build_py as setuptools_build_py

ROOT = Path(__file__).parent.parent
COMPLETIONS = {
    "bash": "share/bash-completion/completions/perftop",
    "zsh": "share/zsh/site-functions/_perftop",
    "fish": "share/fish/vendor_completions.d/perftop.fish",
}
ARCHIVED_FOLDERS = (".ci", ".github", "app", "probe", "screenshots", "tests")
"""Folders that are needed to build, test and change perftop, beside the files at the top."""
GENERATED_SUFFIXES = {".pyc", ".so"}
"""Suffixes of generated files, which the source archive omits."""


def files(version: str, date: str) -> dict[str, str]:
    """Returns the text of each file, by its path below the prefix. Needs only the sources."""
    sys.path[:0] = [str(ROOT / "app"), str(ROOT / "probe")]
    from perftop import cli
    from perftop.docs import command_line

    parser = cli._parser()  # noqa: SLF001 - no other module needs it
    pages = command_line.man_pages(parser, version, date).items()
    found = {f"share/man/man{name[-1]}/{name}": text for name, text in pages}
    return found | {
        path: command_line.completion_script(shell, parser) for shell, path in COMPLETIONS.items()
    }


def commit() -> str:
    """The commit that is built; '' outside a repository, as from a source archive. The repository
    may belong to another user, as in the containers of cibuildwheel."""
    if not (ROOT / ".git").exists():
        return ""
    git = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    try:
        return subprocess.run(git, capture_output=True, check=False, text=True).stdout
    except OSError:  # git is not installed
        return ""


class build_py(setuptools_build_py.build_py):  # noqa: N801 - setuptools' name for it
    def get_source_files(self) -> list[str]:
        """Returns the paths of archived files, relative to the project, where setuptools runs."""
        paths = [path for folder in ARCHIVED_FOLDERS for path in (ROOT / folder).rglob("*")]
        files = [path for path in paths if path.is_file() and path.suffix not in GENERATED_SUFFIXES]
        return [os.path.relpath(path) for path in (ROOT / ".gitignore", *files)]

    def run(self) -> None:
        build_ext: Any = self.get_finalized_command("build_ext")
        build_ext.require_compiler()  # before hundreds of files are copied and listed
        super().run()
        if self.editable_mode:
            return
        built = Path(self.build_lib).parent
        if commit():
            Path(self.build_lib, "perftop", "COMMIT").write_text(commit(), encoding="ascii")
        epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
        date = time.strftime("%Y-%m-%d", time.gmtime(epoch))
        data = []
        for path, text in files(self.distribution.get_version(), date).items():
            written_path = Path(built, path)
            written_path.parent.mkdir(parents=True, exist_ok=True)
            written_path.write_text(text, encoding="utf-8")
            data.append((os.path.dirname(path), [os.path.relpath(written_path)]))  # noqa: PTH120
        self.distribution.data_files = data

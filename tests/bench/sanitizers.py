"""Every native program under both sanitizers by both compilers: a line a program, a column a build.

A program passes, says why it cannot run here, or fails with what it said. A build whose empty
program does not run here is said to be missing. The same builds are in the tests (`pytest -m
"nightly or not nightly" tests/native`). Run by hand:
  python tests/bench/sanitizers.py [PROGRAM …]   only these, such as test_ring; quick: test_ring
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from c_programs import ALWAYS, BUILDS, PROGRAMS, SKIPPED, build_all, run, works

COMPILERS = ("gcc", "clang")
SANITIZED = ("asan-ubsan", "tsan")
WIDTH = 20


def built(cc: str, build: str, root: Path) -> Path | None:
    """Where the programs of a build are; None: it cannot be had here."""
    where = root / f"{cc}-{build}"
    where.mkdir()
    compiler = [cc, *ALWAYS, *BUILDS[build]]
    if shutil.which(cc) is None or not works(compiler, where):
        return None
    build_all(compiler, where, PROGRAMS)
    return where


def tried(program: Path) -> tuple[str, str]:
    """A word, and what there is to say about it."""
    try:
        status, errors = run(program)
    except subprocess.TimeoutExpired:
        return "TOO LONG", ""
    if status == SKIPPED:
        return "not here", errors.strip()
    return ("passed", "") if status == 0 else (f"FAILED ({status})", errors)


def main(names: list[str]) -> int:
    builds = [(cc, build) for cc in COMPILERS for build in SANITIZED]
    with tempfile.TemporaryDirectory(prefix="sanitized-") as root:
        places = {build: built(*build, Path(root)) for build in builds}
        print(f"{'':18}" + "".join(f"{f'{cc} {build}':{WIDTH}}" for cc, build in builds))
        bad = sum(place is None for place in places.values())
        for name in names or sorted(PROGRAMS):
            found = [("no build", "") if place is None else tried(place / name)
                     for place in places.values()]  # fmt: skip
            print(f"{name:18}" + "".join(f"{word:{WIDTH}}" for word, _ in found), flush=True)
            for said in sorted({said for _, said in found if said}):
                print(f"    {said.strip()}")
            bad += sum(word not in {"passed", "not here", "no build"} for word, _ in found)
    print(f"{bad} went wrong or were missing" if bad else "all went well")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

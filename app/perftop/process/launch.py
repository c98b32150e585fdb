"""Starting a probe. Quick to import: the probe starts while the app is still being read in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from perftop.base.errors import UNAVAILABLE, Failed


def probe_command(*arguments: str, sudo: bool = False) -> list[str]:
    """The argv of a probe on this machine: the same interpreter, never what PATH may hold. With
    `sudo` it alone runs as root; the password must have been given before (`authorize`)."""
    # -P: a perfprobe/ in the working directory must not be what runs with our rights.
    own = [os.path.abspath(sys.executable), "-P", "-m", "perfprobe", *arguments]  # noqa: PTH100
    return ["sudo", "-n", "--", *own] if sudo else own


def authorize() -> None:
    """Has sudo ask for the password now, while the terminal is still the user's."""
    if shutil.which("sudo") is None:
        raise Failed("--sudo: there is no sudo here; run perftop as root instead", UNAVAILABLE)
    if subprocess.run(["sudo", "-v"], check=False).returncode:
        raise Failed("--sudo: sudo did not let the probe run as root", UNAVAILABLE)


def launch(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """In a process group of its own: the terminal's signals are for us. It ends when its stdin
    closes, so it does not outlive us whatever happens."""
    pipe = subprocess.PIPE
    with _starting(argv):
        return subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, process_group=0, bufsize=0,
            env=os.environ | {"PYTHONWARNINGS": "ignore"},
        )  # fmt: skip


def ask(argv: Sequence[str]) -> dict[str, Any]:
    """The answer of a probe that looks once. What it had programmed it gives back, so it is waited
    for whatever happens."""
    import json

    pipe = subprocess.PIPE
    with _starting(argv):
        process = subprocess.Popen(argv, stdout=pipe, stderr=pipe)
    with process:
        try:
            out, errors = process.communicate()
        except KeyboardInterrupt:
            process.terminate()
            process.communicate()
            raise
    with suppress(ValueError):
        answer: dict[str, Any] = json.loads(out)
        return answer
    lines = errors.decode(errors="replace").strip().splitlines()
    why = lines[-1] if lines else f"perfprobe ended with status {process.returncode}"
    raise Failed(why.removeprefix("perfprobe: "), max(1, process.returncode))


@contextmanager
def _starting(argv: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failed(f"cannot run the probe: {argv[0]}: {error.strerror or error}") from None

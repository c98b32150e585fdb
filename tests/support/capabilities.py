"""The capabilities of the process that runs the tests: root in a container lacks some, and a user
may have some. Run as a program it prints which privileged tests can run here."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from fakekernel import client

from perfprobe.cpu import identity
from perfprobe.kernel import access
from perfprobe.machine.idle import IdleTrace

CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, SETGID, SETUID, SETPCAP, MKNOD = 0, 1, 2, 6, 7, 8, 27


def has_capabilities(*capabilities: int) -> bool:
    """Whether this process has all of these capabilities outside of a user namespace; inside they
    give no access to hardware."""
    root = Path("/")
    return not identity.is_in_user_namespace() and all(
        access.has_capability(root, capability) for capability in capabilities
    )


def setpriv(*capabilities: int) -> str:
    """The path of setpriv, which drops capabilities. Skips the test if it is missing, or if this
    process lacks one of `capabilities`."""
    result = shutil.which("setpriv")
    if result is None or not has_capabilities(SETPCAP, *capabilities):
        pytest.skip("needs setpriv, and capabilities to give up")
    return result


# --- privileged tests that can run ----------------------------------------------------------------
# Each `cannot_…` returns the reason why its tests are skipped; '' if they can run.

DROPPED = (access.CAP_SYS_ADMIN, access.CAP_PERFMON, access.CAP_SYS_RAWIO, DAC_OVERRIDE)
"""Capabilities whose loss is tested."""


def cannot_trace() -> str:
    """The reason why no program can be attached to the kernel's idle transitions."""
    try:
        IdleTrace({0: (0, 0)}, learn=False).close()
    except OSError as error:
        return str(error.strerror)
    return ""


def cannot_drop() -> str:
    """The reason why tests of a probe that drops its capabilities cannot run."""
    return "" if has_capabilities(*DROPPED) else "needs capabilities to drop"


def cannot_make_devices() -> str:
    return "" if has_capabilities(MKNOD) else "needs CAP_MKNOD"


def cannot_be_another_user() -> str:
    return (
        ""
        if has_capabilities(CHOWN, SETUID, SETGID)
        else "needs CAP_CHOWN, CAP_SETUID and CAP_SETGID"
    )


needs_fuse = pytest.mark.skipif(
    bool(client.unavailable()), reason=client.unavailable() or "it can be mounted"
)

PRIVILEGED: Mapping[str, Callable[[], str]] = {
    "registers are programmed and restored (FUSE)": client.unavailable,
    "the msr driver's own device is recognised": cannot_make_devices,
    "idle transitions are counted by BPF": cannot_trace,
    "a running probe drops its rights": cannot_drop,
    "other users cannot interfere": cannot_be_another_user,
}
"""By subject of the privileged tests: a function that returns the reason why they cannot run."""


def report(checks: Mapping[str, Callable[[], str]] = PRIVILEGED) -> list[str]:
    """A line for each kind of privileged test."""
    reasons = {what: check() for what, check in checks.items()}
    return [f"SKIP {what}: {why}" if why else f"run  {what}" for what, why in reasons.items()]


if __name__ == "__main__":
    report_lines = report()
    print("\n".join(report_lines))
    if "--all" in sys.argv[1:] and any(line.startswith("SKIP") for line in report_lines):
        sys.exit("privileged tests would be skipped here")

"""What the process that runs the tests may do, by capability: a container's root lacks some, and a
user may have some."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perfprobe.cpu import identity
from perfprobe.kernel import access

CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, SETGID, SETUID, SETPCAP, MKNOD = 0, 1, 2, 6, 7, 8, 27


def has(*capabilities: int) -> bool:
    """All of these, outside any user namespace, where they would not count for hardware."""
    root = Path("/")
    return not identity.user_namespace() and all(access.capable(root, one) for one in capabilities)


def setpriv(*capabilities: int) -> str:
    """The program that gives rights up. Skips the test without it, or without these."""
    found = shutil.which("setpriv")
    if found is None or not has(SETPCAP, *capabilities):
        pytest.skip("needs setpriv, and capabilities to give up")
    return found

"""Errors of the system as lines for the user."""

from __future__ import annotations

import errno

import pytest

from perftop.base.errors import cannot, cannot_write, unhandled


@pytest.mark.parametrize(
    ("failed", "text"),
    [
        (cannot("read a", OSError(errno.EIO, "bad disk")), "cannot read a: bad disk"),
        (cannot("read a", OSError("no reason")), "cannot read a: no reason"),
        (cannot_write("a", OSError(errno.EMFILE, "full")), "full: raise the limit of open files"),
        (unhandled(OSError(errno.ENOSPC, "no space")), "cannot write stdout: no space"),
        (unhandled(OSError(errno.EACCES, "no", "/x")), "cannot use /x: no"),
    ],
)
def test_an_error_names_what_failed(failed: Exception, text: str) -> None:
    assert str(failed).startswith(text)

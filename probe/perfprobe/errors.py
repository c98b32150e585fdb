"""The errors of the probe. Each is one line for the user and has an exit status."""

from __future__ import annotations

import errno
import os


class UsageError(ValueError):
    """An argument that cannot be understood or does not exist here."""


class Unavailable(Exception):  # noqa: N818 - a state of the machine, not a mistake
    """The machine cannot do what was asked; the text names the blocker and the remedy."""


class NotRestored(Exception):  # noqa: N818 - a state of the machine, not a mistake
    """Registers could not be restored; the text names them and the remedy."""


class Unwritable(Exception):  # noqa: N818 - a state of the machine, not a mistake
    """Standard output cannot be written."""


def check_result(result: int) -> int:
    """Returns the result of a function of the C helper. Raises OSError if the result is -errno."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


REMEDIES = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close files: the whole system has too many open",
    errno.EAGAIN: "raise the limit of processes and threads (ulimit -u)",
    errno.ENOMEM: "raise the limit of memory (ulimit -v)",
}


def error_sentence(error: OSError) -> str:
    """Returns a sentence on a failed system call: the file, the reason and the remedy."""
    why = error.strerror or (os.strerror(error.errno) if error.errno else "it failed")
    place = f"{error.filename}: " if isinstance(error.filename, str) else ""
    remedy = REMEDIES.get(error.errno or 0)
    return f"{place}{why}" + (f"; {remedy}" if remedy else "")

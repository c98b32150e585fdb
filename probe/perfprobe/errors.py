"""The errors of the probe. Each is one line for the user and has an exit status."""

from __future__ import annotations

import errno
import os


class UsageError(ValueError):
    """An invalid argument of a command, or one that names something that does not exist here."""


class Unavailable(Exception):  # noqa: N818 - a state of the machine, not a mistake
    """This machine cannot do what the user asked for; the text gives the reason and the remedy."""


class MsrsNotRestored(Exception):  # noqa: N818 - a state of the machine, not a mistake
    """Programmed MSRs could not be restored; the text names them and the remedy."""


class OutputError(Exception):
    """Standard output cannot be written."""


def check_result(result: int) -> int:
    """Returns the result of a C function. Raises OSError if the result is negative (-errno)."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


REMEDIES = {
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "close files: too many are open in the whole system",
    errno.EAGAIN: "raise the limit on processes and threads (ulimit -u)",
    errno.ENOMEM: "raise the limit on memory (ulimit -v)",
}


def error_sentence(error: OSError) -> str:
    """Returns a message about a failed system call: the file, the reason and the remedy."""
    reason = error.strerror or "it failed"
    prefix = f"{error.filename}: " if isinstance(error.filename, str) else ""
    return with_remedy(f"{prefix}{reason}", REMEDIES.get(error.errno or 0))


def with_remedy(reason: str, remedy: str | None) -> str:
    return f"{reason}; {remedy}" if remedy else reason

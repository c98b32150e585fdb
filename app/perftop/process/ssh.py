"""The probe of a remote machine: the ssh command that runs it, and the reasons of failures when ssh
ends. The module imports quickly, as the first probe starts before anything else is loaded.

Compression reduces frames to a third of their size, for some 3 ms of CPU time a second at 256 CPUs.
ssh never prompts for a password or for trust in an unknown host key, because the screen uses the
terminal. A link that does not answer three times, at intervals of ALIVE_S seconds, counts as
broken.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from perftop.base.errors import UNAVAILABLE, USAGE, Failed

PROGRAM = "ssh"
REMOTE = "perfprobe"
"""Name of the probe on the remote machine, which is looked up in the PATH of a non-login shell."""
CONNECT_S, ALIVE_S = 10, 5
OPTIONS = (
    "-T", "-x",
    "-o", "BatchMode=yes",
    "-o", "Compression=yes",
    "-o", "StrictHostKeyChecking=yes",
    "-o", f"ConnectTimeout={CONNECT_S}",
    "-o", f"ServerAliveInterval={ALIVE_S}",
    "-o", "ServerAliveCountMax=3",
)  # fmt: skip
SSH_FAILED_STATUS = 255
"""Exit status of ssh for its own failures; any other is that of the remote program."""
MAX_HOST = 255
"""Maximum length of USER@HOST, in characters."""

FAILURE_PATTERNS = (
    ("name", r"Could not resolve hostname|Name or service not known",
     "check the spelling, or give it a HostName in ~/.ssh/config"),
    ("key", r"Host key verification failed|HOST IDENTIFICATION HAS CHANGED|host key is known",
     "check the key and accept it once by hand: ssh {host} true"),
    ("login", r"Permission denied|Too many authentication failures|No supported authentication",
     "perftop asks for no password: ssh-copy-id {host}, or load the key with ssh-add"),
    ("connection", r"refused|timed out|No route|unreachable|reset|[Cc]losed|kex_|pipe|respond",
     "is it up, and does its sshd listen? ssh {host} true"),
)  # fmt: skip
"""Steps of a connection, in order: name, pattern of ssh's error messages when the step fails, and
the suggested fix."""
START_FILE_FIX = "its shell's start file must print nothing: ssh {host} true"
"""The suggested fix if something else than the probe's output arrives."""
NOT_FOUND = re.compile(r"not found|No such file|[Pp]ermission denied|[Uu]nknown command")
REFUSED = re.compile(r"^sudo: .*(password|terminal|not allowed|not in the sudoers|askpass)")


def command(
    host: str, arguments: Sequence[str], *, sudo: bool = False, remote: str = REMOTE
) -> list[str]:
    """The argv that runs the probe with these arguments on a remote machine. `remote`: path of the
    probe on that machine. Raises Failed for a host name that ssh would misinterpret."""
    check(host)
    home = "~/" if remote.startswith("~/") else ""  # expanded by the remote shell
    own = home + shlex.join([remote.removeprefix(home), *arguments])
    return [PROGRAM, *OPTIONS, "--", host, f"sudo -n -- {own}" if sudo else own]


def check(host: str) -> None:
    """Raises Failed if this is not a valid host name."""
    if (
        not host
        or host.startswith("-")
        or _without_user(host).startswith("-")
        or len(host) > MAX_HOST
    ):
        raise Failed(f"--host {shlex.quote(host[:40])}: is no [USER@]HOST", USAGE)
    if not host.isprintable() or " " in host:
        raise Failed(f"--host {host[:40]!r}: a name has no blanks", USAGE)


def host_of(argv: Sequence[str]) -> str | None:
    """The host in an argv made by `command`; None: the argv is of a program on this machine."""
    ours = argv[: len(OPTIONS) + 1] == [PROGRAM, *OPTIONS]
    return argv[-2] if ours else None


def probe_words(argv: Sequence[str]) -> list[str]:
    """The words of the probe's own command line, whether it runs on this machine or a remote
    one."""
    return list(argv) if host_of(argv) is None else shlex.split(argv[-1])


def failure(argv: Sequence[str], status: int | None, lines: Sequence[str]) -> Failed | None:
    """Why the remote probe could not be reached or run: the failed step, the error message of ssh
    or the shell, and a suggested fix. `lines`: lines of stderr. None: the probe ran, and reports
    its own failures."""
    name = host_of(argv)
    if name is None or status is None:
        return None
    last = next((line for line in reversed(lines) if line.strip()), "").strip()
    if status == SSH_FAILED_STATUS or status < 0:
        return _broken_link(name, lines, last)
    own = shlex.split(argv[-1])
    if own[0] == "sudo" and REFUSED.search(last):
        root = f"--host root@{_without_user(name)}"
        fix = f"let sudo there run {own[3]} without a password, or use {root}"
        return Failed(f"{name}: rights: {last}; {fix}", UNAVAILABLE)
    if status in {126, 127} or (own[0] == "sudo" and NOT_FOUND.search(last)):
        if own[0] == "sudo" and status == 127:
            text = f"{name}: no sudo there: {last}; use --host root@{_without_user(name)}"
            return Failed(text, UNAVAILABLE)
        probe = own[3] if own[0] == "sudo" else own[0]
        fix = "install perftop there, or name its place: --remote PATH"
        return Failed(f"{name}: no {probe} there: {last or 'not found'}; {fix}", UNAVAILABLE)
    return None


class BrokenLink(Failed):
    """The connection has failed or ended. A new attempt may succeed."""


def _broken_link(name: str, lines: Sequence[str], last: str) -> BrokenLink:
    for step, pattern, fix in FAILURE_PATTERNS:
        if line_found := next((line for line in lines if re.search(pattern, line)), None):
            text = line_found.strip().removeprefix("ssh: ")
            return BrokenLink(f"{name}: {step}: {text}; {fix.format(host=name)}", UNAVAILABLE)
    return BrokenLink(f"{name}: the connection ended" + (f": {last}" if last else ""), UNAVAILABLE)


def _without_user(name: str) -> str:
    return name.rpartition("@")[2]

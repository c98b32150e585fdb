"""The socket for local readers: access, and existing files at its path."""

from __future__ import annotations

import os
import socket
import stat
import sys
from pathlib import Path

import pytest
from command import python

from perftop.base.errors import Failed
from perftop.process import serving
from perftop.process.serving import listening_socket, may_read


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_group_may_get_access(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening_socket(path, os.getgid()):
        assert (mode(path), path.stat().st_gid) == (0o660, os.getgid())
    with pytest.raises(Failed, match="no such group") as caught:
        serving.group_id("no-such-group-there")
    assert caught.value.status == 2


def test_only_an_unused_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with (
        listening_socket(path),
        pytest.raises(Failed, match="Address already in use; another program"),
        listening_socket(path),
    ):
        pass
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    path.symlink_to("dead")
    with pytest.raises(Failed, match="is not a socket"), listening_socket(path):
        pass
    path.unlink()
    path.write_text("precious", encoding="ascii")
    with pytest.raises(Failed, match="is not a socket"), listening_socket(path):
        pass
    assert path.read_text(encoding="ascii") == "precious"


def test_the_socket_of_another_user_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening_socket(path):
        path.unlink()
        path.write_text("theirs", encoding="ascii")
    assert path.read_text(encoding="ascii") == "theirs"


class Peer:
    """Credentials of the peer as reported by the kernel."""

    def __init__(self, uid: int, gid: int, groups: tuple[int, ...] = ()) -> None:
        self._uid, self._gid, self._discarded_bytes = uid, gid, groups

    def getsockopt(self, _level: int, option: int, _size: int) -> bytes:
        if option == socket.SO_PEERCRED:
            return serving._CREDENTIALS.pack(1, self._uid, self._gid)
        assert option == serving.SO_PEERGROUPS
        return b"".join(group.to_bytes(4, sys.byteorder) for group in self._discarded_bytes)


@pytest.mark.parametrize(("peer", "group", "may"), [
    (Peer(os.geteuid(), 5), None, True),
    (Peer(0, 0), None, True),
    (Peer(12345, 5), None, False),
    (Peer(12345, 5), 5, True),
    (Peer(12345, 6, (7, 5)), 5, True),
    (Peer(12345, 6, (7, 8)), 5, False),
])  # fmt: skip
def test_readers_are_admitted_by_user_and_group(peer: Peer, group: int | None, may: bool) -> None:
    assert may_read(peer, group) is may  # type: ignore[arg-type]


def test_credentials_are_read_from_the_kernel(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert may_read(ours, None)
        assert set(os.getgroups()) <= {os.getgid(), *serving._peer_groups(ours)}


ACTIVATED = """
import os, socket, sys
made = socket.socket({family}, {kind})
made.bind({address!r})
{listen}
os.dup2(made.fileno(), 3)
os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"] = str(os.getpid() + {other}), "{count}"
from perftop.base.errors import Failed
from perftop.verbs.serve import open_listening_socket
try:
    with open_listening_socket(None, None) as found:
        print(found.fileno(), found.get_inheritable(), "LISTEN_FDS" in os.environ)
except Failed as failed:
    print(failed)
"""


@pytest.mark.parametrize(("changes", "message"), [
    ({}, "3 False False"),
    ({"other": 1}, "no socket to listen on; name one: --socket PATH"),
    ({"count": 2}, "is not a socket"),
    ({"listen": ""}, "is not a listening stream socket"),
    ({"kind": "socket.SOCK_DGRAM", "listen": ""}, "is not a listening stream socket"),
    ({"family": "socket.AF_INET", "address": ("127.0.0.1", 0)},
     "something other than one unix socket"),
])  # fmt: skip
def test_systemd_may_pass_the_socket(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    usual: dict[str, object] = {
        "family": "socket.AF_UNIX", "kind": "socket.SOCK_STREAM", "address": str(tmp_path / "s"),
        "listen": "made.listen(5)", "other": 0, "count": 1,
    }  # fmt: skip
    code = ACTIVATED.format(**(usual | changes))
    result = python(code)
    assert message in result.stdout
    if not changes:
        assert (tmp_path / "s").exists(), "systemd owns it"

"""The real ssh and a real sshd on 127.0.0.1, with keys that are thrown away."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import lines, run
from waiting import MOST_S, wait

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
TOOLS = [SSHD, shutil.which("ssh"), shutil.which("ssh-keygen")]
pytestmark = pytest.mark.skipif(None in TOOLS, reason="no ssh, sshd or ssh-keygen here")
PRIVILEGES = Path("/run/sshd")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


def answers(port: int) -> bool:
    with socket.socket() as test:
        return test.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with sshd's keys and ours, and with an ssh that knows the host `n7`."""
    directory = tmp_path_factory.mktemp("sshd")
    if os.geteuid() == 0 and not PRIVILEGES.is_dir():
        pytest.skip(f"sshd of root needs {PRIVILEGES}")
    for name in ("host", "login"):
        path = str(directory / name)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    (directory / "authorized").write_bytes((directory / "login.pub").read_bytes())
    port = free_port()
    (directory / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {directory}/host\nUsePAM no\n"
        f"AuthorizedKeysFile {directory}/authorized\nPidFile none\nStrictModes no\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n",
        encoding="ascii",
    )
    key = (directory / "host.pub").read_text(encoding="ascii")
    (directory / "known").write_text(f"[127.0.0.1]:{port} {key}", encoding="ascii")
    user = getpass.getuser()
    (directory / "ssh_config").write_text(
        f"Host n7 stranger\n HostName 127.0.0.1\n Port {port}\n User {user}\n IdentitiesOnly yes\n"
        f"Host n7\n UserKnownHostsFile {directory}/known\n IdentityFile {directory}/login\n"
        f"Host stranger\n UserKnownHostsFile {directory}/none\n",
        encoding="ascii",
    )
    (directory / "bin").mkdir()
    ssh = directory / "bin" / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {TOOLS[1]} -F {directory}/ssh_config "$@"\n', encoding="ascii")
    ssh.chmod(0o755)
    probe = directory / "my probe"  # with a blank, and characters of the shell
    probe.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m perfprobe "$@"\n', encoding="ascii")
    probe.chmod(0o755)
    command = [str(SSHD), "-D", "-e", "-f", str(directory / "sshd_config")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            wait(lambda: answers(port) or server.poll() is not None, "sshd")
            if server.poll() is not None:
                pytest.skip("sshd does not run here")
            yield directory
        finally:
            server.terminate()
            server.wait(MOST_S)


@pytest.fixture
def far(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return place


def test_numbers_come_from_there(far: Path) -> None:
    done = run("stat", "--host", "n7", "--remote", f"{far}/my probe", "--source", "os", "--json",
               "--watch", "a 'b' $H `d` *", "-n", "2")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(lines(done.stdout, "interval")) == 2


def test_a_command_is_measured_there(far: Path) -> None:
    done = run("stat", "--host", "n7", "--remote", f"{far}/my probe", "--source", "os",
               "--", "sh", "-c", "exit 3")  # fmt: skip
    assert done.returncode == 3
    assert "longer" in done.stderr


def test_a_missing_file_is_reported(far: Path) -> None:
    done = run("stat", "--host", "n7", "--remote", "/nonexistent/perfprobe", "-n", "1")
    assert (done.returncode, "no /nonexistent/perfprobe there" in done.stderr) == (3, True)


def test_a_host_whose_key_is_unknown_is_not_trusted(far: Path) -> None:
    done = run("stat", "--host", "stranger", "-n", "1")
    assert (done.returncode, "stranger: key" in done.stderr) == (3, True), done.stderr


def test_a_login_that_is_refused_asks_for_no_password(far: Path) -> None:
    authorized = far / "authorized"
    keys = authorized.read_bytes()
    authorized.write_bytes(b"")
    try:
        done = run("doctor", "--host", "n7")
    finally:
        authorized.write_bytes(keys)
    assert (done.returncode, "n7: login" in done.stderr) == (3, True), done.stderr


def test_a_fleet_has_it_beside_one_whose_key_is_unknown(far: Path) -> None:
    done = run("fleet", "n7", "stranger", "--json", "-n", "3", "-i", "500ms",
               "--remote", f"{far}/my probe")  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = {line["machine"]: line for line in lines(done.stdout, "machine")}
    assert told["n7"]["answers"]
    assert 0 <= told["n7"]["busy"] <= 1
    assert not told["stranger"]["answers"]
    assert "stranger: key:" in told["stranger"]["why"]

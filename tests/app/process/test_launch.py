"""How a probe is started: over ssh, and by root."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import pwd
import re
import shlex
import shutil
import site
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import fake_ssh
import pytest
from command import lines, run, run_in_process
from hypothesis import given
from hypothesis import strategies as st
from nightly import cases_by_day
from waiting import MAX_WAIT_S, wait_for

import perfprobe
import perftop
from perftop.base.errors import UNAVAILABLE, Failed
from perftop.process import launch
from perftop.process.launch import CONNECT_TIMEOUT_S, ssh_command, ssh_host


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fake_ssh.Hosts:
    return fake_ssh.install(tmp_path, monkeypatch)


@given(st.lists(st.text(st.characters(blacklist_characters="\0"), min_size=1), max_size=5))
def test_arguments_arrive_unchanged(words: list[str]) -> None:
    argv = ssh_command("n7", ["stream", *words])
    assert shlex.split(argv[-1]) == ["perfprobe", "stream", *words]
    assert ssh_host(argv) == "n7"
    assert argv[-3:-1] == ["--", "n7"]
    assert {*argv} >= {"ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"}


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "", "a b", "a\nb", "x" * 256])
def test_a_host_name_that_looks_like_an_option_is_refused(name: str) -> None:
    with pytest.raises(Failed, match="--host") as caught:
        ssh_command(name, [])
    assert caught.value.status == 2
    assert run_in_process("stat", f"--host={name}", "-n1").returncode == 2


@pytest.mark.parametrize(("code", "stderr", "programs", "text", "status"), [
    (None, "", False, "ended without an error message", 1),
    (0, "", False, "ended without an error message", 1),
    (-1, "", True, "ended by signal 1 without an error message; its registers stay", 1),
    (143, "x", False, "ended by signal 15", 1), (129, "", False, "ended by signal 1", 1),
    (128, "", False, "ended without an error message", 128),
    (130, "", False, "ended without an error message", 130),
    (3, "a\nperfprobe: no rights\n", True, "^no rights$", 3), (0, "x", False, "ended without", 1),
])  # fmt: skip
def test_the_end_of_a_probe_has_a_reason(
    code: int | None, stderr: str, text: str, status: int, *, programs: bool
) -> None:
    probe = launch.Probe.__new__(launch.Probe)
    probe.host, probe._argv, probe._reader, probe.process = None, ["perfprobe"], Mock(), Mock()
    probe.process.returncode, probe._stderr, probe._programs = code, stderr.encode(), programs
    failed = probe._failure()
    assert failed.status == status
    with pytest.raises(Failed, match=text):
        raise failed
    probe.failure_raised = probe._measures_once = False
    has_failed = programs and code is not None and (bool(stderr) or not 0 <= code <= 128)
    assert (probe.end() is not None) == has_failed


@pytest.mark.parametrize(("sudo", "status", "line", "text"), [
    (False, 0, "", None), (False, 1, "perfprobe: x", None), (False, 128, "x", None),
    (False, 126, "bash: perfprobe: Permission denied", "n7: no perfprobe there: bash"),
    (False, 127, "", "n7: no perfprobe there: not found"),
    (True, 127, "bash: sudo: command not found", "n7: no sudo there.*root@n7"),
    (True, 1, "sudo: perfprobe: command not found", "n7: no perfprobe there: sudo"),
    (True, 126, "", "n7: no perfprobe there"), (False, -1, "bye", "the connection ended: bye"),
    (False, 255, "", "n7: the connection ended$"),
])  # fmt: skip
def test_the_status_of_ssh_names_the_step_that_failed(
    status: int, line: str, text: str | None, *, sudo: bool
) -> None:
    failed = launch.ssh_failure(ssh_command("n7", [], sudo=sudo), status, [line, ""])
    assert (failed is None) == (text is None)
    assert failed is None or re.search(str(text), str(failed))


def test_the_remote_shell_expands_the_home_directory() -> None:
    argv = ssh_command("n7", ["stream"], remote="~/my dir/perfprobe", sudo=True)
    assert argv[-1] == "sudo -n -- ~/'my dir/perfprobe' stream"


@pytest.mark.parametrize(("behaviour", "step", "fix"), [
    ("noname", "n7: no such host: Could not resolve", "spelling"),
    ("refused", "n7: connection failed: .*refused", "ssh n7 true"),
    ("timeout", "n7: connection failed: .*timed out", "ssh n7 true"),
    ("badkey", "n7: host key not accepted: No ED25519 host key", "by hand: ssh n7 true"),
    ("nologin", "n7: login failed: .*Permission denied", "ssh-copy-id n7"),
    ("noprobe", "n7: no perfprobe there",
     "install perftop there, or name its path: --remote PATH"),
    ("norights", "n7: --source perf", "perf_event_paranoid"),
])  # fmt: skip
@pytest.mark.parametrize("verb", ["stat", "doctor"])
def test_all_failing_steps_have_a_message(
    hosts: fake_ssh.Hosts, verb: str, behaviour: str, step: str, fix: str
) -> None:
    hosts.set("n7", behaviour)
    result = run_in_process(verb, "--host", "n7")
    assert result.returncode == 3
    with pytest.raises(Failed, match=f"{step}.*{fix}"):
        raise Failed(result.stderr)
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(("behaviour", "text"), [
    ("nosudo", "sudo refused: sudo: a password is required.*root@n7"),
    ("sudonoprobe", "no perfprobe"),
])  # fmt: skip
def test_sudo_applies_to_the_remote_machine(
    hosts: fake_ssh.Hosts, behaviour: str, text: str
) -> None:
    hosts.set("n7", behaviour)
    result = run_in_process("stat", "--host", "n7", "--sudo")
    assert result.returncode == 3
    with pytest.raises(Failed, match=f"n7: {text}"):
        raise Failed(result.stderr)


def test_stat_reads_another_machine(hosts: fake_ssh.Hosts) -> None:
    hosts.set("me@n7", "run sim:idle,cpus=4,speed=20")
    events = "branches,cache-misses:u"
    result = run_in_process("stat", "--host", "me@n7", "--json", "-n", "2", "-e", events)
    assert result.returncode == 0, result.stderr
    assert all(cpu["e.cache-misses:u"] is not None
               for cpu in lines(result.stdout, "interval")[-1]["cpus"])  # fmt: skip
    (hello,) = lines(result.stdout, "hello")
    assert len(hello["topology"]) == 4
    assert len(lines(result.stdout, "interval")) == 2


@pytest.mark.parametrize(
    "verb", cases_by_day(["topology", "doctor", "timers"], ["topology", "doctor"])
)
def test_machine_verbs_ask_the_remote_machine(hosts: fake_ssh.Hosts, verb: str) -> None:
    result = run_in_process(verb, "--host", "n7", "--json")
    assert result.returncode == 0, result.stderr
    assert len(hosts.pids("n7")) == 1


@pytest.mark.parametrize(("error", "why"), [
    (FileNotFoundError(), "no such socket; start a server: perftop serve --socket PATH"),
    (ConnectionRefusedError(), "its server has ended; start it again: perftop serve --socket PATH"),
    (PermissionError(), "permission denied; its server can admit a group: serve --group NAME"),
    (OSError(91, "Protocol wrong type"), "Protocol wrong type"), (OSError("too long"), "too long"),
])  # fmt: skip
def test_a_refused_connection_has_a_reason(
    error: OSError, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[object] = []

    class Refused(socket.socket):
        def connect(self, address: object) -> None:
            attempts.extend([address, self])
            raise error

    monkeypatch.setattr(socket, "socket", Refused)
    with pytest.raises(Failed) as failed:
        launch.SocketProbe("unix:/run/p")
    assert (str(failed.value), failed.value.status) == (f"unix:/run/p: {why}", UNAVAILABLE)
    path, own_socket = attempts
    assert isinstance(own_socket, Refused)
    assert (path, own_socket.fileno(), own_socket.gettimeout()) == ("/run/p", -1, CONNECT_TIMEOUT_S)


def test_a_server_that_ends_within_a_message_is_a_broken_link(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        probe = launch.SocketProbe(f"unix:{path}")
    for cut_bytes, end in ((0, "this user"), (7, "this user, 7 bytes into a message")):
        failed = probe.end_failure(cut_bytes)
        assert isinstance(failed, launch.BrokenLink)
        assert str(failed).startswith(f"unix:{path}: the server has ended")
        assert str(failed).endswith(end)
        assert failed.status == UNAVAILABLE
    probe.end()
    assert probe.stdout.fileno() == -1


@pytest.mark.parametrize(("sudo", "why"), [
    ("", "sudo was not found; run perftop as root instead"),
    ("exit 1", "sudo did not let the probe run as root; without --sudo you see"),
    ('test "$*" = -v', None),
])  # fmt: skip
def test_sudo_is_asked_before_the_screen_starts(
    sudo: str, why: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sudo:
        (tmp_path / "sudo").write_text(f"#!/bin/sh\n{sudo}\n")
        (tmp_path / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failed, match=why) if why else contextlib.nullcontext() as failed:
        launch.ask_sudo_password()
    assert failed is None or failed.value.status == UNAVAILABLE


def test_remote_without_a_host_is_a_usage_error() -> None:
    assert run_in_process("stat", "--remote", "/x", "-n1").returncode == 2


def test_output_of_a_shell_startup_file_is_reported(hosts: fake_ssh.Hosts) -> None:
    hosts.set("n7", "banner")
    result = run_in_process("stat", "--host", "n7", "-n1")
    assert result.returncode == 3
    assert "startup files" in result.stderr


# --- the real ssh and a real sshd on 127.0.0.1


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
def ssh_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with host and user keys, and an ssh that knows the host `n7`."""
    if pwd.getpwuid(os.geteuid()).pw_shell.endswith(("nologin", "false")):
        pytest.skip("this user cannot log in")
    directory = tmp_path_factory.mktemp("sshd")
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # its service makes it, but may not have run here
            PRIVILEGES.mkdir(mode=0o755)
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
    ssh.write_text(
        f'#!/bin/sh\nexec {TOOLS[1]} -F "{directory}/ssh_config" "$@"\n', encoding="ascii"
    )
    ssh.chmod(0o755)
    probe = directory / "my probe"  # with a space and shell metacharacters
    probe.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m perfprobe "$@"\n', encoding="ascii")
    probe.chmod(0o755)
    command = [str(SSHD), "-D", "-e", "-f", str(directory / "sshd_config")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(lambda: answers(port) or server.poll() is not None, "sshd")
            if server.poll() is not None:
                pytest.skip("sshd does not run here")
            yield directory
        finally:
            server.terminate()
            server.wait(MAX_WAIT_S)


@pytest.fixture
def remote_machine(ssh_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{ssh_directory / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return ssh_directory


def test_values_of_the_remote_machine_are_read(remote_machine: Path) -> None:
    program = f"{remote_machine}/my probe"
    result = run("stat", "--host", "n7", "--remote", program, "--source", "os", "--json",
               "--watch", "a 'b' $H `d` *", "-n", "2")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert len(lines(result.stdout, "interval")) == 2


def test_a_remote_command_is_measured(remote_machine: Path) -> None:
    result = run("stat", "--host", "n7", "--remote", f"{remote_machine}/my probe", "--source", "os",
               "--", "sh", "-c", "exit 3")  # fmt: skip
    assert result.returncode == 3
    assert "longer" in result.stderr


@pytest.mark.parametrize(("options", "problem"), [
    (["n7", "--remote", "/nonexistent/perfprobe"], "no /nonexistent/perfprobe there"),
    (["stranger"], "stranger: host key not accepted"),
])  # fmt: skip
def test_a_missing_file_and_an_unknown_key_are_reported(
    remote_machine: Path, options: list[str], problem: str
) -> None:
    result = run("stat", "-n", "1", "--host", *options)
    assert (result.returncode, problem in result.stderr) == (3, True), result.stderr


def test_a_refused_login_does_not_ask_for_a_password(remote_machine: Path) -> None:
    authorized = remote_machine / "authorized"
    keys = authorized.read_bytes()
    authorized.write_bytes(b"")
    try:
        result = run("doctor", "--host", "n7")
    finally:
        authorized.write_bytes(keys)
    assert (result.returncode, "n7: login" in result.stderr) == (3, True), result.stderr


# --- what root runs does not depend on variables of the user


MODULES = ("perfprobe", "msgpack", "json", "argparse", "numpy", "sitecustomize", "usercustomize")
"""Names of programs that the user provides."""
SUDO = """#!/bin/sh
shift 2
exec "$@"
"""


@pytest.fixture
def user_directory(tmp_path: Path) -> Path:
    """A directory with modules that write a file when they run, including packages of the user."""
    code = f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__ + '\\n')\n"
    version = Path(site.getusersitepackages()).parent.name
    for folder in (tmp_path, tmp_path / ".local/lib" / version / "site-packages"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in MODULES:
            (folder / f"{name}.py").write_text(code)
        (folder / "start.pth").write_text(f"import sys; exec({code!r})\n")
    fake = tmp_path / "bin" / "sudo"
    fake.parent.mkdir()
    fake.write_text(SUDO)
    fake.chmod(0o755)
    return tmp_path


VARIABLES = {
    "PYTHONPATH": "{}", "PYTHONHOME": "{}", "PYTHONUSERBASE": "{}/.local", "HOME": "{}",
    "PYTHONSTARTUP": "{}/json.py", "PYTHONINSPECT": "1", "PYTHONPLATLIBDIR": "{}",
    "PYTHONSAFEPATH": "", "PYTHONIOENCODING": "utf-16", "PYTHONBREAKPOINT": "usercustomize.x",
    "PYTHONPYCACHEPREFIX": "{}", "PYTHONCASEOK": "1", "PYTHONMALLOC": "debug",
    "PYTHONEXECUTABLE": "{}/bin/sudo", "__PYVENV_LAUNCHER__": "{}/bin/sudo",
    "XDG_CONFIG_HOME": "{}", "XDG_STATE_HOME": "{}", "XDG_CACHE_HOME": "{}",
    "XDG_RUNTIME_DIR": "{}", "TMPDIR": "{}", "TERM": "../../{}", "TERMINFO": "{}",
    "LC_ALL": "xx_XX.none", "LC_CTYPE": "C", "LOCPATH": "{}", "GCONV_PATH": "{}",
    "LD_LIBRARY_PATH": "{}", "CC": "{}/bin/sudo",
}  # fmt: skip
SETS = [[*VARIABLES], *([name] for name in VARIABLES)]


@pytest.mark.parametrize("names", cases_by_day(SETS, SETS[:2]))
def test_no_variable_lets_a_probe_run_by_root_load_user_code(
    user_directory: Path, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{user_directory / 'bin'}:{os.environ['PATH']}")
    for name in names:
        monkeypatch.setenv(name, VARIABLES[name].format(user_directory))
    result = subprocess.run(
        launch.probe_command("topology", sudo=True),
        cwd=user_directory, env=launch.probe_environment(), umask=0, capture_output=True,
        timeout=MAX_WAIT_S, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, b"")
    assert json.loads(result.stdout)["cpus"]
    assert not (user_directory / "ran").exists(), (user_directory / "ran").read_text()


@pytest.mark.parametrize("name", ["PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__"])
def test_no_variable_chooses_the_program_that_root_runs(name: str) -> None:
    code = "from perftop.process import launch; print(launch.probe_command(sudo=True)[3])"
    folders = [str(Path(str(module.__file__)).parents[1]) for module in (perfprobe, perftop)]
    environment = {name: "/bin/false", "PYTHONPATH": os.pathsep.join([*folders, *sys.path])}
    program = subprocess.check_output(
        [sys.executable, "-c", code], env=os.environ | environment, text=True, timeout=MAX_WAIT_S
    )
    assert program.strip() == os.path.abspath(sys.executable)  # noqa: PTH100

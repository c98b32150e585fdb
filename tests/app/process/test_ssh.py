"""Another machine behind ssh: exact words there, and a line for each step that fails."""

from __future__ import annotations

import shlex
from pathlib import Path

import fake_ssh
import pytest
from command import here, lines
from hypothesis import given
from hypothesis import strategies as st
from nights import by_day

from perftop.base.errors import Failed
from perftop.process import ssh


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fake_ssh.Hosts:
    return fake_ssh.install(tmp_path, monkeypatch)


@given(st.lists(st.text(st.characters(blacklist_characters="\0"), min_size=1), max_size=5))
def test_arguments_arrive_unchanged(words: list[str]) -> None:
    argv = ssh.command("n7", ["stream", *words])
    assert shlex.split(argv[-1]) == ["perfprobe", "stream", *words]
    assert ssh.host(argv) == "n7"
    assert argv[-3:-1] == ["--", "n7"]


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "", "a b", "a\nb", "x" * 300])
def test_a_host_that_ssh_would_misread_is_refused(name: str) -> None:
    with pytest.raises(Failed, match="--host") as caught:
        ssh.command(name, [])
    assert caught.value.status == 2
    assert here("stat", f"--host={name}", "-n1").returncode == 2


def test_the_remote_shell_expands_the_home_directory() -> None:
    argv = ssh.command("n7", ["stream"], remote="~/my dir/perfprobe", sudo=True)
    assert argv[-1] == "sudo -n -- ~/'my dir/perfprobe' stream"


@pytest.mark.parametrize(
    ("does", "step", "fix"),
    [
        ("noname", "n7: name: Could not resolve", "spelling"),
        ("refused", "n7: connection: .*refused", "ssh n7 true"),
        ("timeout", "n7: connection: .*timed out", "ssh n7 true"),
        ("badkey", "n7: key: No ED25519 host key", "by hand: ssh n7 true"),
        ("nologin", "n7: login: .*Permission denied", "ssh-copy-id n7"),
        (
            "noprobe",
            "n7: no perfprobe there",
            "install perftop there, or name its place: --remote PATH",
        ),
        ("norights", "n7: --source perf", "perf_event_paranoid"),
    ],
)
@pytest.mark.parametrize("verb", ["stat", "doctor"])
def test_each_step_that_fails_has_its_line(
    hosts: fake_ssh.Hosts, verb: str, does: str, step: str, fix: str
) -> None:
    hosts.set("n7", does)
    done = here(verb, "--host", "n7")
    assert done.returncode == 3
    with pytest.raises(Failed, match=f"{step}.*{fix}"):
        raise Failed(done.stderr)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("does", "text"),
    [("nosudo", "rights: sudo: a password is required.*root@n7"), ("sudonoprobe", "no perfprobe")],
)
def test_sudo_applies_to_the_remote_machine(hosts: fake_ssh.Hosts, does: str, text: str) -> None:
    hosts.set("n7", does)
    done = here("stat", "--host", "n7", "--sudo")
    assert done.returncode == 3
    with pytest.raises(Failed, match=f"n7: {text}"):
        raise Failed(done.stderr)


def test_stat_reads_another_machine(hosts: fake_ssh.Hosts) -> None:
    hosts.set("me@n7", "run sim:idle,cpus=4,speed=20")
    events = "branches,cache-misses:u"
    done = here("stat", "--host", "me@n7", "--json", "-n", "2", "-e", events)
    assert done.returncode == 0, done.stderr
    assert all(cpu["e.cache-misses:u"] is not None
               for cpu in lines(done.stdout, "interval")[-1]["cpus"])  # fmt: skip
    (hello,) = lines(done.stdout, "hello")
    assert len(hello["topology"]) == 4
    assert len(lines(done.stdout, "interval")) == 2


@pytest.mark.parametrize("verb", by_day(["topology", "doctor", "timers"], ["topology", "doctor"]))
def test_machine_verbs_ask_the_remote_machine(hosts: fake_ssh.Hosts, verb: str) -> None:
    done = here(verb, "--host", "n7", "--json")
    assert done.returncode == 0, done.stderr
    assert len(hosts.pids("n7")) == 1


def test_remote_without_a_host_is_a_mistake() -> None:
    assert here("stat", "--remote", "/x", "-n1").returncode == 2


def test_output_of_a_start_file_is_reported(hosts: fake_ssh.Hosts) -> None:
    hosts.set("n7", "banner")
    done = here("stat", "--host", "n7", "-n1")
    assert done.returncode == 3
    assert "start file" in done.stderr

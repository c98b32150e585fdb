"""Hosts that send anything, and system calls that are refused."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import fake_ssh
import pytest
import restricted_run
import synth
from command import argv, run_in_process
from nightly import cases_by_day
from waiting import MAX_WAIT_S

from perfprobe import wire
from perftop.base.errors import Failed
from perftop.process import launch, streams
from perftop.verbs import doctor, machine

EVIL = "\x1b]0;owned\x07\x9b2J\u202e\r\n$(touch owned)\0"
"""Sequences that set a terminal's title, clear its screen and reverse its text."""
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_ssh.Hosts]:
    """The working directory and the home directory are empty and must remain so."""
    hosts, home = fake_ssh.install(tmp_path, monkeypatch), tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(home))
    yield hosts
    assert not list(home.iterdir())


@pytest.fixture
def hanging_hosts(hosts: fake_ssh.Hosts, monkeypatch: pytest.MonkeyPatch) -> fake_ssh.Hosts:
    """Hosts that keep their connections; these are cut soon after the end of a verb."""
    monkeypatch.setattr(launch, "GRACE_S", 0.05)
    return hosts


LIMIT_S = 0.51
"""Limit of the waits for a host in s; printed as 1 s."""
HANGING_BEHAVIOURS = {
    "a byte now and then": "while True: os.write(1, b'{'); time.sleep(0.05)",
    "words on stderr": "while True: os.write(2, b'wait\\n' * 99)",
    "nothing": "time.sleep(60)",
    "closed outputs": "os.close(1); os.close(2); time.sleep(60)",
}


@pytest.mark.parametrize("behaviour", HANGING_BEHAVIOURS)
def test_a_host_that_never_answers_times_out(
    hanging_hosts: fake_ssh.Hosts, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    monkeypatch.setattr(launch, "MAX_ANSWER_S", LIMIT_S)
    hanging_hosts.set("n7", f"code {HANGING_BEHAVIOURS[behaviour]}")
    result = run_in_process("doctor", "--host", "n7")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "perftop: n7: the probe did not answer within 1 s\n"


def test_the_size_of_an_answer_is_limited(
    hosts: fake_ssh.Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "MAX_ANSWER_BYTES", 1 << 20)
    hosts.set("n7", "code while True: os.write(1, b'[' * 65536)")
    result = run_in_process("topology", "--host", "n7")
    assert result.stderr == "perftop: n7: the probe's answer is larger than 1 MB\n"


@pytest.mark.parametrize(("answer", "reason"), [
    ("", "its output is not a perfprobe answer"),
    ("[]", "its output is not a perfprobe answer"),
    ("[" * 100_000, "its output is not a perfprobe answer"),
    ("{}", r"cannot be parsed \(KeyError: 'cpus'\); .*same perftop version"),
    ('{"cpus": 5}', "cannot be parsed"),
    ('{"cpus": [{"cpu": 1e999, "online": true}]}', "cannot be parsed"),
])  # fmt: skip
def test_an_answer_of_another_structure_is_refused(
    hosts: fake_ssh.Hosts, answer: str, reason: str
) -> None:
    hosts.set("n7", f"code os.write(1, {answer!r}.encode())")
    result = run_in_process("topology", "--host", "n7")
    assert (result.returncode, result.stdout) == (3, "")
    assert re.match(rf"perftop: n7: .*{reason}", result.stderr), result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["doctor", "stat", "record"])
def test_text_on_stderr_does_not_control_the_terminal(hosts: fake_ssh.Hosts, verb: str) -> None:
    hosts.set("n7", f"code sys.stderr.write({EVIL!r} * 99); sys.exit(1)")
    output = ("-o", "recording") if verb == "record" else ()
    result = run_in_process(verb, "--host", "n7", *output)
    assert result.returncode == 1
    assert not CONTROL.search(result.stdout + result.stderr)


def places(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(places, inner))


def mutated_answer(value: Any, chance: random.Random, share: float) -> Any:
    """The value with a share of its parts removed or replaced."""
    others: tuple[Any, ...] = None, True, -1, 10**30, 1e300, "", EVIL, [], [[]], {}, {"x": 1}
    if chance.random() < share:
        return chance.choice(others)
    if isinstance(value, dict):
        return {
            key: mutated_answer(inner, chance, share)
            for key, inner in value.items() if chance.random() > share / 2
        }  # fmt: skip
    if isinstance(value, list):
        return [mutated_answer(inner, chance, share) for inner in value]
    return EVIL if isinstance(value, str) and chance.random() < share else value


@pytest.mark.parametrize(
    ("verb", "draw"), [("doctor", doctor.doctor_lines), ("topology", machine.topology_lines)]
)
def test_any_answers_are_displayed_or_refused(
    monkeypatch: pytest.MonkeyPatch, verb: str, draw: machine.FormatAnswer
) -> None:
    answer = json.loads(run_in_process(verb, "--json").stdout)
    args, chance, drawn = argparse.Namespace(host="n7", json=False), random.Random(verb), 0
    share = 1 / places(answer)
    for _ in range(300):
        mutant = mutated_answer(answer, chance, share)
        monkeypatch.setattr(machine, "ask_machine", lambda *_, mutant=mutant: mutant)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            try:
                machine.ask_and_print(args, draw, verb)
                drawn += 1
            except Failed as failed:
                assert failed.status == 3
        assert not CONTROL.search(out.getvalue())
    assert 10 < drawn < 290


# --- streams


HELLO = synth.hello([synth.REF])
SAMPLES = [
    wire.encode(synth.frame(HELLO, seq, {"ref": [seq * 10**8, seq * 10**8]})) for seq in range(60)
]


def sending_command(*pieces: bytes, last_statement: str = "time.sleep(60)") -> str:
    return f"code os.write(1, {b''.join(pieces)!r}); {last_statement}"


@pytest.mark.parametrize("verb", ["stat", "why", "record"])
def test_a_stalled_stream_ends_the_verb(
    hanging_hosts: fake_ssh.Hosts, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(streams, "MAX_HELLO_WAIT_S", LIMIT_S)
    output = ("-o", "../recording") if verb == "record" else ()
    for pieces in ([], [wire.encode(HELLO)[:9]]):
        hanging_hosts.set("n7", sending_command(*pieces))
        result = run_in_process(verb, "--host", "n7", "--duration", "1s", *output)
        assert result.returncode == 3
        assert result.stderr == "perftop: n7: connected, but received nothing for 1 s\n"


@pytest.mark.parametrize("arguments", [
    ("stat", "--duration", "2s"), ("stat", "--json", "--duration", "2s"),
    ("why", "--duration", "2s"), ("fleet", "--json", "-n", "2"),
    ("record", "--duration", "2s", "-o", "../\x1b]0;owned\x07\r\nfile"),
])  # fmt: skip
def test_a_stream_with_any_text_does_not_control_the_terminal(
    hanging_hosts: fake_ssh.Hosts, arguments: tuple[str, ...]
) -> None:
    hello = dataclasses.replace(
        HELLO, perftop=EVIL, host=EVIL, kernel=EVIL, virtualisation=EVIL, labels={EVIL: EVIL},
        command=[EVIL], settings={EVIL: EVIL}, missing=[wire.Missing(EVIL, EVIL, EVIL)],
        identity=wire.Identity(name=EVIL),
    )  # fmt: skip
    data = {"text": EVIL, "why": EVIL, "argv": [EVIL]}
    notes = [
        wire.encode(wire.Note(kind, HELLO.raw_ns, EVIL, data))
        for kind in ("mark", "run-start", "gap", "warning", EVIL)
    ]
    bye = wire.encode(wire.Bye(EVIL, 1))
    hanging_hosts.set(
        "n7", sending_command(wire.encode(hello), *SAMPLES[:5], *notes, *SAMPLES[5:], bye)
    )
    verb, *more = arguments
    result = run_in_process(verb, *(("n7",) if verb == "fleet" else ("--host", "n7")), *more)
    assert result.returncode in {0, 1, 3}
    assert "owned" in result.stdout + result.stderr
    assert not CONTROL.search(result.stdout + result.stderr)


# --- refused system calls


SIM = "--source", "sim:smt-mix,cpus=2"
COMMAND = "--", "sh", "-c", "exit 7"


def run_with_refused_call(refused_call: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    if "=E" in refused_call and (why := restricted_run.unavailable()):
        pytest.skip(why)
    command = [sys.executable, "-ISB", restricted_run.__file__, refused_call, *argv(*arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=MAX_WAIT_S, check=False)


@pytest.mark.parametrize(
    ("call", "verb"),
    cases_by_day(
        [*product(("getrusage", "pidfd_open"), ("stat", "why"))], [("pidfd_open", "stat")]
    ),
)
def test_the_status_of_a_command_is_kept_without_optional_system_calls(
    call: str, verb: str
) -> None:
    result = run_with_refused_call(f"{call}=EPERM", verb, *SIM, *COMMAND)
    assert (result.returncode, "Traceback" in result.stderr) == (7, False)


REFUSALS = [
    ("sendto=EPERM", 3, "cannot wait for events: Operation not permitted"),
    ("recvfrom=ENOSYS", 3, "cannot wait for events: Function not implemented"),
    ("socketpair=EPERM", 3, "cannot wait for events: Operation not permitted"),
    ("epoll_ctl=EPERM", 3, "cannot wait for events: Operation not permitted"),
    ("epoll_wait=EPERM", 3, "cannot wait for events: Operation not permitted"),
    ("poll=ENOSYS", 3, "cannot wait for events: Function not implemented"),
    ("rt_sigaction=EPERM", 1, "a system call was refused"),
    ("uname=EPERM", 1, "a system call was refused"),
    ("clone=EPERM", 126, "cannot start sh: Operation not permitted"),
    ("AS=80000000", 3, "the memory limit, 80 MB, is too low"),
    ("DATA=60000000", 3, "the memory limit, 60 MB, is too low"),
    ("NPROC=1", 126, "cannot start sh: Resource temporarily unavailable; see ulimit -u"),
]
BY_DAY = ("sendto=EPERM", "rt_sigaction=EPERM", "clone=EPERM", "AS=80000000", "DATA=60000000")


@pytest.mark.parametrize(
    ("problem", "status", "message"),
    cases_by_day(REFUSALS, [case for case in REFUSALS if case[0] in BY_DAY]),
)
def test_refused_calls_are_reported_with_one_message(
    problem: str, status: int, message: str
) -> None:
    result = run_with_refused_call(problem, "stat", *SIM, *COMMAND)
    assert (result.returncode, result.stderr.count("\n")) == (status, 1), result.stderr
    assert message in result.stderr


def test_a_fleet_reports_refused_threads_with_one_message() -> None:
    result = run_with_refused_call("clone3=EPERM", "fleet", "sim:steady", "--json", "-n", "1")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1), result.stderr
    assert "cannot start a thread" in result.stderr


def test_a_fleet_waits_for_the_ends_of_its_probes_although_sleep_is_refused() -> None:
    problem = "clock_nanosleep=ENOSYS"
    result = run_with_refused_call(problem, "fleet", "sim:steady", "--json", "-n", "1")
    assert (result.returncode, result.stderr) == (0, "")

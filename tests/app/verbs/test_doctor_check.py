"""`doctor --check`: conditions of the machine, compared with rules, and the exit status."""

from __future__ import annotations

from typing import Any

import pytest

from perftop import cli
from perftop.verbs import doctor, machine
from perftop.verbs.doctor import RULES, rule_outcome

GUEST = {"what": "turbo", "state": "unknown", "now": "set by the host", "change": None, "value": ""}
READY = {"what": "CPU quota", "state": "ready", "now": "none", "change": None, "value": "none"}
QUOTA = {
    "what": "CPU quota",
    "state": "matters",
    "now": "0.5 CPUs",
    "change": "more",
    "value": "0.5",
}
ITEMS: list[dict[str, Any]] = [
    READY,
    {"what": "CPU mask", "state": "ready", "now": "none", "change": None, "value": "none"},
    {"what": "other load", "state": "ready", "now": "0.1", "change": None, "value": "idle"},
    {"what": "governor", "state": "matters", "now": "powersave", "change": "echo",
     "value": "powersave"},
    GUEST,
]  # fmt: skip


def check(monkeypatch: pytest.MonkeyPatch, items: list[dict[str, Any]], *rules: str) -> int:
    monkeypatch.setattr(machine, "ask_machine", lambda *_: {"readiness": items})
    return cli.main(["doctor", "--check", *rules])


@pytest.mark.parametrize(("rule", "item", "state"), [
    ("quota", READY, "holds"),
    ("quota=none", READY, "holds"),
    ("quota=2", READY, "broken"),
    ("quota", QUOTA, "broken"),
    ("quota=0.5", QUOTA, "holds"),
    ("turbo=on", GUEST, "unknown"),
    ("turbo", None, "unknown"),
])  # fmt: skip
def test_a_rule_without_a_value_requires_the_best_state(
    rule: str, item: dict[str, Any] | None, state: str
) -> None:
    items = {} if item is None else {RULES[rule.partition("=")[0]]: item}
    assert rule_outcome(rule, items).state == state


@pytest.mark.parametrize(("rules", "status"), [
    (("quota", "mask", "load"), 0),
    (("governor=powersave",), 0),
    (("governor=performance", "quota"), 1),
    (("turbo=on",), 1),  # the condition is required, but unknown
])  # fmt: skip
def test_the_exit_status_is_that_of_all_rules(
    monkeypatch: pytest.MonkeyPatch, rules: tuple[str, ...], status: int
) -> None:
    assert check(monkeypatch, ITEMS, *rules) == status


def test_unknown_conditions_fulfil_the_default_rules(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(monkeypatch, ITEMS) == 1  # the condition fails because of the governor
    lines = capsys.readouterr().out.splitlines()
    assert [line[0] for line in lines if line[0] != " "] == ["✗", "?", "✓", "✓", "✓"]
    assert any("to change: echo" in line for line in lines)
    fast = {"what": "governor", "state": "ready", "now": "performance", "value": "performance"}
    items = [item for item in ITEMS if item["what"] != "governor"] + [fast | {"change": None}]
    assert check(monkeypatch, items) == 0


def test_a_mistyped_condition_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(monkeypatch, ITEMS, "goveror=performance") == 2
    assert "did you mean governor?" in capsys.readouterr().err


def test_all_conditions_of_the_probe_have_a_rule() -> None:
    from perfprobe.instruments import disturbance

    assert disturbance.condition_states().keys() == set(RULES.values())
    assert doctor.DEFAULT_RULES

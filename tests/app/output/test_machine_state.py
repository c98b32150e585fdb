"""The settings of a machine, read from a recording."""

from __future__ import annotations

import dataclasses

import exported
import pytest

from perftop.output.machine_state import differs, label, shown, state
from perftop.session.session import Session


def printed(spec: str, **more: object) -> dict[str, object]:
    found = exported.messages(spec, 1)
    session = Session(dataclasses.replace(exported.hello(found), **more))  # type: ignore[arg-type]
    for _ in session.play(found[1:]):
        pass
    return state(session)


def test_limits_of_all_packages_are_added_up() -> None:
    one, two = (printed(f"sim:steady,cpus=8,packages={n}") for n in (1, 2))
    assert isinstance(one["power_limit_w"], float)
    assert two["power_limit_w"] == pytest.approx(2 * one["power_limit_w"])
    assert two["packages"] == 2


def test_settings_are_printed_and_bounded() -> None:
    settings = {"governor": "powersave"} | {f"setting {i}": "x" * 900 for i in range(900)}
    found = printed("sim:steady,cpus=2", settings=settings)
    assert found["governor"] == "powersave"
    assert len(found) < 100
    assert max(len(str(value)) for value in found.values()) <= 200


def test_values_have_words_and_small_differences_are_none() -> None:
    assert (label("power_limit_w"), shown("power_limit_w", 205.0)) == ("power limit PL1", "205 W")
    assert (label("idle_governor"), shown("idle_governor", "menu")) == ("idle governor", "menu")
    assert shown("max_hz", None) == "n/a"
    assert not differs(250.0, 250.3)
    assert differs(250.0, 251.0)
    assert differs("on", "off")

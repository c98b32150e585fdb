"""Parsing the specification of a simulated machine."""

from __future__ import annotations

import pytest
from sim_streams import SAMPLE_NS

from perfprobe.sources.sim.machine import Spec, parse_spec
from perfprobe.sources.sim.source import SimSource


def test_omitted_parameters_have_defaults() -> None:
    assert parse_spec("sim") == parse_spec("sim:") == parse_spec("sim:smt-mix") == Spec()
    assert parse_spec("guest") == Spec("guest", 2, 1, 1)
    assert parse_spec("halts,cpus=64,speed=max") == Spec("halts", 64, 2, speed=None)
    assert parse_spec("sim:idle,cpus=8,packages=2,smt=4,seed=7,speed=2.5,epoch=5") == Spec(
        "idle", 8, 2, 4, 7, 2.5, 5
    )


@pytest.mark.parametrize(("text", "message"), [
    ("sim:nonsense", "unknown scenario 'nonsense'; known: idle, steady"),
    ("sim:idle,cpus=x", "cpus=x: a number from 1 to 4096"),
    ("sim:idle,cpus=4098", "cpus=4098: a number from 1 to 4096"),
    ("sim:idle,cpus=-2", "cpus=-2"),
    ("sim:idle,cpus=²", "cpus=²"),
    ("sim:idle,cpus=" + "9" * 9999, "a number from 1 to 4096"),
    ("sim:idle,cpus=15", "15 CPUs cannot be divided into 1 packages of cores with 2"),
    ("sim:idle,cpus=48,packages=5", "48 CPUs cannot be divided"),
    ("sim:idle,smt=3", "smt=3: a core has 1, 2, 4 or 8 threads"),
    ("sim:idle,speed=fast", "speed=fast: a number"),
    ("sim:idle,speed=nan", "speed=nan"),
    ("sim:idle,speed=0", "speed=0"),
    ("sim:idle,seed=1_0", "seed=1_0"),
    ("sim:idle,cores=4", "unknown option 'cores'; known: cpus"),
    ("sim:idle,cpus", "'cpus' is not KEY=VALUE"),
    ("sim:idle,", "'' is not KEY=VALUE"),
    ("sim:idle,seed=1,seed=2", "seed is given twice"),
    ("sim:hybrid,cpus=18", "hybrid has one package"),
    ("sim:hybrid,smt=4", "hybrid has one package"),
    ("sim:guest,smt=2", "a guest has no visible siblings"),
])  # fmt: skip
def test_a_mistake_is_named_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_spec(text)
    assert str(caught.value).startswith("sim: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_impossible_samples_and_cpus_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 ms"):
        SimSource("sim", 1000)
    with pytest.raises(ValueError, match="no CPU 16 here; there are 0-15"):
        SimSource("sim", SAMPLE_NS, "0,16")

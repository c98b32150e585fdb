"""A scripted machine with a known truth: demo, tests, screenshots, scale."""

from perfprobe.sources.sim.source import Sim, open_sim
from perfprobe.sources.sim.spec import SCENARIOS, Spec, parse
from perfprobe.sources.sim.truth import truth

__all__ = ["SCENARIOS", "Sim", "Spec", "open_sim", "parse", "truth"]

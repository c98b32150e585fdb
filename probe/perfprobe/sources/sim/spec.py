"""The argument of --source, `sim[:SCENARIO[,KEY=VALUE…]]`, parsed."""

from __future__ import annotations

from perfprobe.errors import Usage
from perfprobe.frozen import frozen

SCENARIOS = (
    "idle", "steady", "jitter", "smt-mix", "turbo-drop", "license", "throttle", "neighbour",
    "memory", "warmup", "halts", "hotplug", "hybrid", "guest", "demo",
)  # fmt: skip
MOST_CPUS = 4096
KEYS = ("cpus", "packages", "smt", "seed", "speed", "epoch", "slots")


@frozen
class Spec:
    scenario: str = "smt-mix"
    cpus: int = 16
    packages: int = 1
    smt: int = 2
    seed: int = 1
    speed: float | None = 1.0
    """Simulated seconds per second; None: as fast as the reader takes frames."""
    epoch: int | None = None
    """Unix seconds at which the simulated machine starts; None: now."""

    slots: bool = False
    """It counts issue slots, and those given to the sibling."""

    @property
    def reproducible(self) -> bool:
        return self.speed is None or self.epoch is not None


def parse(text: str) -> Spec:
    """Parses the argument, with or without its leading `sim:`. Raises ValueError."""
    body = "" if text == "sim" else text.removeprefix("sim:")
    scenario, *options = body.split(",")
    scenario = scenario or "smt-mix"
    if scenario not in SCENARIOS:
        raise Usage(f"sim: unknown scenario {scenario!r}; known: {', '.join(SCENARIOS)}")
    asked = _options(options)
    guest = scenario == "guest"
    cpus = _integer(asked, "cpus", 2 if guest else 16, 1, MOST_CPUS)
    one = guest or scenario == "hybrid"
    spec = Spec(
        scenario,
        cpus,
        _integer(asked, "packages", 2 if cpus >= 32 and not one else 1, 1, 64),
        _integer(asked, "smt", 1 if guest else 2, 1, 8),
        _integer(asked, "seed", 1, 0, 2**32 - 1),
        _speed(asked.get("speed", "1")),
        _integer(asked, "epoch", 0, 0, 2**33) if "epoch" in asked else None,
        bool(_integer(asked, "slots", 0, 0, 1)),
    )
    _check_shape(spec)
    return spec


def _options(options: list[str]) -> dict[str, str]:
    asked: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise Usage(f"sim: {option!r} is not KEY=VALUE")
        if key not in KEYS:
            raise Usage(f"sim: unknown option {key!r}; known: {', '.join(KEYS)}")
        if key in asked:
            raise Usage(f"sim: {key} is given twice")
        asked[key] = value
    return asked


def _integer(asked: dict[str, str], key: str, default: int, least: int, most: int) -> int:
    text = asked.get(key)
    if text is None:
        return default
    # int() alone would accept signs, underscores and blanks.
    if not (text.isascii() and text.isdigit()) or not least <= int(text[:20]) <= most:
        raise Usage(f"sim: {key}={text}: a number from {least} to {most} was expected")
    return int(text)


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.001 <= speed <= 1e6:  # also refuses nan
        raise Usage(f"sim: speed={text}: a number from 0.001 to 1000000, or max, was expected")
    return speed


def _check_shape(spec: Spec) -> None:
    if spec.smt not in {1, 2, 4, 8}:
        raise Usage(f"sim: smt={spec.smt}: a core has 1, 2, 4 or 8 threads")
    if spec.scenario == "guest" and spec.smt != 1:
        raise Usage(f"sim: smt={spec.smt}: a guest is told nothing of siblings, smt=1")
    if spec.scenario == "hybrid":
        if spec.packages != 1 or spec.smt != 2 or spec.cpus % 4:
            raise Usage(
                "sim: hybrid has one package, smt=2 on its P cores, and a multiple of 4 CPUs"
            )
    elif spec.cpus % (spec.packages * spec.smt):
        raise Usage(
            f"sim: {spec.cpus} CPUs cannot be divided into {spec.packages} packages "
            f"of cores with {spec.smt} threads"
        )

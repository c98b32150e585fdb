"""The shapes and colours of the screen, each as it is drawn, with its meaning."""

from __future__ import annotations

from perftop.draw import theme
from perftop.draw.strips import Run

_RAMP: list[Run] = [(theme.BOTH, f"heat{level}") for level in range(theme.HEAT)]
SHAPES: tuple[tuple[list[Run], str], ...] = (
    ([(theme.BOTH * 4, "both")], "both siblings of a core are active"),
    ([(theme.LP0 * 4, "lp0")], "only the first sibling (lp0): the upper half of the core"),
    ([(theme.LP1 * 4, "lp1")], "only the second sibling (lp1): the lower half"),
    ([(theme.NEITHER * 4, "neither")], "neither"),
    ([(theme.UNKNOWN * 4, "unknown")], "not counted here: any of the states around it"),
    ([(theme.CLOCK * 3 + theme.CLOCK_END, "clock"), (" ", "text"), (theme.CEILING, "dim")],
     "clock while running, from 0, and what turbo allows with as many cores active"),
    ([(theme.DROPPED, "text"), (" ", "text"), (theme.DROPPED, "alarm")],
     "clock below that; red: below the others of its package, too"),
    ([("▅▅▅▅", "user-8"), (" ", "text"), ("▅▅▅▅", "kernel-8")],
     "charts of a CPU: user time, and the kernel's on top of it"),
    ([(theme.STEAL * 4, "hot/hot-back"), (" ", "text"), ("▀▀▀▀", "steal")],
     "steal hangs from the top: the hypervisor ran something else; red while it is much"),
    ([("━━", "lp0"), ("━━", "dim"), ("──", "rule")], "a task runs, waits for a CPU, sleeps"),
    (_RAMP, "heat: from low to high"),
    ([("12.3", "alarm")], "red: an episode runs here now, and this is what it costs"),
    ([("12.3", "warn")], "amber: near a limit"),
    ([(theme.SUSPECT + "12.3", "dim")], "a sample that cannot be true was left out"),
    ([(theme.MISSING, "faint")], "not known; the reasons are at the end of this page"),
    ([(theme.STEP, "dim")], "what turbo allows has changed (page of a core)"),
)  # fmt: skip
_KINDS = {
    "turbo-drop": "turbo-drop: the clock is below what turbo allows",
    "throttle": "throttle: heat slows a package",
    "involuntary-halt": "involuntary halt: the core stood still although it had work",
    "neighbour": "neighbour: a CPU loses to another task, to its sibling or to another guest",
    "steal": "steal: the hypervisor took time from this guest",
    "license": "license: wide SIMD code asks for a lower clock",
    "smi": "SMI: firmware stopped all CPUs",
    "ramp": "ramp: a clock climbed from idle to where it stays",
    "suspect": "suspect: counters that cannot be true",
    "offline": "a CPU went offline",
    "online": "a CPU came back",
}
EPISODES = tuple((sign, _KINDS[kind]) for kind, sign in theme.EPISODES.items())
"""Sign and meaning of each kind, the worst first."""

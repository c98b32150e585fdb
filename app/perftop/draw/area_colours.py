"""Colours of areas in charts, by theme. An area has GRADES steps from its base outwards, `user-0`
to `user-11`, so that a large one shows where it begins. Single colours have a plain name.

Steps lie between the ground and the bars of the same meaning, so red stands out beside them.
"""

from __future__ import annotations

from functools import lru_cache

from textual.color import Color

GRADES = 12
"""Number of steps of an area's colours."""
_DARK: dict[str, tuple[str, ...]] = {
    "user": ("#1b385c", "#3f7cca"), "kernel": ("#2c6a76", "#62b5be"),
    "ipc": ("#174a50", "#4aa9b0"), "loss": ("#4a2629", "#9a4442"),
    "both": ("#946c1b", "#e1a827"), "lp0": ("#346cb2", "#53a0f5"), "lp1": ("#7a58b0", "#b387f5"),
    "steal": ("#84505b",), "hot": ("#b0443f",), "hot-back": ("#5c2628",),
    "over": ("#b06b78",), "over-back": ("#3c252d",), "drop-back": ("#33191d",),
    "ground": ("#0d1117",), "chosen-back": ("#1c242d",),
}  # fmt: skip
_LIGHT: dict[str, tuple[str, ...]] = {
    "user": ("#c6daf3", "#4a85d0"), "kernel": ("#93d3cf", "#23877f"),
    "ipc": ("#b9e0e0", "#3a979c"), "loss": ("#f3cdc9", "#d9685f"),
    "both": ("#ecd59b", "#c48f14"), "lp0": ("#a9cbf2", "#3a82d8"), "lp1": ("#d6c4f3", "#8f63d6"),
    "steal": ("#bd8893",), "hot": ("#d9544f",), "hot-back": ("#f6c9c6",),
    "over": ("#a8606e",), "over-back": ("#f0dde1",), "drop-back": ("#fbe4e2",),
    "ground": ("#ffffff",), "chosen-back": ("#e8eef5",),
}  # fmt: skip
_SAFE: dict[str, tuple[str, ...]] = _DARK | {
    "kernel": ("#5a8496", "#a6d8ea"), "ipc": ("#17504a", "#3fb5a3"), "loss": ("#4a2a2d", "#9c484d"),
    "both": ("#948c3c", "#efe263"), "lp0": ("#2a5fae", "#4592ff"), "lp1": ("#8f7690", "#e3bcdd"),
    "hot": ("#b0484c",), "hot-back": ("#57282c",),
}  # fmt: skip
_ANSI: dict[str, tuple[str, ...]] = {
    "user": ("blue",), "kernel": ("cyan",), "ipc": ("cyan",), "loss": ("bright_red",),
    "both": ("default",), "lp0": ("bright_blue",), "lp1": ("bright_magenta",),
    "steal": ("magenta",), "hot": ("bright_red",), "over": ("magenta",),
    **dict.fromkeys(("hot-back", "over-back", "drop-back", "ground", "chosen-back"), ("default",)),
}  # fmt: skip
_THEMES = {
    "perftop-dark": _DARK, "perftop-light": _LIGHT, "perftop-safe": _SAFE, "perftop-ansi": _ANSI,
}  # fmt: skip
AREAS = ("user", "kernel", "ipc", "loss", "both", "lp0", "lp1")
"""Those with steps."""


@lru_cache(maxsize=8)
def colours(theme: str) -> dict[str, str]:
    """Colours by key."""
    table = _THEMES[theme]
    found = {key: ends[0] for key, ends in table.items() if key not in AREAS}
    for key in AREAS:
        for step in range(GRADES):
            found[f"{key}-{step}"] = _step(table[key], step)
    return found


def _step(ends: tuple[str, ...], step: int) -> str:
    if len(ends) == 1:
        return ends[0]
    low, high = map(Color.parse, ends)
    return low.blend(high, (step + 0.5) / GRADES).hex

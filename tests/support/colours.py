"""Perception of colours: luminance, contrast, distance, and colour vision deficiencies."""

from __future__ import annotations

import math
from itertools import starmap

Triple = tuple[float, float, float]

EYES: dict[str, tuple[Triple, Triple, Triple]] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}
"""Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision
Deficiency", 2009, severity 1.0: matrices for linear RGB."""


def color_seen_by(color: str, eyes: str = "normal") -> Triple:
    """The colour `#rrggbb` in linear RGB, as these eyes perceive it."""
    levels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in levels]
    r, g, b = (sum(m * c for m, c in zip(row, linear, strict=True)) for row in EYES[eyes])
    return min(1, max(0, r)), min(1, max(0, g)), min(1, max(0, b))


def luminance(color: str, eyes: str = "normal") -> float:
    r, g, b = color_seen_by(color, eyes)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    """Contrast by WCAG 2, from 1 to 21."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: Triple) -> Triple:
    """Linear RGB in CIELAB under D65."""
    rows = ((0.4124564, 0.3575761, 0.1804375, 0.95047), (0.2126729, 0.7151522, 0.0721750, 1.0),
            (0.0193339, 0.1191920, 0.9503041, 1.08883))  # fmt: skip
    r, g, b = rgb

    def squeezed(kr: float, kg: float, kb: float, white: float) -> float:
        t = (kr * r + kg * g + kb * b) / white
        return math.cbrt(t) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116

    x, y, z = starmap(squeezed, rows)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def ciede2000(first_colour: Triple, second_colour: Triple) -> float:
    """The distance of two colours in CIELAB; a distance of about 2 is just visible side by side."""
    (l1, a1, b1), (l2, a2, b2) = first_colour, second_colour
    c7 = ((math.hypot(a1, b1) + math.hypot(a2, b2)) / 2) ** 7
    stretch = 1.5 - 0.5 * math.sqrt(c7 / (c7 + 25**7))
    c1, c2 = math.hypot(stretch * a1, b1), math.hypot(stretch * a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, stretch * a)) for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    hue = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    light, c, h = (l1 + l2) / 2, (c1 + c2) / 2, h1 + turn / 2 if c1 * c2 else h1 + h2
    t = 1 + sum(
        weight * math.cos(math.radians(times * h + more))
        for weight, times, more in ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.2, 4, -63))
    )
    bell = math.exp(-((((h - 275 + 180) % 360 - 180) / 25) ** 2))
    twist = -2 * math.sqrt(c**7 / (c**7 + 25**7)) * math.sin(math.radians(60 * bell))
    dl = (l2 - l1) / (1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2))
    dc, dh = (c2 - c1) / (1 + 0.045 * c), hue / (1 + 0.015 * c * t)
    return math.sqrt(dl**2 + dc**2 + dh**2 + twist * dc * dh)


def distance(a: str, b: str, eyes: str = "normal") -> float:
    return ciede2000(lab(color_seen_by(a, eyes)), lab(color_seen_by(b, eyes)))

"""Names, labels and headings of the text that Prometheus reads: OpenMetrics or the older format.

Metric names end with the full name of their unit. Both formats write the samples of a family alike,
but not its heading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perftop.base.text import escaped

UNITS = ("hertz", "seconds", "watts", "celsius", "ratio", "joules")
END_LINE = "# EOF\n"
"""Last line of an OpenMetrics page. A page in the older format has no such line."""


@dataclass(frozen=True)
class Heading:
    name: str
    """Name of the family, without the suffix that its samples have."""
    kind: Literal["counter", "gauge", "info"]
    help: str

    @property
    def unit(self) -> str:
        """The unit at the end of the name; '' if the name has no unit."""
        last = self.name.rpartition("_")[2]
        return last if last in UNITS else ""

    @property
    def sample(self) -> str:
        suffix = {"counter": "_total", "info": "_info"}
        return self.name + suffix.get(self.kind, "")

    @property
    def openmetrics(self) -> str:
        unit = f"# UNIT {self.name} {self.unit}\n" if self.unit else ""
        kind = f"# TYPE {self.name} {self.kind}\n"
        return f"# HELP {self.name} {escaped_value(self.help)}\n{kind}{unit}"

    @property
    def text(self) -> str:
        """The heading in the older format, version 0.0.4. Its name is that of the samples, and its
        type for an `info` family is gauge."""
        kind = "gauge" if self.kind == "info" else self.kind
        help_ = self.help.replace("\\", r"\\").replace("\n", r"\n")
        return f"# HELP {self.sample} {help_}\n# TYPE {self.sample} {kind}\n"


def labels(**of: object) -> str:
    """The labels of a series as text; '' if the series has no labels."""
    inner = ",".join(f'{key}="{escaped_value(str(value))}"' for key, value in of.items())
    return f"{{{inner}}}" if inner else ""


def escaped_value(text: str) -> str:
    """Escapes text for a label value or a help line. The format defines escapes for three
    characters only; other special characters are escaped in the text itself."""
    return escaped(text).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

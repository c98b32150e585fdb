"""The text that Prometheus reads, as OpenMetrics or in the older form: names, labels, headings.

Names end with their unit in full. The samples of a family are the same in both; its heading is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perftop.base.text import escaped

UNITS = ("hertz", "seconds", "watts", "celsius", "ratio", "joules")
END = "# EOF\n"
"""Last line of OpenMetrics. The older form has none."""


@dataclass(frozen=True)
class Heading:
    name: str
    """Name of the family, without the suffix of its samples."""
    kind: Literal["counter", "gauge", "info"]
    help: str

    @property
    def unit(self) -> str:
        """The unit that the name ends with; '' if there is none."""
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
        """The heading in the older form, version 0.0.4. It has the name of the samples, and
        information is a gauge."""
        kind = "gauge" if self.kind == "info" else self.kind
        help_ = self.help.replace("\\", r"\\").replace("\n", r"\n")
        return f"# HELP {self.sample} {help_}\n# TYPE {self.sample} {kind}\n"


def labels(**of: object) -> str:
    """The labels of a series; '' without any."""
    inner = ",".join(f'{key}="{escaped_value(str(value))}"' for key, value in of.items())
    return f"{{{inner}}}" if inner else ""


def escaped_value(text: str) -> str:
    """The text as a label's value or as help. The format has escapes for three characters only;
    others are escaped in the text itself."""
    return escaped(text).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

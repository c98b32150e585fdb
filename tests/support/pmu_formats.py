"""Core PMUs of five machines as Linux shows them in sysfs: formats and some events, from
arch/x86/events/intel/core.c, arch/x86/events/amd/core.c and the ABI document of
/sys/bus/event_source/devices/PMU/format."""

from __future__ import annotations

from pathlib import Path

import fakeperf
import trees

_INTEL = {
    "event": "config:0-7", "umask": "config:8-15", "edge": "config:18", "pc": "config:19",
    "inv": "config:23", "cmask": "config:24-31",
}  # fmt: skip
_EXTRA = {"in_tx": "config:32", "in_tx_cp": "config:33", "offcore_rsp": "config1:0-63",
          "ldlat": "config1:0-15"}  # fmt: skip
_TOPDOWN = {"slots": "event=0x00,umask=0x4", "topdown-retiring": "event=0x00,umask=0x80",
            "topdown-bad-spec": "event=0x00,umask=0x81", "topdown-fe-bound":
            "event=0x00,umask=0x82", "topdown-be-bound": "event=0x00,umask=0x83"}  # fmt: skip
_LEVEL_2 = {"topdown-heavy-ops": "event=0x00,umask=0x84",
            "topdown-br-mispredict": "event=0x00,umask=0x85",
            "topdown-fetch-lat": "event=0x00,umask=0x86",
            "topdown-mem-bound": "event=0x00,umask=0x87"}  # fmt: skip
_MEMORY = {"mem-loads": "event=0xcd,umask=0x1,ldlat=3"}
_AMD = {
    "event": "config:0-7,32-35", "umask": "config:8-15", "edge": "config:18", "inv": "config:23",
    "cmask": "config:24-31",
}  # fmt: skip

Pmu = tuple[str, int, str | None, dict[str, str], dict[str, str]]
"""Name, type, CPUs of a hybrid, formats, events."""
MACHINES: dict[str, list[Pmu]] = {
    "skylake-sp": [("cpu", 4, None, {**_INTEL, "any": "config:21", **_EXTRA,
                                     "frontend": "config1:0-23"}, _MEMORY)],
    "ice-lake-sp": [("cpu", 4, None, {**_INTEL, **_EXTRA, "frontend": "config1:0-23"},
                     {**_MEMORY, **_TOPDOWN})],
    "sapphire-rapids": [("cpu", 4, None, {**_INTEL, **_EXTRA, "frontend": "config1:0-23"},
                         {**_MEMORY, **_TOPDOWN, **_LEVEL_2})],
    "alder-lake": [
        ("cpu_core", 4, "0,2", {**_INTEL, **_EXTRA, "frontend": "config1:0-23"},
         {**_MEMORY, **_TOPDOWN, **_LEVEL_2}),
        ("cpu_atom", 10, "1,3", {**_INTEL, "offcore_rsp": "config1:0-63", "ldlat": "config1:0-15"},
         {"topdown-retiring": "event=0xc2,umask=0x0", "topdown-bad-spec": "event=0x73,umask=0x0",
          "topdown-fe-bound": "event=0x71,umask=0x0", "topdown-be-bound": "event=0x74,umask=0x0"}),
    ],
    "zen-4": [("cpu", 4, None, _AMD, {})],
}  # fmt: skip


def written(root: Path, machine: str) -> None:
    for name, number, cpus, formats, events in MACHINES[machine]:
        fakeperf.pmu(root, name, number, cpus)
        at = f"{fakeperf.DEVICES}/{name}"
        for term, bits in formats.items():
            trees.put(root, f"{at}/format/{term}", bits + "\n")
        for event, terms in events.items():
            trees.put(root, f"{at}/events/{event}", terms + "\n")

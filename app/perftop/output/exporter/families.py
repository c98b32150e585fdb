"""The families of the endpoint: names, kinds and help. Dashboards and alerts rest on them."""

from __future__ import annotations

from perftop.output.exposition import Heading

SMT = Heading(
    "perftop_smt_seconds", "counter",
    "Time of cores by which of their threads ran. Unknown: doubted, or not told here. "
    "All states sum to the time of the cores.",
)  # fmt: skip
CPU = Heading(
    "perftop_cpu_seconds", "counter",
    "Time of CPUs: at work, idle by the system's choice, idle but polling, halted although there "
    "was work, taken by the hypervisor. Only what could be believed.",
)  # fmt: skip
CYCLES = Heading(
    "perftop_cycles", "counter",
    "Core cycles while not halted. These, instructions and reference cycles are of the same spans.",
)  # fmt: skip
INSTRUCTIONS = Heading("perftop_instructions", "counter", "Instructions retired.")
REFERENCE = Heading(
    "perftop_reference_cycles", "counter",
    "Cycles of the time-stamp counter while not halted; perftop_tsc_hertz of them are a second.",
)  # fmt: skip
BELOW = Heading(
    "perftop_below_ceiling_seconds", "counter",
    "Time in which cores of the package ran below what turbo allows them, by cause.",
)  # fmt: skip
BELOW_CYCLES = Heading(
    "perftop_below_ceiling_cycles", "counter",
    "Cycles that the ceiling would have allowed in that time and that did not come.",
)  # fmt: skip
EPISODES = Heading(
    "perftop_episodes", "counter", "Episodes that have begun; told some seconds later."
)
EPISODE_SECONDS = Heading("perftop_episode_seconds", "counter", "How long episodes ran.")
CEILING = Heading(
    "perftop_ceiling_hertz", "gauge",
    "What turbo allows for certain with as many active cores, mean over the cores.",
)  # fmt: skip
BASE = Heading("perftop_base_hertz", "gauge", "Base clock.")
TSC = Heading("perftop_tsc_hertz", "gauge", "Rate of the time-stamp counter.")
LIMIT = Heading("perftop_power_limit_watts", "gauge", "What the power is limited to.")
TEMPERATURE = Heading("perftop_temperature_celsius", "gauge", "Temperature of the package.")
ENERGY = Heading("perftop_energy_joules", "counter", "Energy of the package.")
DRAM_ENERGY = Heading("perftop_dram_energy_joules", "counter", "Energy of the package's memory.")
MEMORY = Heading(
    "perftop_memory_bytes", "counter", "Bytes between the package and its memory, by direction."
)
SUSPECT = Heading(
    "perftop_suspect_samples", "counter",
    "Samples of CPUs in which a counter could not be believed, by reason.",
)  # fmt: skip
LOST = Heading("perftop_lost_samples", "counter", "Samples of the machine that came too late.")
PROBE = Heading("perftop_probe_cpu_seconds", "counter", "CPU time of the probe.")
EXPORTER = Heading("perftop_exporter_cpu_seconds", "counter", "CPU time of the exporter itself.")
INFO = Heading("perftop", "info", "What measures here, for joins.")
MISSING = Heading(
    "perftop_missing", "gauge", "1 for each family, or part of one, that is not there; and why."
)
SERIES = Heading("perftop_series", "gauge", "Number of series here, this one included.")

RINGS = {
    CYCLES: {"cycles": "all", "kernel_cycles": "kernel"},
    INSTRUCTIONS: {"instructions": "all", "kernel_instructions": "kernel"},
    REFERENCE: {"ref": "all"},
}
"""The families of counts, with the ring of each counter."""

"""Which counters belong to cores, packages or the whole machine, as the table in the wire's
docstring has it; all others belong to CPUs.
"""

from __future__ import annotations

from perfprobe import wire
from perfprobe.frozen import replace

OF: dict[wire.Scope, frozenset[str]] = {
    "core": frozenset({
        "neither_s", "lp0_s", "lp1_s", "both_s", "core_c3", "core_c6", "core_c7", "core_thermal",
        "core_throttles", "core_power_limits", "core_throttled_s", "energy_core_j",
    }),
    "package": frozenset({
        "package_thermal", "package_throttles", "package_power_limits", "package_throttled_s",
        "limit_reasons", "plr_reasons", "power_throttled_s", "energy_j", "energy_ram_j",
        "memory_read_bytes", "memory_write_bytes", "power_limit_w", "power_limit2_w",
        "temperature_c", "ceiling_hz", "e_ceiling_hz", "turbo_disabled", "pstate_limit",
        "tdp_base_hz", "hsmp_limits", "hsmp_prochot", "pcu_ticks", "pcu_transition", "pcu_os",
        "pcu_power", "pcu_vr", "pcu_thermal", "pcu_current", "pcu_prochot_internal",
        "pcu_prochot_external", "pcu_avx256", "pcu_avx512",
    }),
    "machine": frozenset({
        "turbo_off", "max_perf_pct", "pressure_cpu_s", "pressure_io_s", "pressure_memory_s",
        "load_1", "load_5", "load_15", "interrupts", "context_switches", "probe_cpu_s",
    }),
}  # fmt: skip
_SCOPES = {key: scope for scope, keys in OF.items() for key in keys}


def placed(hello: wire.Hello) -> wire.Hello:
    """Hello in which a counter that stands in a block of another scope has a key that nothing asks
    for: it has too many rows, or too few. Its values keep their place in frames."""
    return replace(hello, blocks=[_placed(block) for block in hello.blocks])


def _placed(block: wire.Block) -> wire.Block:
    counters = [
        counter if _SCOPES.get(counter.key, "cpu") == block.scope
        else replace(counter, key=f"{block.scope} {counter.key}")
        for counter in block.counters
    ]  # fmt: skip
    return replace(block, counters=counters)

"""The wire, version 1: what a probe sends through a pipe or a socket, and what a file holds. The
bytes are the same everywhere.

**Framing.** A stream is a sequence of msgpack `bin` objects. Each holds one message: a msgpack map
with string keys and a `type`. The outer `bin` gives the length, so a reader can skip a message that
it does not understand and knows where the last whole one ended. A message has at most MAX_MESSAGE
bytes and a limited number of elements (`encoding.py`). The first message is a `hello`; `frame`s
and `note`s follow in any order; if the probe ended on purpose, the last message is a `bye`. A
stream without a bye was cut off.

**Checksums.** The last key of a message is `check`, the CRC-32 of all bytes of the map before this
value, which is a msgpack uint 32 in 5 bytes. If the hello has one, all other messages except
`packed`, which has its own, must have one. A stream from an older probe has none, so it cannot be
checked.

**Growth.** Readers skip unknown keys, message types, note kinds, counters of blocks and records;
adding them does not raise the version. Only a hello with another `wire` number is refused.

**hello** has all that is needed to read the frames. `?` marks keys that may be left out.

| hello | value |
|---|---|
| perftop, source, host, kernel | text: version of the sender, name of the source, machine |
| wire | 1; without it no reader knows the version |
| wall_ns, raw_ns, tsc? | the same moment by three clocks: Unix, CLOCK_MONOTONIC_RAW, and the TSC |
| sample_ns | time between frames |
| topology | a row for each CPU of the machine |
| cores, packages | lists of CPU numbers, in the order of their rows in frames |
| blocks | tables of counters that are read together, see below |
| stamp? | what the stamps in row heads count: tsc (ticks of tsc_hz), or raw (ns, no TSC is read) |
| tsc_hz?, base_hz? | a rate; null: unknown |
| multipliers?, smt_methods? | see below |
| turbo? | tables of the clock by number of active cores |
| missing? | what is absent, and why |
| selected? | the CPUs that the user asked for; null: all |
| identity?, virtualisation?, boot_id? | which CPU, which hypervisor (null: none), which boot |
| watch? | the job that is watched: a PID, a name, or a control group |
| labels?, command?, interval_ns? | the run's labels, its command, the interval of report lines |
| settings? | settings of the system at the start: a map of names to text, such as governor |
| aliases? | further keys of counters: a map to the key under which the counter is in a block |

| topology row | value |
|---|---|
| cpu, online | number of the CPU, and whether it is online |
| package?, die?, core?, thread?, l3?, node?, type?, siblings? | null: unknown |

| block | value |
|---|---|
| name, scope, counters | scope: cpu, core, package or machine |

| counter | value |
|---|---|
| key, name, unit, origin | text |
| kind?, bits?, scale?, columns?, parts?, cpus? | default: counter, 64, 1.0, 1, [], null |

A rate is {"hz", "origin", "error"?: relative}, a multiplier {"counter", "factor": ticks of the TSC
in one tick, "why", "type"?: core type}, a turbo table {"steps": [{"cores": maximum number of active
cores, "hz"}, ...], "origin", "cpus"?: null for all}, a missing key {"what": key, "why", "fix"?,
"cpus"?}, identity {"vendor", "family", "model", "stepping", "name", "microcode"}, all of them
optional.

**Blocks.** A block is a table of u64 that is read together. Its `scope` defines its rows: one row
for each CPU (in the order of `topology`), core or package, or one row for the machine. A block
`cpu` is always present. Each counter takes `columns` columns, in the order of the counters. Values
are raw and cumulative:
- kind `counter`: counts up, `bits` wide, wraps to zero. Value x `scale` is in `unit`. A counter
  with several columns is their sum; `parts` names them (idle states, for example).
- kind `gauge`: the value now. Signed gauges are two's complement.
- kind `flags`: columns are the number of polls, then for each bit the polls that saw it set;
  `parts` names the bits.
There is no scope for an L3: its counts are on the row of one of its CPUs only.
`cpus` lists the CPUs that have the counter (null: all): hybrids need no second block, nor do
machines on which only some CPUs may be read. Rates, shares and verdicts are never on the wire.

**Known counters.** perftop understands the keys of this table. A counter with another key is
recorded, but not displayed. None is required: a number whose counters are absent is absent, and
`missing` in hello may give the reason. Each must be in a block of the scope given here, otherwise
it is not displayed; the block's name is free, except that of the block `cpu`. `name` and `origin`
are text for people.

| key | scope | kind | unit | what it counts |
|---|---|---|---|---|
| tsc | cpu | counter | cycles | TSC; only where stamps are raw, tsc_hz is its rate |
| ref | cpu | counter | cycles | TSC ticks while not halted: utilisation is ref / TSC |
| cycles | cpu | counter | cycles | core cycles while not halted: the clock is cycles / ref |
| instructions | cpu | counter | instructions | instructions retired |
| kernel_cycles | cpu | counter | cycles | the part of cycles in ring 0 |
| kernel_instructions | cpu | counter | instructions | the part of instructions in ring 0 |
| aperf, mperf | cpu | counter | cycles | APERF, MPERF; witnesses of cycles and ref |
| one_thread | cpu | counter | 1 | reference ticks with the sibling halted |
| any_thread | cpu | counter | 1 | reference ticks with any thread of the core unhalted |
| distributed | cpu | counter | 1 | reference ticks, divided among unhalted threads |
| smi | cpu | counter | 1 | system management interrupts |
| license_1, license_2 | cpu | counter | cycles | core cycles at that SIMD level |
| license_throttle | cpu | counter | cycles | core cycles throttled until a level is granted |
| slots | cpu | counter | events | issue slots of the core's cycles |
| topdown_retiring, topdown_bad_speculation | cpu | counter | events | slots in that category |
| topdown_frontend, topdown_backend | cpu | counter | events | slots in that category |
| topdown_heavy_operations, topdown_branch_mispredicts | cpu | counter | events | part of these |
| topdown_fetch_latency, topdown_memory_bound | cpu | counter | events | part of these |
| smt_contention | cpu | counter | cycles | dispatch slots given to the sibling, in whole cycles |
| perf_enabled_s | cpu | counter | s | time for which the other counters of the block were enabled |
| perf_running_s | cpu | counter | s | time for which they were on the hardware counters |
| busy_s | cpu | counter | s | not idle by the kernel's idle transitions |
| idle_s | cpu | counter | s | idle in states that halt; one column per state |
| poll_s | cpu | counter | s | idle in states that poll |
| idle_entries | cpu | counter | 1 | times that the CPU went idle |
| stat_user_s, stat_nice_s, stat_system_s | cpu | counter | s | /proc/stat |
| stat_idle_s, stat_iowait_s | cpu | counter | s | /proc/stat |
| stat_irq_s, stat_softirq_s, stat_steal_s | cpu | counter | s | /proc/stat |
| l3_memory_bytes | cpu | counter | B | between its L3 and memory, on one CPU of each L3 |
| l3_local_bytes | cpu | counter | B | the part of it with memory of its own node |
| l3_occupancy_bytes | cpu | gauge | B | how much of that L3 is in use |
| base_hz | cpu | gauge | Hz | base clock, of hybrids and Speed Select |
| max_hz | cpu | gauge | Hz | highest clock that policy allows now |
| modulation | cpu | gauge | 1 | register 19AH bits 4:0: clock modulation |
| hwp_epp | cpu | gauge | 1 | HWP energy preference, 0 to 255 |
| hwp_max, hwp_highest | cpu | gauge | 1 | HWP level: highest requested, highest possible |
| neither_s, lp0_s, lp1_s, both_s | core | counter | s | time in each state of the two threads |
| core_c3, core_c6, core_c7 | core | counter | cycles | TSC ticks in it; small cores: c6 with c7 |
| core_thermal | core | flags | 1 | thermal status bits |
| core_throttles, core_power_limits | core | counter | 1 | thermal_throttle: its events |
| core_throttled_s | core | counter | s | thermal_throttle: its time |
| package_thermal | package | flags | 1 | thermal status bits |
| package_throttles, package_power_limits | package | counter | 1 | thermal_throttle: its events |
| package_throttled_s | package | counter | s | thermal_throttle: its time |
| limit_reasons | package | flags | 1 | reasons that limit the clock |
| plr_reasons | package | flags | 1 | newly set limits: sticky bits |
| power_throttled_s | package | counter | s | time throttled by power limits |
| energy_j | package | counter | J | energy of the package |
| energy_ram_j | package | counter | J | energy of its memory |
| energy_core_j | core | counter | J | energy of the core (AMD) |
| memory_read_bytes, memory_write_bytes | package | counter | B | from memory, and to it |
| memory_clock | package | counter | cycles | clocks of memory channels, two transfers each |
| power_limit_w, power_limit2_w | package | gauge | W | PL1, PL2 |
| uncore_hz, uncore_max_hz | package | gauge | Hz | clock of mesh, or AMD's fabric; its highest |
| temperature_c | package | gauge | °C | temperature |
| kvm_users | package | gauge | 1 | open files of KVM; 0 while no guest of KVM runs |
| ceiling_hz, e_ceiling_hz | package | gauge | Hz | highest clock of P and E cores now |
| turbo_disabled | package | gauge | 1 | 1: firmware has switched turbo off |
| pstate_limit | package | gauge | 1 | fastest P-state that firmware allows now (AMD) |
| tdp_base_hz | package | gauge | Hz | base clock of the config-TDP level in use |
| hsmp_limits | package | flags | 1 | what limits the clock (AMD) |
| hsmp_limit_times | package | flags | 1 | firmware cycles, and those under each limit (AMD) |
| hsmp_prochot | package | gauge | 1 | 1: PROCHOT is asserted (AMD) |
| pcu_ticks | package | counter | 1 | ticks of the power unit's clock; the others are shares of it |
| pcu_transition, pcu_os, pcu_power, pcu_vr | package | counter | 1 | ticks with that limit |
| pcu_thermal, pcu_current | package | counter | 1 | ticks with that limit |
| pcu_prochot_internal, pcu_prochot_external | package | counter | 1 | ticks with that limit |
| pcu_avx256, pcu_avx512 | package | counter | 1 | ticks with that limit |
| turbo_off | machine | gauge | 1 | 1: the kernel has switched turbo off |
| max_perf_pct | machine | gauge | % | share of the highest clock that is allowed |
| pressure_cpu_s, pressure_io_s, pressure_memory_s | machine | counter | s | time with waits |
| load_1, load_5, load_15 | machine | gauge | 1 | load averages over that many minutes |
| interrupts, context_switches | machine | counter | 1 | of all CPUs, since boot |
| probe_cpu_s | machine | counter | s | CPU time of the probe itself |

A key `e.NAME`, in a block of scope `cpu`, is an event that the user has chosen: NAME is the name
that the user gave it, `name` describes what it counts, `unit` is that of a scaled count. Each group
of events that perf counts has a block of its own (`events.1` …), with perf_enabled_s and
perf_running_s of its own: these two may be in several blocks, and each applies to its own
block. Any other key is in one block only; if it is in several, the first is used.

The unit of a counter in a block of scope `cpu` limits its rate: readers reject a faster advance as
implausible. A counter of 64 bits may also step back a little; a narrower one has wrapped.

| unit | maximum per second |
|---|---|
| cycles | 1e10 |
| instructions | 1.6e11 |
| events | 1e13 |
| s | 1 |

The origin has a meaning in two cases:
- If it begins with `perf`, and the block has perf_enabled_s and perf_running_s, the counter is
  scaled by enabled / running, and unknown where running did not advance.
- If the origin of a `turbo` table in hello begins with `cpufreq`, the table is an upper bound.

one_thread, any_thread and distributed count slower than the TSC. `multipliers` in hello has the
candidates for their factor, likeliest first; readers choose one by the frames. `smt_methods` names
those to use: `one-thread`, `any-thread`, `distributed`, `traced` (neither_s … both_s), `bounds`,
`single`.

**frame**: `seq` (counts the frames that the probe made), `time_ns` (raw time at which the sample
was due), `lost` (frames so far that a slow reader did not get), `late` (deadlines so far that every
CPU missed), `blocks` and `records`. `blocks` maps a name to `{"head": bin, "valid": bin, "values":
bin}`, all little-endian u64 in C order:
- `head`: HEAD words per row: stamp before the read, stamp after it, lateness of the wake-up against
  `time_ns` in ns, samples of this row lost so far, ROW_ flags. A single head row applies to all
  rows.
- `valid`: ceil(columns/64) words per row; bit i is set if column i holds data. Without ROW_SAMPLED
  the row was not read in this frame (its next delta covers the whole span) and nothing is valid.
- `values`: one word per column and row. Values that are not valid must be ignored.

A frame may lack blocks: what the probe reads once for the whole machine (pressure, power limits) is
only in the last frame of those that it writes together, and its rows have the stamps of that read.
As for a row that was not read, the next delta covers the whole span. `records` maps names to any
msgpack value:
- `tasks`: {CPU as text: [pid, comm, share]}: the task that ran most among those that last ran on
  the CPU, and its share of the elapsed time. Tasks are scanned about once a second; only the frame
  after a scan has the record, and it replaces the previous one. On a CPU that is not listed,
  no task ran for a noticeable time. For a thread, `pid` is its process and `comm` its own name.
- `details`: {pid as text: {"user", "command", "threads", "affinity", "priority", "parent", "group",
  "cpuset"}} for processes that `tasks` or `others` name or that are watched: at the first such
  record, and later from time to time. Fields may be missing; `affinity` is a list of CPUs as text
  ("0-3,8"), `priority` a low priority ("nice 19" or "SCHED_IDLE"), `parent` the name of the process
  that started it, `group` its control group as in /proc/PID/cgroup, `cpuset` the CPUs that its
  cpuset allows, where that is not the outermost one.
- `others`: {CPU as text: [[pid, comm, share], ...]}: the tasks that ran most, busiest first, three
  for each CPU, and more where few CPUs have any; in the frames that have `tasks`.
- `waits`: {CPU as text: [[wait, switches], ...]} for the tasks of `others`, in the same order: the
  share of the elapsed time that the task was ready and waited for a CPU, and how often per second
  it gave up its CPU or was preempted. Either is null where unknown, as when a task is first read.
- `ended_children`: {pid as text: [comm, share, child]}: processes whose children took a noticeable
  share of the time since the last scan, started after it and have ended; `child` is the name of one
  that runs now, or empty. Where they ran is not known. In frames that have `tasks`.
- `quotas`: {"groups": {path: [cpus, periods, throttled, throttled_us]}, "pids": {pid as text:
  [path, ...]}}: control groups whose CPU quota applies to tasks of this record or of the watched
  job; and for each process the groups whose quotas apply to it, the innermost first. `cpus` is the
  number of CPUs that the quota allows. The others are cumulative: periods, throttled periods, and
  the throttled time, summed over CPUs. In frames that have `tasks`, and for a watched job once
  before and after it was moved to another group; absent where there is no quota.
- `interrupts`: {CPU as text: [tasks, irq, softirq, lines, softirqs]}: CPUs that spent 3 % of the
  time since the last scan in interrupts and softirqs. The first three are shares of that time: in
  tasks, in interrupts and in softirqs. `lines` and `softirqs` are [[name, count], ...], the most
  frequent first: lines of /proc/interrupts (numbered ones as "36 eth0") and kinds of softirqs, with
  the number of each; empty in the first record. In frames that have `tasks`; absent if there is no
  such CPU.
- `memory`: {"stalled_us", "counts": {key: count}, "groups"?: {path: [limit, hits, pages, us]},
  "pids"?: {pid as text: path}}: changes since the last scan. `stalled_us`: the time for which some
  task was stalled on memory (PSI). `counts`: keys of /proc/vmstat that rose. `groups`: memory
  groups of tasks of this record or of the watched job: the limit in bytes, how often it was
  reached, pages that were read back, and the time for which some task of the group was stalled;
  null where unknown. In frames that have `tasks`; absent if nothing rose.
- `kernel`: {"span_ns", "functions": [[kind, function, pid, comm, ns], ...]}: the time that
  processes spent in functions of the kernel, by samples of its stack. `kind`: `lock` (the function
  waits for one), `clock` (it reads a slow device), `mitigation`, `entry` (of a system call), or
  empty. They are from CPUs with 15 % of their time in the kernel, in `span_ns`, the time since the
  last scan. In frames that have `tasks`; absent where no CPU was sampled.
- `kernel_log`: [[kind, name, count], ...]: names in messages of the kernel's log since the last
  scan: `split-lock` with a task, `memory-errors` (corrected) with a memory module. Absent where
  there were none, or the log may not be read.
- `managers`: {pid as text: comm}: programs that were found at the start and may lower limits of
  power and clock. Absent where there were none.
- `asleep_ns`: the time for which the machine has been suspended since hello. `time_ns` stops during
  a suspension, and counters may stop. Absent until the first suspension.
- `watched`, where hello has a `watch`: {"threads": {thread id as text: [pid, comm, cpu, run_ns,
  wait_ns, voluntary, involuntary]}, "more"}. It lists the threads of the watched job that were read
  since the previous frame: the CPU where each last ran, and, cumulative, how long it has run and
  waited to run, and how often it gave up the CPU and lost it. Any of the last three may be null.
  `more` is the number of threads beyond those that can be followed. Where the kernel accounts for
  it, `disk` maps the same thread ids to the time in ns that each has waited for a disk. `states`
  maps them to the state in which each was read, as proc(5) names it (R, S, D, T, t ...); "F": its
  control group is frozen. A wait for the child of a vfork is S where the kernel shows it.
- `command`: the same for a command that perftop has started to measure it, with its children, where
  hello's `watch` is another job.
- `l3_groups`: {group: [[l3, bytes], ...]}: the traffic of each group of resctrl from and to memory
  since it was first read, by L3; null: unknown in this read. A group is named by its path below the
  mount, the default group by the empty text; the traffic of a control group includes that
  of its monitoring groups. Absent if the default group is the only one.

**packed**, in recordings only: a frame or note as its difference from the previous one, deflated;
described in the app's `session/packing.py`.

**note**: `kind`, `time_ns`, `author` (`probe` or `recorder`), `data` (a map). Kinds so far:
`hotplug` {"cpu", "online", "row": the CPU's topology row as it is now}, `warning` {"text"},
`mark` {"label"}, `run-start` {"pid", "argv"}, `run-end` {"pid", "status", "wall_s", "user_s",
"sys_s", "first_ns", "last_ns": the times between which all CPUs were first and last read, or null,
"missed": CPUs for which that is not known, "remote": whether the stream
is of another machine than the command, whose times are then known only to within the delay of the
connection},
`gap` {"since_ns", "why"}: the link to the probe was broken from then to the note's time; counters
start again in the frames after it, whose rows have ROW_REBASED,
`echo` {"number"}: the answer to an order of the reader, at the raw time at which it was read,
`index` at the end of a recording.

From sources that program registers, which they read back at
least once a second:
- `taken` {"cpus", "counters": keys, "since_ns"}: the registers of these counters no longer hold
  the values that the probe has written. In frames due after it their values on these CPUs are not
  valid; those of frames since `since_ns`, the raw time of the last good check, are in doubt.
- `given-back` {"cpus", "counters": keys}: the registers have these values again, written by another
  program. Values are valid from the first sample after this note's time on; a difference between a
  value before `taken` and a value after this note has no meaning.

**bye**: `reason` (text), `status` (0: no error).
"""

from __future__ import annotations

from perfprobe.wire.check import (
    MAX_COLUMNS,
    MAX_MESSAGE,
    MAX_TIME_NS,
    ForeignDataError,
    VersionError,
    WireError,
    apply_hotplug,
    check_frame,
    check_note,
    frame_bytes,
    row_after_hotplug,
)
from perfprobe.wire.encoding import (
    Decoder,
    encode,
    first_fields,
    max_elements,
    unpack,
    without_check,
)
from perfprobe.wire.messages import (
    HEAD,
    ROW_ELSEWHERE,
    ROW_OFFLINE,
    ROW_REBASED,
    ROW_SAMPLED,
    ROW_UNPINNED,
    ROW_WIDE,
    VERSION,
    Block,
    Bye,
    Bytes,
    Counter,
    Cpu,
    Frame,
    Hello,
    Identity,
    Message,
    Missing,
    Multiplier,
    Note,
    Packed,
    Rate,
    Rows,
    Scope,
    Step,
    Turbo,
    with_columns,
)

__all__ = [
    "HEAD", "MAX_COLUMNS", "MAX_MESSAGE", "MAX_TIME_NS", "ROW_ELSEWHERE",
    "ROW_OFFLINE", "ROW_REBASED", "ROW_SAMPLED", "ROW_UNPINNED", "ROW_WIDE", "VERSION", "Block",
    "Bye", "Bytes", "Counter", "Cpu", "Decoder", "ForeignDataError", "Frame", "Hello",
    "Identity", "Message", "Missing", "Multiplier", "Note", "Packed", "Rate", "Rows", "Scope",
    "Step", "Turbo", "VersionError", "WireError", "apply_hotplug", "check_frame", "check_note",
    "encode", "first_fields", "frame_bytes", "max_elements", "row_after_hotplug", "unpack",
    "with_columns", "without_check",
]  # fmt: skip

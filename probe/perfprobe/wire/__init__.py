"""The wire, version 1: what a probe says, in a pipe, a socket or a file - the same bytes.

**Framing.** A stream is a row of msgpack `bin` objects. Each holds one message: a msgpack map
with string keys and a `type`. The outer `bin` is a length, so a reader can skip a message without
understanding it and knows where the last whole one ended. A message is at most MAX_MESSAGE bytes.
The first message is a `hello`; then `frame`s and `note`s in any order; a `bye`, if the probe ended
on purpose, is the last. A stream without a bye was cut.

**Growth.** Unknown keys, message types, note kinds, blocks' counters and records are skipped and
do not raise the version. Only a hello with another `wire` number is refused.

**hello** describes all that is needed to read the frames. Its keys are the fields of `Hello`
in `messages.py`: topology rows (one per CPU of the machine), `cores` and `packages` (lists of CPU
numbers, in the order of their rows in frames), and `blocks`. Times: `wall_ns` is Unix time,
`raw_ns` is CLOCK_MONOTONIC_RAW and `tsc` the time-stamp counter, all of one moment; later times
are raw only.
`stamp` says what the stamps in row heads count: `tsc` (ticks of `tsc_hz`) or `raw` (ns, where the
TSC must not be read). `tsc_hz` and `base_hz` are null where unknown.

**Blocks.** A block is a table of u64 that is read together: one row for each CPU (in the order of
`topology`), core, package, or one row for the machine, as its `scope` says; `cpu` is there always.
Its counters take `columns` columns each, in their order. Values are raw and cumulative:
- kind `counter`: counts up, `bits` wide, wraps to zero. Value x `scale` is in `unit`. Of several
  columns the counter is the sum; `parts` names them (idle states, say).
- kind `gauge`: the value now. Signed gauges are two's complement.
- kind `flags`: columns are the number of polls, then for each bit the polls that saw it set;
  `parts` names the bits.
`cpus` lists the CPUs that have the counter (null: all): hybrids and partial rights need no second
block. Rates, shares and verdicts are never on the wire.

**frame**: `seq` (counts frames the probe made), `time_ns` (raw time at which the sampling was due),
`lost` (frames so far that a slow reader did not get), `late` (deadlines so far that were missed by
all), `blocks` and `records`. `blocks` maps a name to `{"head": bin, "valid": bin, "values": bin}`,
all little-endian u64 and C order:
- `head`: HEAD words a row: stamp before the read, stamp after it, lateness in ns of the wake-up
  against `time_ns`, samples of this row lost so far, ROW_ flags. One head row stands for all rows.
- `valid`: ceil(columns/64) words a row; bit i says whether column i holds data. Without ROW_SAMPLED
  the row was not read in this frame (its next delta covers the whole span) and nothing is valid.
- `values`: columns words a row. What is not valid is to be ignored.
`records` maps names to any msgpack value:
- `tasks`: {CPU as text: [pid, comm, share]}: of the tasks that last ran on a CPU the one that ran
  most, and for what share of elapsed time. It is in a frame only if it was looked at anew, about
  once a second, and replaces the one before; on a CPU that is not in it nobody ran to speak of. Of
  a thread, `pid` is its process, `comm` its own name.
- `details`: {pid as text: {"user", "command", "threads", "affinity"}}, of processes that `tasks`
  names, when it first does and now and then again. Fields may be missing; `affinity` is a list of
  CPUs as text ("0-3,8").
- `others`: {CPU as text: [[pid, comm, share], ...]}: up to three that ran most, busiest first; in
  the frames that have `tasks`.
- `asleep_ns`: for how long the machine was suspended since hello, in which neither `time_ns` nor,
  perhaps, counters went on. Not there before the first time.
- `watched`, where hello has a `watch`: {"threads": {thread id as text: [pid, comm, cpu, run_ns,
  wait_ns, voluntary, involuntary]}, "more"}. Of the watched job's threads those that were looked at
  since the frame before: where each last ran, then, cumulative, how long it has run and has waited
  to run, and how often it gave up the CPU and lost it. Any of the last three may be null. `more`
  are threads beyond those that can be followed.

**packed**, in recordings only: a frame or note as its difference to the one before it, deflated;
described in the app's `recording.py` and `packing.py`.

**note**: `kind`, `time_ns`, `author` (`probe` or `recorder`), `data` (a map). Kinds so far:
`hotplug` {"cpu", "online", "row": the CPU's topology row as it is now}, `warning` {"text"},
`mark` {"label"}, `run-start` {"pid", "argv"}, `run-end` {"pid", "status", "wall_s", "user_s",
"sys_s", "first_ns", "last_ns": between which times all CPUs were first and last read, or null,
"missed": CPUs of which that cannot be said},
`index` at the end of a recording.

**bye**: `reason` (text), `status` (0 when all was well).
"""

from __future__ import annotations

from perfprobe.wire.check import (
    LATEST_NS,
    MAX_COLUMNS,
    MAX_MESSAGE,
    WireError,
    check_time,
    topology_row,
)
from perfprobe.wire.encoding import MAX_ELEMENTS, Decoder, encode
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
)

__all__ = [
    "HEAD", "LATEST_NS", "MAX_COLUMNS", "MAX_ELEMENTS", "MAX_MESSAGE", "ROW_ELSEWHERE",
    "ROW_OFFLINE", "ROW_REBASED", "ROW_SAMPLED", "ROW_UNPINNED", "ROW_WIDE", "VERSION", "Block",
    "Bye", "Bytes", "Counter", "Cpu", "Decoder", "Frame", "Hello", "Identity", "Message", "Missing",
    "Multiplier", "Note", "Packed", "Rate", "Rows", "Scope", "Step", "Turbo", "WireError",
    "check_time", "encode", "topology_row",
]  # fmt: skip

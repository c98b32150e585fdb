"""The wire, version 1: what a probe sends through a pipe or a socket, and what a file holds. The
bytes are the same everywhere.

**Framing.** A stream is a sequence of msgpack `bin` objects. Each holds one message: a msgpack map
with string keys and a `type`. The outer `bin` gives the length, so a reader can skip a message that
it does not understand and knows where the last whole one ended. A message has at most MAX_MESSAGE
bytes and a limited number of elements (`unpacking.py`). The first message is a `hello`; `frame`s
and `note`s follow in any order; if the probe ended on purpose, the last message is a `bye`. A
stream without a bye was cut.

**Checksums.** The last key of a message is `check`, the CRC-32 of all bytes of the map before this
value, which is a msgpack uint 32 in 5 bytes. If the hello has one, every message must have one but
`packed`, which has its own. of older probes and of strangers may do without, and cannot be checked.

**Growth.** Readers skip unknown keys, message types, note kinds, counters of blocks and records;
adding them does not raise the version. Only a hello with another `wire` number is refused.

**hello** describes all that is needed to read the frames. Its keys are the fields of `Hello`
in `messages.py`: topology rows (one per CPU of the machine), `cores` and `packages` (lists of CPU
numbers, in the order of their rows in frames), and `blocks`. Times: `wall_ns` is Unix time,
`raw_ns` is CLOCK_MONOTONIC_RAW and `tsc` the time-stamp counter, all taken at one moment; later
times are raw only.
`stamp` says what the stamps in row heads count: `tsc` (ticks of `tsc_hz`) or `raw` (ns, where the
TSC must not be read). `tsc_hz` and `base_hz` are null where unknown.

**Blocks.** A block is a table of u64 that is read together. Its `scope` says what its rows are: one
row for each CPU (in the order of `topology`), core or package, or one row for the machine. A block
`cpu` is always present. Each counter takes `columns` columns, in the order of the counters. Values
are raw and cumulative:
- kind `counter`: counts up, `bits` wide, wraps to zero. Value x `scale` is in `unit`. A counter
  with several columns is their sum; `parts` names them (idle states, for example).
- kind `gauge`: the value now. Signed gauges are two's complement.
- kind `flags`: columns are the number of polls, then for each bit the polls that saw it set;
  `parts` names the bits.
`cpus` lists the CPUs that have the counter (null: all): hybrids and partial rights need no second
block. Rates, shares and verdicts are never on the wire.

**frame**: `seq` (counts the frames that the probe made), `time_ns` (raw time at which the sample
was due), `lost` (frames so far that a slow reader did not get), `late` (deadlines so far that every
CPU missed), `blocks` and `records`. `blocks` maps a name to `{"head": bin, "valid": bin, "values":
bin}`, all little-endian u64 in C order:
- `head`: HEAD words a row: stamp before the read, stamp after it, lateness of the wake-up against
  `time_ns` in ns, samples of this row lost so far, ROW_ flags. A single head row stands for all
  rows.
- `valid`: ceil(columns/64) words a row; bit i says whether column i holds data. Without ROW_SAMPLED
  the row was not read in this frame (its next delta covers the whole span) and nothing is valid.
- `values`: one word a column and row. Values that are not valid must be ignored.
A frame may lack blocks: what the probe reads once for the whole machine (/proc/stat, pressure,
power limits) is only in the last frame of those that it writes together, and its rows carry the
stamps of that read. As for a row that was not read, the next delta covers the whole span.
`records` maps names to any msgpack value:
- `tasks`: {CPU as text: [pid, comm, share]}: the task that ran most among those that last ran on
  the CPU, and its share of the elapsed time. Tasks are looked at about once a second; only the
  frame after such a look has the record, and it replaces the previous one. On a CPU that is not
  listed no task ran for a noticeable time. For a thread `pid` is its process and `comm` its own
  name.
- `details`: {pid as text: {"user", "command", "threads", "affinity"}} for processes that `tasks`
  names: when it first names one, and again from time to time. Fields may be missing; `affinity` is
  a list of CPUs as text ("0-3,8").
- `others`: {CPU as text: [[pid, comm, share], ...]}: up to three tasks that ran most, busiest
  first; in the frames that have `tasks`.
- `asleep_ns`: how long the machine has been suspended since hello. `time_ns` stood still then, and
  counters may have. Absent until the first suspension.
- `watched`, where hello has a `watch`: {"threads": {thread id as text: [pid, comm, cpu, run_ns,
  wait_ns, voluntary, involuntary]}, "more"}. It lists the threads of the watched job that were
  looked at since the previous frame: the CPU where each last ran, and, cumulative, how long it has
  run and waited to run, and how often it gave up the CPU and lost it. Any of the last three may be
  null. `more` is the number of threads beyond those that can be followed.

**packed**, in recordings only: a frame or note as its difference to the previous one, deflated;
described in the app's `recording/codec.py` and `session/frame_packing.py`.

**note**: `kind`, `time_ns`, `author` (`probe` or `recorder`), `data` (a map). Kinds so far:
`hotplug` {"cpu", "online", "row": the CPU's topology row as it is now}, `warning` {"text"},
`mark` {"label"}, `run-start` {"pid", "argv"}, `run-end` {"pid", "status", "wall_s", "user_s",
"sys_s", "first_ns", "last_ns": the times between which all CPUs were first and last read, or null,
"missed": CPUs for which that is not known},
`index` at the end of a recording. From sources that program registers, which they read back at
least once a second:
- `taken` {"cpus", "counters": keys, "since_ns"}: the registers of these counters do not hold any
  more what the probe had written. In frames due after it their values on these CPUs are not valid;
  those of frames since `since_ns`, the raw time of the last good look, are in doubt.
- `given-back` {"cpus", "counters": keys}: the registers hold it again, which the probe did not
  cause. Values are valid from the first sample after this note's time on; the difference from one
  before `taken` to one after this means nothing.

**bye**: `reason` (text), `status` (0 when all was well).
"""

from __future__ import annotations

from perfprobe.wire.check import (
    LATEST_NS,
    MAX_COLUMNS,
    MAX_MESSAGE,
    WireError,
    check_frame,
    check_note,
    frame_bytes,
    topology_row,
)
from perfprobe.wire.encoding import Decoder, encode, without_check
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
from perfprobe.wire.unpacking import MAX_ELEMENTS, first_fields, most_elements, unpacked

__all__ = [
    "HEAD", "LATEST_NS", "MAX_COLUMNS", "MAX_ELEMENTS", "MAX_MESSAGE", "ROW_ELSEWHERE",
    "ROW_OFFLINE", "ROW_REBASED", "ROW_SAMPLED", "ROW_UNPINNED", "ROW_WIDE", "VERSION", "Block",
    "Bye", "Bytes", "Counter", "Cpu", "Decoder", "Frame", "Hello", "Identity", "Message", "Missing",
    "Multiplier", "Note", "Packed", "Rate", "Rows", "Scope", "Step", "Turbo", "WireError",
    "check_frame", "check_note", "encode", "first_fields", "frame_bytes", "most_elements",
    "topology_row", "unpacked", "without_check",
]  # fmt: skip

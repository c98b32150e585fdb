# By hand; a test compares the names with the header's.

from _cffi_backend import FFI, _CDataBase

class _Lib:
    PP_ANYWHERE: int
    PP_EVENT_HOST: int
    PP_EVENT_KERNEL: int
    PP_EVENT_PINNED: int
    PP_EVENT_USER: int
    PP_FIELD: int
    PP_FILE: int
    PP_FLAGS: int
    PP_HEAD: int
    PP_IDLE_BOTH: int
    PP_IDLE_BUSY: int
    PP_IDLE_ENTRIES: int
    PP_IDLE_LP0: int
    PP_IDLE_LP1: int
    PP_IDLE_NEITHER: int
    PP_KNOWN_ADD: int
    PP_KNOWN_ENTER: int
    PP_KNOWN_FREE: int
    PP_KNOWN_IMUL: int
    PP_KNOWN_KINDS: int
    PP_MSR: int
    PP_PERF: int
    PP_RAMP_AVX2: int
    PP_RAMP_AVX512: int
    PP_RAMP_BLOCK: int
    PP_RAMP_ISAS: int
    PP_RAMP_SCALAR: int
    PP_RAMP_WIDE: int
    PP_ROW_ELSEWHERE: int
    PP_ROW_OFFLINE: int
    PP_ROW_REBASED: int
    PP_ROW_SAMPLED: int
    PP_ROW_UNPINNED: int
    PP_ROW_WIDE: int
    PP_STAMP_RAW: int
    PP_STAMP_TSC: int
    PP_STAT: int
    PP_STAT_FIELDS: int
    PP_STAT_LINE: int
    PP_TIMER_CLOCK: int
    PP_TIMER_CPUID_RDTSC: int
    PP_TIMER_LFENCE_RDTSC: int
    PP_TIMER_MFENCE_LFENCE_RDTSC: int
    PP_TIMER_MSR: int
    PP_TIMER_NOTHING: int
    PP_TIMER_PERF_PAGE: int
    PP_TIMER_PERF_READ: int
    PP_TIMER_RDTSC: int
    PP_TIMER_RDTSCP: int
    PP_TIMER_RDTSCP_LFENCE: int
    PP_TIMER_SYSCALL: int
    PP_TRACED: int

    def pp_attach(
        self,
        s: _CDataBase,
        cpu: int,
        flags: int,
        rows: _CDataBase,
        n_rows: int,
        slots: _CDataBase,
        n_slots: int,
    ) -> int: ...
    def pp_cpuid(self, leaf: int, subleaf: int, registers: _CDataBase) -> None: ...
    def pp_current_cpu(self) -> int: ...
    def pp_detach(self, s: _CDataBase, cpu: int) -> int: ...
    def pp_drain(
        self, s: _CDataBase, number: int, frame: _CDataBase, force: int, delivered: _CDataBase
    ) -> int: ...
    def pp_exchange_stamps(self, cpu: int, n: int, limit_ns: int, out: _CDataBase) -> int: ...
    def pp_free(self, s: _CDataBase) -> None: ...
    def pp_get_stats(self, s: _CDataBase, cpu: int, out: _CDataBase) -> int: ...
    def pp_idle_base(self, idle: _CDataBase) -> _CDataBase: ...
    def pp_idle_close(self, idle: _CDataBase) -> None: ...
    def pp_idle_get(self, idle: _CDataBase, kind: int, index: int, out: _CDataBase) -> int: ...
    def pp_idle_get_stats(self, idle: _CDataBase, out: _CDataBase) -> int: ...
    def pp_idle_offline(self, idle: _CDataBase, cpu: int) -> int: ...
    def pp_idle_open(
        self, places: _CDataBase, n: int, out: _CDataBase, log: _CDataBase, log_size: int
    ) -> int: ...
    def pp_idle_read(self, idle: _CDataBase, core: int, out: _CDataBase) -> int: ...
    def pp_idle_settle(self, idle: _CDataBase, cpu: int) -> int: ...
    def pp_known_chain(self, kind: int) -> int: ...
    def pp_known_pattern(
        self, begin_ns: int, period_ns: int, on_ns: int, spells: _CDataBase, n: int
    ) -> None: ...
    def pp_known_run(
        self, kind: int, turns: int, marks: _CDataBase, n_marks: int, out: _CDataBase
    ) -> int: ...
    def pp_known_turn(self, kind: int) -> int: ...
    def pp_new(self, config: _CDataBase, out: _CDataBase) -> int: ...
    def pp_perf_columns(self, group: _CDataBase) -> int: ...
    def pp_perf_enable(self, leader: int) -> int: ...
    def pp_perf_group_free(self, group: _CDataBase) -> None: ...
    def pp_perf_group_new(
        self, fds: _CDataBase, n: int, timed: int, mapped: int, out: _CDataBase
    ) -> int: ...
    def pp_perf_group_place(self, group: _CDataBase, columns: int) -> int: ...
    def pp_perf_is_direct(self, group: _CDataBase) -> int: ...
    def pp_perf_open(self, event: _CDataBase, cpu: int, leader: int) -> int: ...
    def pp_perf_read(self, group: _CDataBase, columns: _CDataBase) -> int: ...
    def pp_perf_trial(
        self, group: _CDataBase, own_ns: int, moved: _CDataBase, out: _CDataBase
    ) -> int: ...
    def pp_ramp_isas(self) -> int: ...
    def pp_ramp_run(
        self,
        order: _CDataBase,
        phases: _CDataBase,
        n_phases: int,
        chunks: _CDataBase,
        capacity: int,
        result: _CDataBase,
    ) -> int: ...
    def pp_rights_keep(self, keep: int) -> int: ...
    def pp_stamp(self) -> int: ...
    def pp_start(self, s: _CDataBase) -> int: ...
    def pp_timer_run(
        self, timer: _CDataBase, n: int, ticks: _CDataBase, values: _CDataBase
    ) -> int: ...

ffi: FFI
lib: _Lib

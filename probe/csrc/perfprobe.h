/*
 * All that Python sees, between the two marks of cffi. Sources: sampler.c (the sampler), cpu.c
 * (stamps and CPUID), perf.c and group.c (perf events), idle.c (idle transitions), ramp.c and
 * ramp_chains.c (from idle to load), known.c (known code), timers.c and exchange.c (timers), rights.c
 * (rights). All enums and structs that Python shares are here as well, so that a number has one
 * place.
 *
 * A result of type int is 0 (or a count) or -errno, unless it says otherwise. Nothing prints. There
 * is one global: rdpmc.c keeps the handler of a signal that was there before its own.
 */
#ifndef PERFPROBE_H
#define PERFPROBE_H

#include <stdint.h>

/* cffi: begin */

/* --- the sampler ------------------------------------------------------------------------------ */

/*
 * One thread ("lane") per CPU reads what it was told to read, at the deadlines of one shared
 * schedule, and one call collects a round of all lanes into a frame.
 *
 * All calls on one sampler are made by one thread at a time: lanes synchronise with that thread,
 * callers do not synchronise with each other.
 */

enum { PP_HEAD = 5 }; /* words in the head of a row: wire.HEAD */

/* As wire.ROW_*; a test compares them. */
enum {
    PP_ROW_SAMPLED = 1,
    PP_ROW_ELSEWHERE = 2,
    PP_ROW_WIDE = 4,
    PP_ROW_REBASED = 8,
    PP_ROW_OFFLINE = 16,
    PP_ROW_UNPINNED = 32
};

/* Instead of a CPU's number: a lane that belongs to no CPU. */
enum { PP_ANYWHERE = -1 };

enum {
    PP_STAMP_TSC = 1, /* ticks */
    PP_STAMP_RAW = 2  /* CLOCK_MONOTONIC_RAW, ns; neither RDTSC nor CPUID is executed */
};

/* Kinds of slots; slot.c reads them. */
enum {
    PP_FILE = 1,   /* arg-th (from 0) decimal integer in the text of fd */
    PP_MSR = 2,    /* register arg of fd, a /dev/cpu/N/msr */
    PP_PERF = 3,   /* all columns of `group` */
    PP_FIELD = 4,  /* `field`, of fd */
    PP_FLAGS = 5,  /* one poll of `flags`, of fd: all its columns */
    PP_STAT = 6,   /* `stat`, read again: the fields of CPU number fd */
    PP_STAT_LINE = 7, /* the same for another CPU, from the text that PP_STAT has read before */
    PP_TRACED = 16 /* plus a PP_IDLE_ kind: its value of core or CPU number fd, in `rows` */
};

typedef struct pp_config {
    uint64_t period_ns;
    uint32_t words; /* u64 in a frame */
    uint32_t ring;  /* samples a lane can hold; rounded up to a power of two */
    uint32_t stamp; /* PP_STAMP_ */
    uint32_t proof; /* 0: do not ask which CPU a row was read on (CPU numbers are made up) */
    uint64_t first_ns; /* from pp_new to round 0; 0: a period, which is also the most */
} pp_config;

/* Some bits of a register. The caller keeps it until the lane that reads it is detached. */
typedef struct pp_field {
    uint32_t msr;
    uint32_t shift;
    uint32_t width;
    uint32_t below;  /* not 0: the value is how far the bits are below it */
    uint32_t enable; /* not 0: number of the bit without which they mean nothing (-ENODATA) */
} pp_field;

/* What polls of a register have seen so far. The lane writes it; the caller keeps it as above. */
typedef struct pp_flags {
    uint32_t msr;
    uint32_t mask;     /* the bits that are looked at */
    uint64_t polls;    /* first column */
    uint64_t seen[32]; /* the others: polls that found the bit set, from the lowest of the mask */
} pp_flags;

enum { PP_STAT_FIELDS = 8 }; /* user nice system idle iowait irq softirq steal, in USER_HZ */

typedef struct pp_stat_line {
    uint64_t read; /* the number of the read that found it */
    uint64_t ticks[PP_STAT_FIELDS];
} pp_stat_line;

/* /proc/stat as it was read last. The lane writes it; the caller keeps it as above, and makes it
 * with zeros in `reads` and `lines`. */
typedef struct pp_proc_stat {
    int32_t fd;
    uint32_t cpus;       /* CPUs have numbers below it */
    uint32_t size;       /* of `text`, bytes; what does not fit is not read */
    char *text;
    pp_stat_line *lines; /* by the number of the CPU */
    uint64_t reads;
} pp_proc_stat;

typedef struct pp_slot {
    uint32_t kind;
    uint32_t column; /* within its row */
    int32_t fd;      /* the caller's: open until pp_detach or pp_free has returned */
    uint32_t count;  /* columns it fills, from `column` on; 0 is 1 */
    union {          /* by kind; the caller keeps what is pointed to as it keeps fd */
        uint64_t arg; /* PP_FILE, PP_MSR: a number. Python writes addresses here, too */
        const struct pp_perf_group *group;
        const pp_field *field;
        pp_flags *flags;
        pp_proc_stat *stat;
        const void *rows; /* PP_TRACED: pp_idle_base */
    };
} pp_slot;

/* Where a row lies in the frame, in words, and how many of the flat list of slots are its own. */
typedef struct pp_row {
    uint32_t head;
    uint32_t valid;
    uint32_t valid_words;
    uint32_t values;
    uint32_t n_slots;
} pp_row;

/* Cumulative for the CPU, over detaching and attaching again. */
typedef struct pp_stats {
    uint64_t samples;  /* taken */
    uint64_t overruns; /* rounds skipped, because a wake-up or a read came too late */
    uint64_t lost;     /* samples not delivered: the ring was full, or their round had passed */
    uint64_t repeats;  /* rows read again after an interruption */
    uint64_t cpu_ns;   /* time of the thread */
    int32_t attached;
    int32_t pin_errno;  /* of the last pinning; 0: pinned, EINPROGRESS: not tried yet */
    int32_t slot_errno; /* of the last slot that failed */
} pp_stats;

typedef struct pp_sampler pp_sampler;

int pp_new(const pp_config *config, pp_sampler **out);
void pp_free(pp_sampler *s); /* NULL is allowed */

/* Round n is due at pp_start(s) + n * period_ns, CLOCK_MONOTONIC. */
uint64_t pp_start(const pp_sampler *s);

/*
 * Starts a lane. `flags` are added to the flags of each row until it was delivered once with data
 * of its own CPU. -EEXIST: the CPU has a lane. A CPU that cannot be pinned to is no error.
 *
 * The lane PP_ANYWHERE is not pinned. It reads all its rows between two stamps, which they share,
 * so that slots of different rows may use one text.
 */
int pp_attach(pp_sampler *s, int32_t cpu, uint32_t flags, const pp_row *rows, uint32_t n_rows,
              const pp_slot *slots, uint32_t n_slots);

/* Stops a lane and waits for the read that it is in, but not for its sleep. */
int pp_detach(pp_sampler *s, int32_t cpu);

/*
 * Collects one round. Returns how many lanes have not come to it yet; call again with the same
 * round and frame to complete it. With `force` those are given up for this round. Rounds only go
 * up. The first call of a round clears the frame; `delivered` is how many lanes of CPUs gave a
 * sample to it so far.
 */
int pp_drain(pp_sampler *s, uint64_t round, uint64_t *frame, int force, uint32_t *delivered);

int pp_get_stats(const pp_sampler *s, int32_t cpu, pp_stats *out);

/* --- rights ----------------------------------------------------------------------------------- */

/* The calling thread, and threads that it starts later, have no capability from now on but those of
 * `keep` (bit i: capability i) that they have now, and cannot get others by executing a program. */
int pp_rights_keep(uint64_t keep);

/* --- the CPU ---------------------------------------------------------------------------------- */

uint64_t pp_stamp(void); /* the TSC now */
int pp_current_cpu(void);

/* Writes eax, ebx, ecx, edx of the CPU that the caller is on. */
void pp_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t *registers);

/* --- perf events ------------------------------------------------------------------------------ */

/*
 * Events that count on one CPU, whatever runs there. The members of a group go on and off the
 * counters together: open a leader (`leader` -1), then its siblings with it, then enable it.
 */

enum {
    PP_EVENT_KERNEL = 1, /* count in the kernel only */
    PP_EVENT_HOST = 2,   /* do not count while a guest runs */
    PP_EVENT_USER = 4,   /* count in user space only */
    PP_EVENT_PINNED = 8  /* of a leader: always on the counters; others have what is left */
};

typedef struct pp_event {
    uint32_t type;
    uint32_t flags; /* PP_EVENT_; PMUs other than the cores' refuse them */
    uint64_t config, config1, config2;
} pp_event;

int pp_perf_open(const pp_event *event, int32_t cpu, int32_t leader); /* a descriptor */
int pp_perf_enable(int32_t leader);

typedef struct pp_perf_group pp_perf_group;

/*
 * The group of these descriptors, the leader first; the group owns them from now on. With `timed`
 * the first two columns are the times (ns) for which it was enabled, and on the counters. Without
 * `mapped` it is read by read() alone. The caller keeps it until the lane that reads it is detached.
 */
int pp_perf_group_new(const int32_t *fds, uint32_t n, int timed, int mapped, pp_perf_group **out);

/* Spreads the group over columns, before a lane has it: bit i of `columns` is set where the next
 * event goes (with `timed`, the times to 0 and 1). Those in between are not valid. */
int pp_perf_group_place(pp_perf_group *group, uint64_t columns);
void pp_perf_group_free(pp_perf_group *group); /* NULL is allowed */
uint32_t pp_perf_columns(const pp_perf_group *group); /* up to the last that is filled */
int pp_perf_is_direct(const pp_perf_group *group); /* 1: read by RDPMC, without a system call */
int pp_perf_read(const pp_perf_group *group, uint64_t *columns);

typedef struct pp_trial {
    uint64_t ticks;  /* of the TSC, elapsed */
    uint64_t ns;     /* elapsed */
    uint64_t own_ns; /* of it, those that the caller ran */
} pp_trial;

/* How far each column moves while the caller, pinned to the group's CPU, runs for `own_ns`. */
int pp_perf_trial(const pp_perf_group *group, uint64_t own_ns, uint64_t *moved, pp_trial *out);

/* --- idle transitions ------------------------------------------------------------------------- */

/*
 * Exact busy times and SMT states from the kernel's idle transitions (idle_rows.h). All times are
 * ns of CLOCK_MONOTONIC, cumulative, up to the moment of the call. "Not idle" is the OS's view: it
 * includes interrupts and wake-ups, and the time of a CPU that is offline, unless pp_idle_offline
 * told so.
 *
 * The kernel holds the only state; a handle may be used by several threads at once.
 */

enum {
    PP_IDLE_NEITHER = 0,
    PP_IDLE_LP0 = 1,
    PP_IDLE_LP1 = 2,
    PP_IDLE_BOTH = 3,
    PP_IDLE_BUSY = 4,
    PP_IDLE_ENTRIES = 5 /* times a CPU went idle */
};

/* A CPU is LP 0 or 1 of a core; cores are numbered freely below 4096. A CPU of a core with another
 * number of threads than two is LP 0 of a core of its own. */
typedef struct pp_idle_place {
    uint32_t cpu;
    uint32_t core;
    uint32_t lp;
} pp_idle_place;

typedef struct pp_idle_states {
    uint64_t ns[4];      /* by PP_IDLE_NEITHER ... PP_IDLE_BOTH */
    uint64_t unknown_ns; /* with these four: all time since the start */
    uint32_t known;      /* the state of both LPs is known now */
} pp_idle_states;

typedef struct pp_idle pp_idle;

/* On failure `log` (never NULL) has the call that failed, and the verifier's words after it. */
int pp_idle_open(const pp_idle_place *places, uint32_t n, pp_idle **out, char *log,
                 uint32_t log_size);
void pp_idle_close(pp_idle *idle); /* NULL is allowed */

/* Tells that the CPU is busy. The caller is pinned to it. Without this call, the state of a CPU is
 * unknown until its first transition: a CPU busy throughout has none. */
int pp_idle_settle(const pp_idle *idle, uint32_t cpu);

/* Tells that the CPU went offline: from now on its core counts it as idle. */
int pp_idle_offline(const pp_idle *idle, uint32_t cpu);

/* -ENOENT: not traced. -EAGAIN: a writer stood in the middle of an update throughout. */
int pp_idle_read(const pp_idle *idle, uint32_t core, pp_idle_states *out);

/* As a slot reads it: PP_IDLE_NEITHER ... PP_IDLE_BOTH of a core, the others of a CPU. Also
 * -ENODATA: the state is not known now. */
int pp_idle_get(const pp_idle *idle, uint32_t kind, uint32_t index, uint64_t *out);

/* The rows of a slot PP_TRACED; valid until pp_idle_close. */
const void *pp_idle_base(const pp_idle *idle);

/* --- from idle to load ------------------------------------------------------------------------ */

/*
 * The calling thread sleeps, wakes, and then runs a chain of dependent multiplications, stamping
 * the TSC every few microseconds from the first one on.
 *
 * A step of the chain is one 64-bit `imul r,r`, whose latency no core hides; moves, adds and LEAs
 * are eliminated by some cores. The caller knows how many cycles a step takes. Beside it a wide
 * chain issues PP_RAMP_WIDE independent vector FMAs a step, fewer than any core with them can do in
 * the latency of a step: they change the power that the core needs, not how long the chain takes.
 *
 * With a counter of the CPU's cycles that RDPMC reads, each stamp comes with the count. Stamp and
 * count are always equally far apart: between two stamps the count goes on by the cycles between
 * them, whatever a reading costs.
 */

enum {
    PP_RAMP_SCALAR = 0,
    PP_RAMP_AVX2 = 1,
    PP_RAMP_AVX512 = 2,
    PP_RAMP_ISAS = 3
};

enum {
    PP_RAMP_BLOCK = 64, /* steps in a turn of the loop; a piece has whole blocks */
    PP_RAMP_WIDE = 2
};

/* One kind of load. Phases follow each other without a pause. */
typedef struct pp_ramp_phase {
    uint32_t isa;
    uint64_t ticks; /* the phase ends with the chunk that reaches this */
} pp_ramp_phase;

typedef struct pp_ramp_order {
    uint64_t idle_ns;
    uint32_t blocks;  /* in a piece: what lies between two stamps */
    uint32_t grow;    /* a chunk has a grow-th of the pieces before it in its phase, */
    uint32_t most;    /* at least 1 and at most this many */
    uint64_t counter; /* address of a pp_perf_group: one event, with a page to read it by; or 0 */
} pp_ramp_order;

/* Neighbouring pieces. All ticks are of the TSC. */
typedef struct pp_ramp_chunk {
    uint64_t begin, end;
    uint64_t aside;          /* within it, but not the chain's: spent on asking for `switches` */
    uint64_t longest;        /* ticks of its slowest piece */
    uint64_t longest_at;     /* stamp at which that began */
    uint64_t cycles;         /* by the counter, of all its pieces: without those of `aside` */
    uint64_t longest_cycles; /* of the slowest */
    uint32_t pieces;
    uint32_t phase;
    uint32_t switches; /* involuntary context switches of the thread, if a piece was suspect */
} pp_ramp_chunk;

typedef struct pp_ramp_result {
    uint64_t late_ns;     /* from the end of the sleep that was asked for to being awake */
    uint64_t stamp_ticks; /* that one stamp takes, warm, with the counter if there is one */
    uint32_t chunks;
    uint32_t uncounted; /* stamps without a count; if any, cycles are wrong */
    uint64_t off_ns;    /* for which other events had the counter; if any, cycles are too few */
} pp_ramp_result;

/* Bit i: this CPU and its system have PP_RAMP_ i. */
uint32_t pp_ramp_isas(void);

/*
 * Run by a thread that is pinned to one CPU. -EOPNOTSUPP: no such ISA here; -ENOSPC: the chunks
 * were full before the end (what they hold is good); -EXDEV: the thread was moved to another CPU;
 * -EINVAL, also for a counter that has to be read by a system call.
 */
int pp_ramp_run(const pp_ramp_order *order, const pp_ramp_phase *phases, uint32_t n_phases,
                pp_ramp_chunk *chunks, uint32_t capacity, pp_ramp_result *result);

/* --- known code ------------------------------------------------------------------------------- */

/*
 * Code whose counts are known by how it is built, to compare counters with. A turn of a loop is
 * pp_known_chain instructions of one kind, then DEC and JNZ.
 */

enum {
    PP_KNOWN_FREE = 0,  /* independent instructions: many retire in a cycle */
    PP_KNOWN_ADD = 1,   /* each needs the sum before it: one cycle each */
    PP_KNOWN_IMUL = 2,  /* each needs the product before it: a few cycles each, three on most */
    PP_KNOWN_ENTER = 3, /* a chain of IMUL, then one system call: getppid */
    PP_KNOWN_KINDS = 4
};

/* Instructions of a turn in user space, and how many of them are of its kind. 0: no such kind. */
uint32_t pp_known_turn(uint32_t kind);
uint32_t pp_known_chain(uint32_t kind);

/* A time in which the caller was at work. */
typedef struct pp_spell {
    uint64_t begin; /* TSC */
    uint64_t end;
    uint64_t begin_ns; /* CLOCK_MONOTONIC */
    uint64_t end_ns;
    uint64_t own_ns; /* of it, those that the caller ran, by the kernel's account */
    int32_t cpu;     /* the CPU at both ends; -1: they differ */
} pp_spell;

/* Runs `turns` turns `n_marks` times; marks[i] is the TSC after the i-th. -EINVAL: no such kind, or
 * no turns. */
int pp_known_run(uint32_t kind, uint64_t turns, uint64_t *marks, uint32_t n_marks, pp_spell *out);

/* n times: sleeps until begin_ns + i * period_ns, then is at work for on_ns. CLOCK_MONOTONIC. */
void pp_known_pattern(uint64_t begin_ns, uint64_t period_ns, uint64_t on_ns, pp_spell *spells,
                      uint32_t n);

/* --- timers ----------------------------------------------------------------------------------- */

/*
 * The cost of asking for the time, or for a count: back to back, on the CPU that the caller is
 * pinned to. And stamps by which to tell how far the time-stamp counters of two CPUs are apart.
 */

enum {
    PP_TIMER_RDTSC = 1, /* the first six are stamps: a sample is the time from one to the next */
    PP_TIMER_RDTSCP = 2,
    PP_TIMER_LFENCE_RDTSC = 3,
    PP_TIMER_RDTSCP_LFENCE = 4,
    PP_TIMER_MFENCE_LFENCE_RDTSC = 5,
    PP_TIMER_CPUID_RDTSC = 6,
    PP_TIMER_NOTHING = 7,    /* only the stamps around a sample of the kinds below */
    PP_TIMER_CLOCK = 8,      /* clock_gettime of clock arg; values in ns */
    PP_TIMER_SYSCALL = 9,    /* getppid, which does next to nothing */
    PP_TIMER_PERF_PAGE = 10, /* the pp_perf_group of one event at address arg, by RDPMC */
    PP_TIMER_PERF_READ = 11, /* the same by read() */
    PP_TIMER_MSR = 12        /* register arg of fd, a /dev/cpu/N/msr */
};

typedef struct pp_timer {
    uint32_t kind;
    uint32_t calls; /* in a sample; of a stamp 1 */
    int32_t fd;
    uint64_t arg;
} pp_timer;

/* Fills `ticks` with the TSC ticks that n samples took, n a multiple of 8, and `values` with what
 * the last call of each answered. -EXDEV: it did not run on one CPU throughout. */
int pp_timer_run(const pp_timer *timer, uint32_t n, uint64_t *ticks, uint64_t *values);

/* One message to another CPU and back: their stamps, in the order in which they were taken. */
typedef struct pp_exchange {
    uint64_t sent; /* here */
    uint64_t seen; /* there */
    uint64_t back; /* here */
} pp_exchange;

/* Up to n exchanges between the caller, which is pinned, and a thread pinned to `cpu`; after
 * `limit_ns` it gives up with fewer. Returns how many, or -errno: -EINVAL for a CPU on which this
 * process may not run, -EXDEV if either did not stay on its CPU. */
int pp_exchange_stamps(int cpu, uint32_t n, uint64_t limit_ns, pp_exchange *out);

/* cffi: end */

#endif

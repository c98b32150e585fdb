/*
 * The sampler: one thread ("lane") per CPU reads what it was told to read, at the deadlines of one
 * shared schedule, and one call collects a round of all lanes into a frame.
 *
 * Results are 0 (or a count) or -errno; nothing prints; there are no globals. All calls on one
 * sampler are made by one thread at a time: lanes synchronise with that thread, not callers with
 * each other.
 */
#ifndef PERFPROBE_H
#define PERFPROBE_H

#include <stdint.h>

/* cffi: begin */

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

enum {
    PP_STAMP_TSC = 1, /* ticks; x86 only */
    PP_STAMP_RAW = 2  /* CLOCK_MONOTONIC_RAW, ns; neither RDTSC nor CPUID is executed */
};

/* A new kind is a value here and a function in slot.h. */
enum {
    PP_FILE = 1, /* arg-th (from 0) decimal integer in the text of fd */
    PP_MSR = 2,  /* register arg of fd, a /dev/cpu/N/msr */
    PP_PERF = 3, /* all columns of the pp_perf_group at address arg */
    PP_FIELD = 4, /* the pp_field at address arg, of fd */
    PP_FLAGS = 5, /* one poll of the pp_flags at address arg, of fd: all its columns */
    PP_TRACED = 16 /* plus a PP_IDLE_ kind: its value of core or CPU number fd; arg: pp_idle_base */
};

typedef struct pp_config {
    uint64_t period_ns;
    uint32_t words; /* u64 in a frame */
    uint32_t ring;  /* samples a lane can hold; rounded up to a power of two */
    uint32_t stamp; /* PP_STAMP_ */
    uint32_t proof; /* 0: do not ask which CPU a row was read on (CPU numbers are made up) */
} pp_config;

typedef struct pp_slot {
    uint32_t kind;
    uint32_t column; /* within its row */
    int32_t fd;      /* the caller's: open until pp_detach or pp_free has returned */
    uint32_t count;  /* columns it fills, from `column` on; 0 is 1 */
    uint64_t arg;
} pp_slot;

/* Some bits of a register. Like fd it must outlive the lane that reads it. */
typedef struct pp_field {
    uint32_t msr;
    uint32_t shift;
    uint32_t width;
    uint32_t below;  /* not 0: the value is how far the bits are below it */
    uint32_t enable; /* not 0: the bit without which they mean nothing (-ENODATA) */
} pp_field;

/* What polls of a register saw so far: the lane writes it, the caller keeps it like a pp_field. */
typedef struct pp_flags {
    uint32_t msr;
    uint32_t mask;     /* the bits that are looked at */
    uint64_t polls;    /* first column */
    uint64_t seen[32]; /* the others: polls that found the bit set, from the lowest of the mask */
} pp_flags;

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
    int32_t pin_errno;  /* of the last pinning; 0: pinned */
    int32_t slot_errno; /* of the last slot that failed */
} pp_stats;

typedef struct pp_sampler pp_sampler;

int pp_new(const pp_config *config, pp_sampler **out);
void pp_free(pp_sampler *s);

/* Round n is due at pp_start(s) + n * period_ns, CLOCK_MONOTONIC. */
uint64_t pp_start(const pp_sampler *s);

/*
 * Starts a lane. `flags` are added to the flags of each row until it was delivered once with data
 * of its own CPU. -EEXIST: the CPU has a lane. A CPU that cannot be pinned to is no error.
 */
int pp_attach(pp_sampler *s, int32_t cpu, uint32_t flags, const pp_row *rows, uint32_t n_rows,
              const pp_slot *slots, uint32_t n_slots);

/* Stops a lane and waits for it: as long as the read it is in, not its sleep. */
int pp_detach(pp_sampler *s, int32_t cpu);

/*
 * Collects one round. Returns how many lanes have not come to it yet; call again with the same
 * round and frame to complete it. With `force` those are given up for this round. Rounds only go
 * up. The first call of a round clears the frame; `delivered` is how many lanes gave a sample to
 * it so far.
 */
int pp_drain(pp_sampler *s, uint64_t round, uint64_t *frame, int force, uint32_t *delivered);

int pp_get_stats(const pp_sampler *s, int32_t cpu, pp_stats *out);

uint64_t pp_stamp(void); /* the TSC now; 0 where there is none */

/* eax, ebx, ecx, edx of the CPU that the caller is on. -ENOTSUP: not x86. */
int pp_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t *registers);

/*
 * perf events that count on one CPU, whatever runs there. The members of a group go on and off the
 * counters together: open a leader (`leader` -1), then its siblings with it, then enable it.
 */
enum {
    PP_EVENT_KERNEL = 1, /* count in the kernel only */
    PP_EVENT_HOST = 2    /* do not count while a guest runs */
};

typedef struct pp_event {
    uint32_t type;
    uint32_t flags; /* PP_EVENT_; PMUs other than the cores' refuse them */
    uint64_t config;
} pp_event;

int pp_perf_open(const pp_event *event, int32_t cpu, int32_t leader); /* a descriptor */
int pp_perf_enable(int32_t leader);

typedef struct pp_perf_group pp_perf_group;

/*
 * The group of these descriptors, the leader first; they are its own from now on. With `timed` the
 * first two columns are the times (ns) for which it was enabled, and on the counters. Like a
 * descriptor it must outlive the lane that reads it.
 */
int pp_perf_group_new(const int32_t *fds, uint32_t n, int timed, pp_perf_group **out);

/* Spreads the group over columns, before a lane has it: bit i of `columns` is set where the next
 * event goes (with `timed`, the times to 0 and 1). Those in between are not valid. */
int pp_perf_group_place(pp_perf_group *group, uint64_t columns);
void pp_perf_group_free(pp_perf_group *group); /* NULL is allowed */
uint32_t pp_perf_columns(const pp_perf_group *group); /* up to the last that is filled */
int pp_perf_is_direct(const pp_perf_group *group); /* read by RDPMC, without a system call */
int pp_perf_read(const pp_perf_group *group, uint64_t *columns);

typedef struct pp_trial {
    uint64_t ticks;  /* of the TSC, elapsed */
    uint64_t ns;     /* elapsed */
    uint64_t own_ns; /* of it, those that the caller ran */
} pp_trial;

/* How far each column moves while the caller, pinned to the group's CPU, runs for `own_ns`. */
int pp_perf_trial(const pp_perf_group *group, uint64_t own_ns, uint64_t *moved, pp_trial *out);

/*
 * Exact busy times and SMT states from the kernel's idle transitions (idle.h). All times are ns of
 * CLOCK_MONOTONIC, cumulative, up to the moment of the call. "Not idle" is the OS's view: it
 * includes interrupts and wake-ups, and the time of a CPU that is offline, unless it was told.
 *
 * The one word of state is in the kernel; a handle may be used by several threads at once.
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
    uint32_t known;      /* both LPs' state now */
} pp_idle_states;

typedef struct pp_idle_stats {
    uint64_t clamped;    /* transitions whose clock was behind the other CPU's ... */
    uint64_t clamped_ns; /* ... and by how much: by this the sums of core and CPU differ */
    uint64_t dropped;    /* updates given up; the core was unknown until the CPU's next one */
    uint64_t missed;     /* runs of the program that the kernel suppressed */
} pp_idle_stats;

typedef struct pp_idle pp_idle;

/* On failure `log` (never NULL) has the call that failed, and the verifier's words after it. */
int pp_idle_open(const pp_idle_place *places, uint32_t n, pp_idle **out, char *log,
                 uint32_t log_size);
void pp_idle_close(pp_idle *idle); /* NULL is allowed */

/* Tells that the CPU is busy, by a caller that is pinned to it: its state is known from here on.
 * Without, from its first transition on: a CPU busy throughout has none. */
int pp_idle_settle(const pp_idle *idle, uint32_t cpu);

/* Tells that the CPU went offline: idle, as far as its core is concerned. */
int pp_idle_offline(const pp_idle *idle, uint32_t cpu);

/* -ENOENT: not traced. -EAGAIN: a writer stood in the middle of an update throughout. */
int pp_idle_read(const pp_idle *idle, uint32_t core, pp_idle_states *out);

/* As a slot reads it: PP_IDLE_NEITHER ... PP_IDLE_BOTH of a core, the others of a CPU. Besides:
 * -ENODATA: the state is not known now. */
int pp_idle_get(const pp_idle *idle, uint32_t kind, uint32_t index, uint64_t *out);
int pp_idle_busy(const pp_idle *idle, uint32_t cpu, uint64_t *busy_ns);

int pp_idle_get_stats(const pp_idle *idle, pp_idle_stats *out);

/* For pp_idle_value in idle.h; valid until pp_idle_close. */
const void *pp_idle_base(const pp_idle *idle);

/* cffi: end */

#endif

/* The sampler: declarations for Python. Source: sampler.c, lane.c, slot.c. */
#ifndef PP_SHARED_SAMPLER_H
#define PP_SHARED_SAMPLER_H

#include <stdint.h>

/* cffi: begin */

/* 
 * A sampler has a thread (a lane) for each CPU, which reads its slots at the deadlines of one
 * shared schedule. The samples of all lanes at one deadline are a round; pp_drain collects a round
 * into a frame.
 *
 * Only one thread at a time may call functions of a sampler. */

enum { PP_HEAD = 5 }; /* number of words in the head of a row (wire.HEAD) */

/* Flags of a row, the same as ROW_* of perfprobe.wire. */
enum {
    PP_ROW_SAMPLED = 1,
    PP_ROW_ELSEWHERE = 2,
    PP_ROW_WIDE = 4,
    PP_ROW_REBASED = 8,
    PP_ROW_OFFLINE = 16,
    PP_ROW_UNPINNED = 32
};

/* The "CPU" of a lane that is not pinned to a CPU. */
enum { PP_UNPINNED_CPU = -1 };

enum {
    PP_STAMP_TSC = 1, /* in ticks of the TSC */
    PP_STAMP_RAW = 2  /* in ns of CLOCK_MONOTONIC_RAW; neither RDTSC nor CPUID is executed */
};

/* Kinds of slots; slot.c reads them. */
enum {
    PP_FILE = 1,   /* arg-th (from 0) decimal integer in the text of fd */
    PP_MSR = 2,    /* register arg of fd, a /dev/cpu/N/msr */
    PP_PERF = 3,   /* all columns of `group` */
    PP_FIELD = 4,  /* `field` of the register file fd */
    PP_FLAGS = 5,  /* one poll of `flags`, of fd: all its columns */
    PP_STAT = 6,   /* reads `stat`: the fields of CPU number fd */
    PP_STAT_LINE = 7, /* the fields of CPU number fd in the text that a PP_STAT slot has read */
    PP_TRACED = 16 /* plus a PP_IDLE_ kind: that value, in `rows`, of the core or CPU number fd */
};

typedef struct pp_config {
    uint64_t period_ns;
    uint32_t words; /* length of a frame in u64 words */
    uint32_t ring;  /* number of samples in a lane's ring; rounded up to a power of two */
    uint32_t stamp; /* the kind of stamps: PP_STAMP_TSC or PP_STAMP_RAW */
    uint32_t check_cpu; /* 0: do not check the CPU of a read (CPU numbers are fictitious) */
    uint64_t first_ns; /* ns from pp_new to round 0, at most a period; 0: a period */
} pp_config;

/* A bit field of an MSR. The caller keeps it until the lane that reads it is detached. */
typedef struct pp_field {
    uint32_t msr;
    uint32_t shift;
    uint32_t width;
    uint32_t below;  /* not 0: the value is this number minus the bits */
    uint32_t enable; /* not 0: number of a bit; while it is clear, there is no value (-ENODATA) */
} pp_field;

/* Status bits of an MSR, and how often polls found each of them set. The lane writes the counts;
 * the caller keeps the object until the lane is detached. */
typedef struct pp_flags {
    uint32_t msr;
    uint32_t mask;     /* the bits that are polled */
    uint64_t polls;    /* number of polls, in the first column */
    uint64_t seen[32]; /* further columns: polls that found the bit set, for each bit of `mask` */
} pp_flags;

enum { PP_STAT_FIELDS = 8 }; /* user nice system idle iowait irq softirq steal, in USER_HZ */

typedef struct pp_stat_line {
    uint64_t read; /* the number of the read that found the line */
    uint64_t ticks[PP_STAT_FIELDS];
} pp_stat_line;

/* Buffers for /proc/stat. The lane writes them; the caller keeps them until the lane is detached,
 * and sets `reads` and the contents of `lines` to 0 at the start. */
typedef struct pp_proc_stat {
    int32_t fd;
    uint32_t cpus;       /* upper bound of CPU numbers */
    uint32_t size;       /* bytes of `text`; the rest of the file is not read */
    char *text;
    pp_stat_line *lines; /* the lines, by the number of the CPU */
    uint64_t reads;      /* number of reads so far */
} pp_proc_stat;

typedef struct pp_slot {
    uint32_t kind;
    uint32_t column; /* the first column that the slot fills, within its row */
    int32_t fd;      /* the caller keeps it open until pp_detach or pp_free has returned */
    uint32_t count;  /* columns that the slot fills, from `column` on; 0 is 1 */
    union {          /* by kind; an object that is pointed to must live as long as fd */
        uint64_t arg; /* PP_FILE, PP_MSR: a number. Python writes addresses here, too */
        const struct pp_perf_group *group;
        const pp_field *field;
        pp_flags *flags;
        pp_proc_stat *stat;
        const void *rows; /* PP_TRACED: pp_idle_base */
    };
} pp_slot;

/* A row that a lane fills: offsets in the frame, in words, and the number of its slots. */
typedef struct pp_row {
    uint32_t head;
    uint32_t valid;
    uint32_t valid_words;
    uint32_t values;
    uint32_t n_slots;
} pp_row;

/* Cumulative counts of a CPU's lane, which continue when the CPU is attached again. */
typedef struct pp_stats {
    uint64_t samples;  /* number of samples that were taken */
    uint64_t overruns; /* rounds skipped, because a wake-up or a read was too late */
    uint64_t lost;     /* samples not delivered, because the ring was full or the round was over */
    uint64_t repeats;  /* rows read again after an interruption */
    uint64_t cpu_ns;   /* CPU time of the lane's thread */
    int32_t attached;
    int32_t pin_errno;  /* result of the last pinning; 0: pinned, EINPROGRESS: not tried yet */
    int32_t slot_errno; /* the error of the last slot that failed */
} pp_stats;

typedef struct pp_sampler pp_sampler;

int pp_new(const pp_config *config, pp_sampler **out);
void pp_free(pp_sampler *s); /* `s` may be NULL. */

/* Round n is due at pp_start_ns(s) + n * period_ns, CLOCK_MONOTONIC. */
uint64_t pp_start_ns(const pp_sampler *s);

/* 
 * Starts the lane of a CPU. `flags` are added to each row until it has been delivered once with
 * data of its own CPU. -EEXIST: the CPU has a lane. A lane that cannot be pinned is not an error.
 *
 * The lane PP_UNPINNED_CPU is not pinned. It reads all its rows between the same two stamps. */
int pp_attach(pp_sampler *s, int32_t cpu, uint32_t flags, const pp_row *rows, uint32_t n_rows,
              const pp_slot *slots, uint32_t n_slots);

/* Stops a lane, and waits for its end: at most for the present read. */
int pp_detach(pp_sampler *s, int32_t cpu);

/* 
 * Collects one round into the frame. Returns the number of lanes that have not finished the round;
 * call again with the same round and frame to complete it. With `force`, these lanes are skipped in
 * this round. Round numbers must not decrease. The first call for a round clears the frame;
 * `delivered` becomes the number of CPUs whose sample is in the frame. */
int pp_drain(pp_sampler *s, uint64_t round, uint64_t *frame, int force, uint32_t *delivered);

int pp_get_stats(const pp_sampler *s, int32_t cpu, pp_stats *out);

/* cffi: end */

#endif

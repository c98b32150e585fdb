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
    PP_FILE = 1 /* arg-th (from 0) decimal integer in the text of fd */
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
    uint64_t arg;
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

/* cffi: end */

#endif

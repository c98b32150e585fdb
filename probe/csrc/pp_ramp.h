/* From idle to load: what Python sees. Source: ramp.c, ramp_chains.c. */
#ifndef PP_SHARED_RAMP_H
#define PP_SHARED_RAMP_H

#include <stdint.h>

/* cffi: begin */

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

/* cffi: end */

#endif

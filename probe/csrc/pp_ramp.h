/* The clock's rise from idle: declarations for Python. Source: ramp.c, ramp_chains.c. */
#ifndef PP_SHARED_RAMP_H
#define PP_SHARED_RAMP_H

#include <stdint.h>

/* cffi: begin */

/* 
 * The calling thread sleeps, wakes, and then runs a chain of dependent multiplications. The TSC is
 * read (a stamp) every few microseconds; the work between two stamps is a piece, and a few
 * consecutive pieces are a chunk.
 *
 * A step of the chain is one 64-bit `imul r,r`, whose latency no core hides; moves, adds and LEAs
 * are eliminated by some cores. The caller must know the cycles of a step. A SIMD chain also issues
 * PP_RAMP_WIDE independent vector FMAs a step, fewer than any core with FMAs can execute in the
 * latency of a step: they change the power that the core needs, not the duration of the chain.
 *
 * With a counter of the CPU's cycles that RDPMC can read, the count is read after each stamp. The
 * distance from stamp to count is constant, so between two stamps the count advances by the cycles
 * between them, whatever a read costs. */

enum {
    PP_RAMP_SCALAR = 0,
    PP_RAMP_AVX2 = 1,
    PP_RAMP_AVX512 = 2,
    PP_RAMP_ISAS = 3
};

enum {
    PP_RAMP_BLOCK = 64, /* steps in a block, one iteration of the loop; pieces are whole blocks */
    PP_RAMP_WIDE = 2    /* FMAs for each step of a SIMD chain */
};

/* One kind of load. Phases follow each other without a pause. */
typedef struct pp_ramp_phase {
    uint32_t isa;
    uint64_t ticks; /* the phase ends with the chunk that reaches this number of ticks */
} pp_ramp_phase;

typedef struct pp_ramp_request {
    uint64_t idle_ns; /* length of the sleep */
    uint32_t blocks;  /* number of blocks in a piece, the work between two stamps */
    /* A chunk has 1 / growth as many pieces as its phase has before it, from 1 to max_pieces. */
    uint32_t growth, max_pieces;
    uint64_t counter; /* address of a pp_perf_group of one event with a page; or 0 */
} pp_ramp_request;

/* A chunk: a few consecutive pieces. All ticks are of the TSC. */
typedef struct pp_ramp_chunk {
    uint64_t begin, end;     /* stamps */
    uint64_t aside;          /* ticks within the chunk that were spent on reading `switches` */
    uint64_t longest;        /* ticks of the chunk's slowest piece */
    uint64_t longest_at;     /* stamp at the beginning of that piece */
    uint64_t cycles;         /* count of all pieces of the chunk, without the cycles of `aside` */
    uint64_t longest_cycles; /* count of the slowest piece */
    uint32_t pieces;
    uint32_t phase;
    uint32_t switches; /* involuntary context switches of the thread, if a piece was suspect */
} pp_ramp_chunk;

typedef struct pp_ramp_result {
    uint64_t late_ns;     /* time from the requested end of the sleep to the wake-up */
    uint64_t stamp_ticks; /* least cost of a stamp, and of the count if there is a counter */
    uint32_t chunks;
    uint32_t uncounted; /* stamps without a count; if not 0, cycles are wrong */
    uint64_t uncounted_ns; /* time for which cycles were not counted, because other events had the
                            * hardware counters */
} pp_ramp_result;

/* Returns a mask: bit i is set if this CPU and its system have PP_RAMP_ ISA i. */
uint32_t pp_ramp_isas(void);

/* 
 * Runs the phases in the calling thread, which must be pinned to one CPU. -EOPNOTSUPP: this CPU or
 * its system does not have an ISA. -ENOSPC: all chunks were used before the end (they are valid).
 * -EXDEV: the thread was moved to another CPU. -EINVAL: wrong arguments, or a counter that RDPMC
 * cannot read. */
int pp_ramp_run(const pp_ramp_request *request, const pp_ramp_phase *phases, uint32_t n_phases,
                pp_ramp_chunk *chunks, uint32_t capacity, pp_ramp_result *result);

/* cffi: end */

#endif

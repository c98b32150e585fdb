/* Code with known counts: declarations for Python. Source: known.c. */
#ifndef PP_SHARED_KNOWN_H
#define PP_SHARED_KNOWN_H

#include <stdint.h>

/* cffi: begin */

/*
 * Code whose counts are known by its construction, to compare counters with. A turn of a loop is
 * pp_known_chain instructions of one kind, then DEC and JNZ.
 */

enum {
    PP_KNOWN_FREE = 0,  /* independent instructions: many retire in a cycle */
    PP_KNOWN_ADD = 1,   /* each needs the previous sum: one cycle each */
    PP_KNOWN_IMUL = 2,  /* each needs the previous product: three cycles each on most cores */
    PP_KNOWN_ENTER = 3, /* a chain of IMUL, then one system call: getppid */
    PP_KNOWN_KINDS = 4
};

/* Return the instructions of a turn in user space, and those of the chain. 0: no such kind. */
uint32_t pp_known_turn(uint32_t kind);
uint32_t pp_known_chain(uint32_t kind);

/* A span in which the caller worked. */
typedef struct pp_work_span {
    uint64_t begin; /* the TSC at the beginning and the end */
    uint64_t end;
    uint64_t begin_ns; /* ns of CLOCK_MONOTONIC at the same moments */
    uint64_t end_ns;
    uint64_t own_ns; /* time that the caller ran, by the kernel's account */
    int32_t cpu;     /* the CPU at both ends; -1: they differ */
} pp_work_span;

/* Runs `turns` turns `n_marks` times; marks[i] is the TSC after the i-th time. -EINVAL: no such
 * kind, or no turns. */
int pp_known_run(uint32_t kind, uint64_t turns, uint64_t *marks, uint32_t n_marks,
                 pp_work_span *out);

/* Sleeps until begin_ns + i * period_ns of CLOCK_MONOTONIC, then works for on_ns, n times. */
void pp_known_pattern(uint64_t begin_ns, uint64_t period_ns, uint64_t on_ns, pp_work_span *spans,
                      uint32_t n);

/* cffi: end */

#endif

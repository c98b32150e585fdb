/* Code with known counts: declarations for Python. Source: loops.c. */
#ifndef PP_SHARED_LOOPS_H
#define PP_SHARED_LOOPS_H

#include <stdint.h>

/* cffi: begin */

/* 
 * Loops whose counts of instructions and cycles are known by their construction, to check counters.
 * A turn of a loop is a body of instructions of one kind, then DEC and JNZ. */

enum {
    PP_LOOP_FREE = 0,  /* independent instructions, of which a core executes several a cycle */
    PP_LOOP_ADD = 1,   /* dependent ADDs: one cycle each */
    PP_LOOP_IMUL = 2,  /* dependent IMULs: three cycles each on most cores */
    PP_LOOP_ENTER = 3, /* dependent IMULs, then a system call (getppid) */
    PP_LOOP_KINDS = 4
};

/* Return the number of instructions in a turn (in user space), and in its body. 0: no such kind. */
uint32_t pp_loop_instructions(uint32_t kind);
uint32_t pp_chain_instructions(uint32_t kind);

/* A span of time in which the calling thread worked. */
typedef struct pp_work_span {
    uint64_t begin; /* the TSC at the beginning and the end */
    uint64_t end;
    uint64_t begin_ns; /* ns of CLOCK_MONOTONIC at the same moments */
    uint64_t end_ns;
    uint64_t cpu_ns; /* CPU time of the thread in the span */
    int32_t cpu;     /* the CPU at both ends; -1: the thread was moved */
} pp_work_span;

/* Runs `turns` turns of a loop, n_marks times; marks[i] is the TSC after each time. -EINVAL: no
 * such kind, or no turns. */
int pp_loop_run(uint32_t kind, uint64_t turns, uint64_t *marks, uint32_t n_marks,
                 pp_work_span *out);

/* Works n times for on_ns, from begin_ns + i * period_ns of CLOCK_MONOTONIC; else sleeps. */
void pp_work_pattern(uint64_t begin_ns, uint64_t period_ns, uint64_t on_ns, pp_work_span *spans,
                      uint32_t n);

/* cffi: end */

#endif

/*
 * The loaded idle program: declarations that Python does not use (see pp_idle.h). Source: idle.c.
 */
#ifndef PP_IDLE_H
#define PP_IDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perfprobe.h"

/* Program, map and attachment live as long as their descriptors. */
struct pp_idle {
    int map, program, link; /* descriptors; -1: not open yet */
    uint32_t cpus, cores;   /* numbers of rows, of which some are unused */
    size_t size;            /* number of bytes at `base` */
    void *base;             /* the rows, read-only once they are set up */
};

/* Like pp_idle_open, but does not attach the program; `swaps` is the number of attempts to swap a
 * word. `out` must be closed after a failure, too. */
int pp_idle_make(const pp_idle_place *places, uint32_t n, int32_t swaps, pp_idle **out, char *log,
                 uint32_t log_size);

/* Runs the program as if `cpu` made a transition into `state`; with `on_cpu`, on that CPU. */
int pp_idle_run(const pp_idle *idle, uint32_t cpu, uint32_t state, bool on_cpu);

#endif

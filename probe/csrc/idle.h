/* 
 * The loaded BPF program that counts idle transitions: declarations that Python does not use (see
 * pp_idle.h). Source: idle.c. */
#ifndef PP_IDLE_H
#define PP_IDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perfprobe.h"

/* The BPF program, its map and its attachment; they exist until the descriptors are closed. */
struct pp_idle {
    int map, program, link; /* descriptors; -1: not open yet */
    uint32_t cpus, cores;   /* numbers of rows for CPUs and for cores; some are unused */
    size_t size;            /* number of bytes at `base` */
    void *base;             /* the rows, read-only once they are set up */
};

/* Like pp_idle_open, but does not attach the program. `swaps` is its maximum number of attempts to
 * compare and swap. `out` must be closed after a failure, too. */
int pp_idle_make(const pp_idle_thread *threads, uint32_t n, int32_t swaps, pp_idle **out, char *log,
                 uint32_t log_size);

/* Runs the program as for a transition of `cpu` into this state; with `on_cpu`, on that CPU. */
int pp_idle_run(const pp_idle *idle, uint32_t cpu, uint32_t state, bool on_cpu);

#endif

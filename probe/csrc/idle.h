/*
 * The loaded idle program, without what pp_idle.h declares. Source: idle.c.
 */
#ifndef PP_IDLE_H
#define PP_IDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perfprobe.h"

/* Program, map and attachment live as long as their descriptors. */
struct pp_idle {
    int map, program, link; /* descriptors; -1: not there yet */
    uint32_t cpus, cores;   /* rows, some of them not used */
    size_t size;            /* bytes at `base` */
    void *base;             /* the rows, read-only once they are set up */
};

/* As pp_idle_open, but without the attachment, and with so many attempts at a swap. `out` must be
 * closed after a failure, too. */
int pp_idle_make(const pp_idle_place *places, uint32_t n, int32_t swaps, pp_idle **out, char *log,
                 uint32_t log_size);

/* Runs the program as a transition of `cpu` into `state` would; with `there`, on that CPU. */
int pp_idle_run(const pp_idle *idle, uint32_t cpu, uint32_t state, bool there);

#endif

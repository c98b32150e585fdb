/* Idle transitions: declarations for Python. Source: idle.c. */
#ifndef PP_SHARED_IDLE_H
#define PP_SHARED_IDLE_H

#include <stdint.h>

/* cffi: begin */

/* 
 * Exact busy times of CPUs and SMT states of cores, counted by a BPF program whenever a CPU starts
 * or ends being idle (a transition). All times are ns of CLOCK_MONOTONIC, cumulative up to the
 * moment of the call. A CPU is busy if the OS does not consider it idle: that includes interrupts
 * and wake-ups, and the time of an offline CPU unless pp_idle_offline was called.
 *
 * A handle may be used by several threads at once. */

enum {
    PP_IDLE_NEITHER = 0,
    PP_IDLE_LP0 = 1,
    PP_IDLE_LP1 = 2,
    PP_IDLE_BOTH = 3,
    PP_IDLE_BUSY = 4
};

/* The core of a CPU, and which of its two logical processors (LP 0 or 1) the CPU is. The caller
 * numbers cores, below 4096. If a core does not have exactly two threads, each of its CPUs must be
 * LP 0 of a core of its own. */
typedef struct pp_idle_thread {
    uint32_t cpu;
    uint32_t core;
    uint32_t lp;
} pp_idle_thread;

typedef struct pp_idle pp_idle;

/* Loads and attaches the BPF program. On failure `log` (not NULL) has the name of the call that
 * failed, then the verifier's messages. */
int pp_idle_open(const pp_idle_thread *threads, uint32_t n, pp_idle **out, char *log,
                 uint32_t log_size);
void pp_idle_close(pp_idle *idle); /* `idle` may be NULL. */

/* Records that a CPU, to which the caller must be pinned, is busy. Without this call, its state is
 * unknown until its first transition, and a CPU that is always busy has none. */
int pp_idle_mark_busy(const pp_idle *idle, uint32_t cpu);

/* Records that a CPU went offline: from now on it counts as idle. */
int pp_idle_offline(const pp_idle *idle, uint32_t cpu);

/* Returns the address of the rows, for slots of kind PP_TRACED; valid until pp_idle_close. */
const void *pp_idle_base(const pp_idle *idle);

/* cffi: end */

#endif

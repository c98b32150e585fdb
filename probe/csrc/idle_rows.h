/*
 * The rows that the BPF program of idle_program.h writes, and functions to read them: rows of 64
 * bytes in one array map that the kernel and this process share. The program is the only writer
 * after the rows are initialised. Source: idle_rows.c.
 *
 *   row 0             head
 *   rows 1 ...        one for each CPU
 *   further rows      one for each core, which has one or two CPUs (LP 0, LP 1)
 *
 * The row of a CPU or core has a word, `time << 4 | known1 known0 busy1 busy0` (time of its last
 * transition in ns, and the states of its LPs since then), and sums: the ns in each state up to
 * that time. A transition first replaces the word (by compare-and-swap, because two CPUs share the
 * word of a core) and then adds the elapsed span to the sum of the old state. So the total of the
 * sums is `time - start`, except between these two steps; a reader can check that instead of a
 * sequence number.
 */
#ifndef PP_IDLE_ROWS_H
#define PP_IDLE_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "barrier.h"

enum { PP_IDLE_SHIFT = 4, PP_IDLE_BITS = 15, PP_IDLE_ANY_BUSY = 3, PP_IDLE_ALL_KNOWN = 12 };
enum { PP_IDLE_CPU_BUSY, PP_IDLE_CPU_IDLE, PP_IDLE_CPU_UNKNOWN, PP_IDLE_CPU_SUMS };
enum { PP_IDLE_CORE_UNKNOWN = 4, PP_IDLE_CORE_SUMS }; /* 0 to 3: the busy bits */
enum { PP_IDLE_ROW = 64, PP_IDLE_MAX = 4096 };

struct pp_idle_head {
    uint64_t start_ns; /* in the kernel's own CLOCK_MONOTONIC, like all times here */
    uint32_t cpus, cores;
    int64_t ahead_ns; /* the kernel's clock minus this process's clock */
    uint64_t spare[5];
};

struct pp_idle_cpu {
    _Atomic uint64_t word;
    _Atomic uint64_t sums[PP_IDLE_CPU_SUMS];
    _Atomic uint64_t entries;
    _Atomic uint64_t clamped, clamped_ns; /* how often, and by how much, its clock was behind the
                                           * time in its core's word */
    uint32_t core;                        /* number of its core's row; 0: not traced */
    uint32_t bits;                        /* its known and busy bits in the core's word */
};

struct pp_idle_core {
    _Atomic uint64_t word;
    _Atomic uint64_t sums[PP_IDLE_CORE_SUMS];
    _Atomic uint64_t dropped; /* transitions that were not counted after too many attempts */
    uint64_t spare;
};

_Static_assert(sizeof(struct pp_idle_head) == PP_IDLE_ROW, "head");
_Static_assert(sizeof(struct pp_idle_cpu) == PP_IDLE_ROW, "cpu: a cache line, no sharing");
_Static_assert(sizeof(struct pp_idle_core) == PP_IDLE_ROW, "core");
_Static_assert(offsetof(struct pp_idle_cpu, sums) == 8 && offsetof(struct pp_idle_core, sums) == 8,
               "pp_idle_sums");

/* Return a row of the rows at `base`. NULL: there is no such row, or it is not traced. */
const struct pp_idle_cpu *pp_idle_cpu(const void *base, uint64_t cpu);
const struct pp_idle_core *pp_idle_core(const void *base, uint64_t core);

/* Reads all sums of a core's row, extended to now, and whether the states of both LPs are known
 * now. -ENOENT: not traced. -EAGAIN: all attempts met a transition that was not complete. */
int pp_idle_read_core(const void *base, uint64_t index, uint64_t *sums, int *known);

/* 
 * Reads one value of a PP_IDLE_ kind, without a system call. `index` is the number of a core for
 * the four states, else of a CPU. -ENODATA: the state is not known now. -ENOENT, -EAGAIN: as
 * above. */
int pp_idle_value(const void *base, uint32_t kind, uint64_t index, uint64_t *out);

#endif

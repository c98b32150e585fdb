/*
 * What the idle program writes and how it is read: rows of 64 bytes in one array map that both
 * sides see. The program (idle_program.h) is the only writer; user space maps it read-only.
 *
 *   row 0             head
 *   rows 1 ...        one per CPU
 *   then              one per core: of one or two CPUs, its LPs
 *
 * A CPU's or core's row begins with a word, `time << 4 | known1 known0 busy1 busy0`, and the
 * nanoseconds spent in each state up to that time. A transition swaps the word (compare-and-swap:
 * two CPUs share a core's) and then adds the span it ended to the state it ended. All sums of a row
 * together are therefore `time - start`, except between these two steps. That is the proof of a
 * consistent read: no sequence number is needed.
 */
#ifndef PP_IDLE_H
#define PP_IDLE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "barrier.h"
#include "perfprobe.h"

enum { PP_IDLE_SHIFT = 4, PP_IDLE_BITS = 15, PP_IDLE_ANY_BUSY = 3, PP_IDLE_ALL_KNOWN = 12 };
enum { PP_IDLE_CPU_BUSY, PP_IDLE_CPU_IDLE, PP_IDLE_CPU_UNKNOWN, PP_IDLE_CPU_SUMS };
enum { PP_IDLE_CORE_UNKNOWN = 4, PP_IDLE_CORE_SUMS }; /* 0 to 3: the busy bits */
enum { PP_IDLE_ROW = 64, PP_IDLE_MAX = 4096, PP_IDLE_ATTEMPTS = 256 };

struct pp_idle_head {
    uint64_t start_ns; /* CLOCK_MONOTONIC, as all times here */
    uint32_t cpus, cores;
    uint64_t spare[6];
};

struct pp_idle_cpu {
    _Atomic uint64_t word;
    _Atomic uint64_t sums[PP_IDLE_CPU_SUMS];
    _Atomic uint64_t entries;
    _Atomic uint64_t clamped, clamped_ns; /* its clock was behind the core's word */
    uint32_t core;                        /* number of the row; 0: not traced */
    uint32_t bits;                        /* its own, known and busy, in the core's word */
};

struct pp_idle_core {
    _Atomic uint64_t word;
    _Atomic uint64_t sums[PP_IDLE_CORE_SUMS];
    _Atomic uint64_t dropped;
    uint64_t spare;
};

_Static_assert(sizeof(struct pp_idle_head) == PP_IDLE_ROW, "head");
_Static_assert(sizeof(struct pp_idle_cpu) == PP_IDLE_ROW, "cpu: a cache line, no sharing");
_Static_assert(sizeof(struct pp_idle_core) == PP_IDLE_ROW, "core");
_Static_assert(offsetof(struct pp_idle_cpu, sums) == 8 && offsetof(struct pp_idle_core, sums) == 8,
               "pp_idle_sums");

static inline const struct pp_idle_head *pp_idle_head(const void *base)
{
    return base;
}

/* NULL: there is no such row, or it is not traced. */
static inline const struct pp_idle_cpu *pp_idle_cpu(const void *base, uint64_t cpu)
{
    const struct pp_idle_cpu *rows = (const struct pp_idle_cpu *)base + 1;

    return cpu < pp_idle_head(base)->cpus && rows[cpu].core ? &rows[cpu] : NULL;
}

static inline const struct pp_idle_core *pp_idle_core(const void *base, uint64_t core)
{
    const struct pp_idle_head *head = pp_idle_head(base);
    const struct pp_idle_core *rows = (const struct pp_idle_core *)base + 1 + head->cpus;

    return core < head->cores && pp_read_once(&rows[core].word) ? &rows[core] : NULL;
}

static inline uint64_t pp_idle_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * The sums of a row that belong to one word, and the time since that word. 0 or -EAGAIN.
 *
 * If the word is the same before and after, every addition seen belongs to it or to an earlier one
 * (an addition follows its swap); if the sums are complete besides, none of these is missing. So
 * each is final, although they were read one by one. The clock is read between the two words: a
 * transition that is seen to have happened lies before it.
 *
 * What cannot be seen is a transition that has its time but has not swapped yet. The span up to now
 * is then given to the state it is about to end, too much by the nanoseconds between the two (more
 * if the hypervisor took the CPU away there), and the next read is right again: a state's value can
 * step back by that much, so differences are to be taken signed, and below zero as zero.
 */
static inline int pp_idle_sums(const _Atomic uint64_t *row, unsigned n, uint64_t start_ns,
                               uint64_t *sums, unsigned *bits, uint64_t *since)
{
    for (int attempt = 0; attempt < PP_IDLE_ATTEMPTS; attempt++) {
        uint64_t word = pp_load_acquire(&row[0]); /* before the sums */
        uint64_t then = word >> PP_IDLE_SHIFT;
        uint64_t total = start_ns;
        uint64_t now;

        for (unsigned i = 0; i < n; i++) {
            sums[i] = pp_load_acquire(&row[1 + i]); /* all before the word once more */
            total += sums[i];
        }
        now = pp_idle_now();
        if (total != then || pp_load_acquire(&row[0]) != word)
            continue;
        *bits = word & PP_IDLE_BITS;
        *since = now > then ? now - then : 0; /* the kernel's clock here may be a little ahead */
        return 0;
    }
    return -EAGAIN;
}

/* A core's row up to now. -ENOENT, -EAGAIN. */
static inline int pp_idle_read_core(const void *base, uint64_t index, uint64_t *sums, int *known)
{
    const struct pp_idle_core *core = pp_idle_core(base, index);
    uint64_t since;
    unsigned bits;
    int rc;

    if (core == NULL)
        return -ENOENT;
    rc = pp_idle_sums(&core->word, PP_IDLE_CORE_SUMS, pp_idle_head(base)->start_ns, sums, &bits,
                      &since);
    if (rc)
        return rc;
    *known = (bits & PP_IDLE_ALL_KNOWN) == PP_IDLE_ALL_KNOWN;
    sums[*known ? bits & PP_IDLE_ANY_BUSY : PP_IDLE_CORE_UNKNOWN] += since;
    return 0;
}

/* A CPU's row up to now. -ENOENT, -EAGAIN. */
static inline int pp_idle_read_cpu(const void *base, uint64_t index, uint64_t *sums, int *known)
{
    const struct pp_idle_cpu *cpu = pp_idle_cpu(base, index);
    uint64_t since;
    unsigned bits;
    int rc;

    if (cpu == NULL)
        return -ENOENT;
    rc = pp_idle_sums(&cpu->word, PP_IDLE_CPU_SUMS, pp_idle_head(base)->start_ns, sums, &bits,
                      &since);
    if (rc)
        return rc;
    *known = (bits & PP_IDLE_ALL_KNOWN) != 0;
    if (!*known)
        sums[PP_IDLE_CPU_UNKNOWN] += since;
    else
        sums[bits & PP_IDLE_ANY_BUSY ? PP_IDLE_CPU_BUSY : PP_IDLE_CPU_IDLE] += since;
    return 0;
}

/*
 * One value, for a slot: memory and a clock are read, no system call. `index` is a core for the
 * four states, else a CPU. -ENODATA: not known yet; -ENOENT: not traced; -EAGAIN: try later.
 */
static inline int pp_idle_value(const void *base, uint32_t kind, uint64_t index, uint64_t *out)
{
    uint64_t sums[PP_IDLE_CORE_SUMS];
    const struct pp_idle_cpu *cpu;
    int known, rc;

    switch (kind) {
    case PP_IDLE_NEITHER:
    case PP_IDLE_LP0:
    case PP_IDLE_LP1:
    case PP_IDLE_BOTH:
        rc = pp_idle_read_core(base, index, sums, &known);
        break;
    case PP_IDLE_BUSY:
        rc = pp_idle_read_cpu(base, index, sums, &known);
        kind = PP_IDLE_CPU_BUSY;
        break;
    case PP_IDLE_ENTRIES:
        cpu = pp_idle_cpu(base, index);
        if (cpu)
            *out = pp_read_once(&cpu->entries);
        return cpu ? 0 : -ENOENT;
    default:
        return -EINVAL;
    }
    if (rc == 0 && !known)
        rc = -ENODATA;
    if (rc == 0)
        *out = sums[kind];
    return rc;
}

#endif

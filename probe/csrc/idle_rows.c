#define _GNU_SOURCE
#include "idle_rows.h"

#include <errno.h>
#include <stdbool.h>

#include "cpu.h"
#include "perfprobe.h"

enum { ATTEMPTS = 256 }; /* maximum number of attempts to read a row consistently */

/* --- rows ------------------------------------------------------------------------------------- */

static const struct pp_idle_head *map_head(const void *base)
{
    return base;
}

const struct pp_idle_cpu *pp_idle_cpu(const void *base, uint64_t cpu)
{
    const struct pp_idle_cpu *rows = (const struct pp_idle_cpu *)base + 1;

    return cpu < map_head(base)->cpus && rows[cpu].core ? &rows[cpu] : NULL;
}

const struct pp_idle_core *pp_idle_core(const void *base, uint64_t core)
{
    const struct pp_idle_head *head = map_head(base);
    const struct pp_idle_core *rows = (const struct pp_idle_core *)base + 1 + head->cpus;

    return core < head->cores && pp_read_once(&rows[core].word) ? &rows[core] : NULL;
}

/* --- sums ------------------------------------------------------------------------------------- */

/* 
 * Reads the sums of a row and its word, consistently, and the ns since the time in the word. 0 or
 * -EAGAIN.
 *
 * If the word is the same before and after, all additions to the sums belong to that word or to an
 * earlier one (an addition follows its swap). If the total of the sums fits the word's time, no
 * addition is missing. So the sums are consistent, although they were read one by one. The clock is
 * read between the two reads of the word, so every transition in the sums was before that moment.
 *
 * A transition that has read the clock but has not swapped the word yet is invisible. The span up
 * to now is then added to the state that is about to end: too much by the ns between clock and swap
 * (more if the hypervisor took the CPU away in between). The next read is right again. So the value
 * of a state can step back by that much; readers must use signed differences and treat negative
 * ones as 0. */
static int read_sums(const struct pp_idle_head *head, const _Atomic uint64_t *row, unsigned n,
                     uint64_t *sums, unsigned *bits, uint64_t *since)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        uint64_t word = pp_load_acquire(&row[0]); /* the word is read before the sums */
        uint64_t then = word >> PP_IDLE_SHIFT;
        uint64_t total = head->start_ns;
        uint64_t now;

        for (unsigned i = 0; i < n; i++) {
            sums[i] = pp_load_acquire(&row[1 + i]); /* before the word is read again */
            total += sums[i];
        }
        now = pp_clock_ns(CLOCK_MONOTONIC) + (uint64_t)head->ahead_ns;
        if (total != then || pp_load_acquire(&row[0]) != word)
            continue;
        *bits = word & PP_IDLE_BITS;
        *since = now > then ? now - then : 0; /* the clock of another CPU may be slightly ahead */
        return 0;
    }
    return -EAGAIN;
}

int pp_idle_read_core(const void *base, uint64_t index, uint64_t *sums, int *known)
{
    const struct pp_idle_core *core = pp_idle_core(base, index);
    uint64_t since;
    unsigned bits;
    int rc;

    if (core == NULL)
        return -ENOENT;
    rc = read_sums(map_head(base), &core->word, PP_IDLE_CORE_SUMS, sums, &bits, &since);
    if (rc)
        return rc;
    *known = (bits & PP_IDLE_ALL_KNOWN) == PP_IDLE_ALL_KNOWN;
    sums[*known ? bits & PP_IDLE_ANY_BUSY : PP_IDLE_CORE_UNKNOWN] += since;
    return 0;
}

/* Reads the sums of a CPU's row, with the time at work extended to now. 0, -ENOENT or -EAGAIN. */
static int read_cpu(const void *base, uint64_t index, uint64_t *sums, int *known)
{
    const struct pp_idle_cpu *cpu = pp_idle_cpu(base, index);
    uint64_t since;
    unsigned bits;
    int rc;

    if (cpu == NULL)
        return -ENOENT;
    rc = read_sums(map_head(base), &cpu->word, PP_IDLE_CPU_SUMS, sums, &bits, &since);
    if (rc)
        return rc;
    *known = (bits & PP_IDLE_ALL_KNOWN) != 0;
    if (bits & PP_IDLE_ANY_BUSY)
        sums[PP_IDLE_CPU_BUSY] += since;
    return 0;
}

int pp_idle_value(const void *base, uint32_t kind, uint64_t index, uint64_t *out)
{
    uint64_t sums[PP_IDLE_CORE_SUMS];
    bool is_core = kind != PP_IDLE_BUSY;
    int known = 0;
    int rc = is_core ? pp_idle_read_core(base, index, sums, &known)
                     : read_cpu(base, index, sums, &known);

    if (rc == 0 && !known)
        rc = -ENODATA;
    if (rc == 0)
        *out = sums[is_core ? kind : PP_IDLE_CPU_BUSY];
    return rc;
}

/*
 * Counts of a group of perf events: by RDPMC through the events' pages where all of them allow it,
 * else by one read().
 *
 * A page belongs to the kernel, which writes it on the event's own CPU, with interrupts off,
 * between two steps of `lock`. So a reader pinned to that CPU sees a change only as a lock that
 * moved; one that is elsewhere reads nonsense, which the sampler's proof of place throws away.
 */
#ifndef PP_PERF_H
#define PP_PERF_H

#include <errno.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "perfprobe.h"

enum {
    PP_PERF_EVENTS = 16, /* in a group; counters of one CPU are fewer */
    PP_PERF_TIMES = 2,   /* columns before the counts: time enabled, time running (ns) */
    PP_PERF_WIDTH = 64,  /* columns at most, with those that other groups fill */
    PP_PERF_TRIES = 4    /* a lock that moves so often is not worth waiting for */
};

/* What tests replace. As the system calls: -1 and errno. */
struct pp_perf_ops {
    int (*open)(const struct perf_event_attr *attr, int cpu, int leader);
    ssize_t (*read)(int fd, void *buffer, size_t size);
    uint64_t (*rdpmc)(uint32_t counter);
    uint64_t (*rdtsc)(void);
};

typedef volatile const struct perf_event_mmap_page pp_perf_page;

struct pp_perf_group {
    const struct pp_perf_ops *ops;
    uint32_t n;      /* events */
    uint32_t width;  /* columns, up to the last that is filled */
    uint64_t filled; /* bit i: column i; as many as there are events and times */
    bool timed;      /* the times are wanted */
    bool direct;     /* there are pages, and they allow it */
    int fds[PP_PERF_EVENTS];
    pp_perf_page *pages[PP_PERF_EVENTS];
};

/* --- by page ---------------------------------------------------------------------------------- */

/* Only x86 comes here, which keeps loads in order: the compiler must, too. */
static inline void pp_perf_barrier(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Hardware counters are narrower than the kernel's sums; the kernel starts them below zero. */
static inline uint64_t pp_perf_extend(uint64_t pmc, uint32_t width)
{
    uint32_t unused = width > 0 && width < 64 ? 64 - width : 0;

    return (uint64_t)((int64_t)(pmc << unused) >> unused);
}

/* Since the page was written, in ns. */
static inline uint64_t pp_perf_since(pp_perf_page *page, uint64_t tsc)
{
    uint32_t shift = page->time_shift & 63;
    uint64_t mult = page->time_mult;
    uint64_t rest = tsc & (((uint64_t)1 << shift) - 1);

    return page->time_offset + (tsc >> shift) * mult + ((rest * mult) >> shift);
}

/*
 * One event: its count, and its times if `times` is not NULL. -EAGAIN: not on a counter now (then
 * the kernel knows the count), not allowed, or the page does not hold still.
 */
static inline int pp_perf_page_read(const struct pp_perf_ops *ops, pp_perf_page *page,
                                    uint64_t *times, uint64_t *count)
{
    for (int i = 0; i < PP_PERF_TRIES; i++) {
        uint32_t lock = page->lock, index;

        pp_perf_barrier();
        index = page->index;
        if (index == 0 || !page->cap_user_rdpmc || !page->cap_user_time)
            return -EAGAIN;
        *count = (uint64_t)page->offset + pp_perf_extend(ops->rdpmc(index - 1), page->pmc_width);
        if (times != NULL) {
            uint64_t since = pp_perf_since(page, ops->rdtsc());

            times[0] = page->time_enabled + since;
            times[1] = page->time_running + since;
        }
        pp_perf_barrier();
        if (page->lock == lock && lock % 2 == 0)
            return 0;
    }
    return -EAGAIN;
}

/* All events, between two looks at the first one's lock: a group that was taken off its counters
 * and put back half-way through has moved it. */
static inline int pp_perf_pages_read(const struct pp_perf_group *group, uint64_t *out)
{
    uint64_t *counts = out + (group->timed ? PP_PERF_TIMES : 0);

    for (int i = 0; i < PP_PERF_TRIES; i++) {
        uint32_t lock = group->pages[0]->lock;
        int rc = 0;

        for (uint32_t k = 0; k < group->n && rc == 0; k++)
            rc = pp_perf_page_read(group->ops, group->pages[k],
                                   group->timed && k == 0 ? out : NULL, &counts[k]);
        if (rc)
            return rc;
        pp_perf_barrier();
        if (group->pages[0]->lock == lock)
            return 0;
    }
    return -EAGAIN;
}

/* --- by read() -------------------------------------------------------------------------------- */

/*
 * PERF_FORMAT_GROUP with both times: how many, enabled, running, the counts. -EIO: not as many as
 * the group has. So it is when the CPU went off: the kernel has taken the group apart.
 */
static inline int pp_perf_parse(const uint64_t *buffer, size_t size, uint32_t n, bool timed,
                                uint64_t *out)
{
    if (size != (1 + PP_PERF_TIMES + n) * sizeof *buffer || buffer[0] != n)
        return -EIO;
    if (timed) {
        *out++ = buffer[1];
        *out++ = buffer[2];
    }
    for (uint32_t i = 0; i < n; i++)
        out[i] = buffer[1 + PP_PERF_TIMES + i];
    return 0;
}

static inline int pp_perf_read_group(const struct pp_perf_group *group, uint64_t *out)
{
    uint64_t buffer[1 + PP_PERF_TIMES + PP_PERF_EVENTS];
    size_t size = (1 + PP_PERF_TIMES + group->n) * sizeof *buffer;
    ssize_t got = group->ops->read(group->fds[0], buffer, size);

    if (got < 0)
        return -errno;
    return pp_perf_parse(buffer, (size_t)got, group->n, group->timed, out);
}

/* To its columns; those in between may be another group's. */
static inline int pp_perf_get(const struct pp_perf_group *group, uint64_t *out)
{
    uint64_t dense[PP_PERF_TIMES + PP_PERF_EVENTS];
    const uint64_t *next = dense;
    int rc = group->direct ? pp_perf_pages_read(group, dense) : -EAGAIN;

    if (rc)
        rc = pp_perf_read_group(group, dense);
    for (uint32_t column = 0; column < group->width && rc == 0; column++)
        if (group->filled >> column & 1)
            out[column] = *next++;
    return rc;
}

#endif

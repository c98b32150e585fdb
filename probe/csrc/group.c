#include "group.h"

#include <errno.h>

/* --- reading by page -------------------------------------------------------------------------- */

/* Keeps the compiler from reordering loads; x86 itself does not reorder them. */
static void barrier(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Sign-extends a counter of `width` bits, which the kernel starts below zero. */
static uint64_t sign_extend(uint64_t pmc, uint32_t width)
{
    uint32_t unused = (64 - width) & 63; /* 0 if the page has no width, too */

    return (uint64_t)((int64_t)(pmc << unused) >> unused);
}

/* Returns the time in ns since the kernel wrote the page. */
static uint64_t ns_since(pp_perf_page *page, uint64_t tsc)
{
    uint32_t shift = page->time_shift & 63u;
    uint64_t mult = page->time_mult;
    uint64_t rest = tsc & (((uint64_t)1 << shift) - 1);

    return page->time_offset + (tsc >> shift) * mult + ((rest * mult) >> shift);
}

int pp_perf_page_read(const struct pp_perf_ops *ops, pp_perf_page *page, uint64_t *times,
                      uint64_t *count)
{
    for (int i = 0; i < PP_PERF_TRIES; i++) {
        uint32_t lock = page->lock, index;
        uint64_t pmc;

        barrier();
        index = page->index;
        if (index == 0 || !page->cap_user_rdpmc || !page->cap_user_time)
            return -EAGAIN;
        if (ops->rdpmc(index - 1, &pmc))
            return -EAGAIN;
        *count = (uint64_t)page->offset + sign_extend(pmc, page->pmc_width);
        if (times != NULL) {
            uint64_t since = ns_since(page, ops->rdtsc());

            times[0] = page->time_enabled + since;
            times[1] = page->time_running + since;
        }
        barrier();
        if (page->lock == lock && lock % 2 == 0)
            return 0;
    }
    return -EAGAIN;
}

/* Reads all events between two reads of the first event's lock: if the kernel took the group off
 * its counters and put it back meanwhile, the lock has changed. */
int pp_perf_read_pages(const struct pp_perf_group *group, uint64_t *out)
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
        barrier();
        if (group->pages[0]->lock == lock)
            return 0;
    }
    return -EAGAIN;
}

/* --- reading by read() ------------------------------------------------------------------------ */

/* 
 * The result of read() is: number of events, ns enabled, ns running, counts (PERF_FORMAT_GROUP).
 * -EIO: the number of events is wrong, because the CPU went offline and the kernel has dissolved
 * the group. */
int pp_perf_read_file(const struct pp_perf_group *group, uint64_t *out)
{
    uint64_t buffer[1 + PP_PERF_TIMES + PP_PERF_EVENTS];
    size_t size = (1 + PP_PERF_TIMES + group->n) * sizeof *buffer;
    ssize_t got = group->ops->read(group->fds[0], buffer, size);

    if (got < 0)
        return -errno;
    if ((size_t)got != size || buffer[0] != group->n)
        return -EIO;
    for (uint32_t i = group->timed ? 0 : PP_PERF_TIMES; i < PP_PERF_TIMES + group->n; i++)
        *out++ = buffer[1 + i];
    return 0;
}

/* --- reading a group -------------------------------------------------------------------------- */

int pp_perf_read(const pp_perf_group *group, uint64_t *columns)
{
    uint64_t dense[PP_PERF_TIMES + PP_PERF_EVENTS];
    const uint64_t *next = dense;
    int rc = group->uses_rdpmc ? pp_perf_read_pages(group, dense) : -EAGAIN;

    if (rc)
        rc = pp_perf_read_file(group, dense);
    for (uint32_t column = 0; column < group->width && rc == 0; column++)
        if (group->filled >> column & 1) /* other columns may be those of another group */
            columns[column] = *next++;
    return rc;
}

uint32_t pp_perf_columns(const pp_perf_group *group)
{
    return group->width;
}

int pp_perf_uses_rdpmc(const pp_perf_group *group)
{
    return group->uses_rdpmc;
}

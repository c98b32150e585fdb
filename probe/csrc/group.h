/* 
 * Reads a group of perf events: by RDPMC and the events' pages if all events allow it, else by one
 * read(). Source: group.c, which also defines pp_perf_read, pp_perf_columns and pp_perf_uses_rdpmc
 * of perfprobe.h.
 *
 * An event's page (perf_event_mmap_page) is written by the kernel on the event's own CPU, with
 * interrupts off, between two increments of `lock`. So for a reader on that CPU the page has
 * changed only if the lock has. A reader on another CPU may get wrong values, which the sampler
 * discards. */
#ifndef PP_GROUP_H
#define PP_GROUP_H

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "perfprobe.h"

enum {
    PP_PERF_EVENTS = 16, /* maximum number of events in a group; a CPU has fewer counters */
    PP_PERF_TIMES = 2,   /* columns before the counts: ns enabled, and ns running */
    PP_PERF_WIDTH = 64,  /* maximum number of columns, including gaps for other groups */
    PP_PERF_TRIES = 4    /* attempts if a page changes; more would cost more than read() */
};

/* System calls and instructions that tests replace. Calls fail with -1 and errno. */
struct pp_perf_ops {
    int (*open)(const struct perf_event_attr *attr, int cpu, int leader);
    ssize_t (*read)(int fd, void *buffer, size_t size);
    int (*rdpmc)(uint32_t counter, uint64_t *count); /* not 0: the CPU refused it (rdpmc.h) */
    uint64_t (*rdtsc)(void);
};

typedef volatile const struct perf_event_mmap_page pp_perf_page;

/* A group of perf events; constant while a lane reads it. */
struct pp_perf_group {
    const struct pp_perf_ops *ops;
    uint32_t n;      /* number of events */
    uint32_t width;  /* number of columns up to the last that is filled */
    uint64_t filled; /* bit i: column i is filled; one bit for each event and time */
    bool timed;      /* whether the times are read, too */
    bool uses_rdpmc; /* whether all events have a page that allows RDPMC */
    int fds[PP_PERF_EVENTS]; /* descriptors, the leader's first; pp_perf_group_free closes them */
    pp_perf_page *pages[PP_PERF_EVENTS]; /* the pages of all events; NULL unless `uses_rdpmc` */
};

/* 
 * Reads one event by its page: its count, and its times (enabled, running) if `times` is not NULL.
 * -EAGAIN: use read() instead, because the event is not on a counter now, RDPMC is not allowed or
 * was refused, or the page keeps changing. */
int pp_perf_page_read(const struct pp_perf_ops *ops, pp_perf_page *page, uint64_t *times,
                      uint64_t *count);

/* Read the times, if the group has them, and the counts into `out`, without gaps between columns.
 * pp_perf_read_pages reads the pages (-EAGAIN as above). pp_perf_read_file calls read() (-errno;
 * -EIO if the kernel has dissolved the group). */
int pp_perf_read_pages(const struct pp_perf_group *group, uint64_t *out);
int pp_perf_read_file(const struct pp_perf_group *group, uint64_t *out);

#endif

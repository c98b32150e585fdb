/* Perf events: declarations for Python. Source: perf.c, group.c. */
#ifndef PP_SHARED_PERF_H
#define PP_SHARED_PERF_H

#include <stdint.h>

/* cffi: begin */

/*
 * Events that count on one CPU, whatever task runs there. The kernel puts the members of a group on
 * the counters together: open a leader (`leader` -1), then its siblings, then enable the leader.
 */

enum {
    PP_EVENT_KERNEL = 1, /* count in the kernel only */
    PP_EVENT_HOST = 2,   /* do not count while a guest runs */
    PP_EVENT_USER = 4,   /* count in user space only */
    PP_EVENT_PINNED = 8  /* for a leader: its group is always on the counters */
};

typedef struct pp_event {
    uint32_t type;
    uint32_t flags; /* PP_EVENT_ bits; only PMUs of cores accept them */
    uint64_t config, config1, config2;
    uint64_t period; /* events between two samples of task and kernel stack; 0: no samples */
} pp_event;

int pp_perf_open(const pp_event *event, int32_t cpu, int32_t leader); /* returns a descriptor */
int pp_perf_enable(int32_t leader);

typedef struct pp_perf_group pp_perf_group;

/*
 * Makes a group of these descriptors, the leader first; the group owns them from now on. With
 * `timed` the first two columns are the times (ns) for which the group was enabled, and on the
 * counters. Without `mapped` the group is read by read() only. The caller keeps the group until the
 * lane that reads it is detached.
 */
int pp_perf_group_new(const int32_t *fds, uint32_t n, int timed, int mapped, pp_perf_group **out);

/* Places the group's events in columns, before a lane reads it: the set bits of `columns` are the
 * columns of the events in order (with `timed`, columns 0 and 1 are the times). Columns in between
 * are not valid. */
int pp_perf_group_place(pp_perf_group *group, uint64_t columns);
void pp_perf_group_free(pp_perf_group *group); /* `group` may be NULL. */
uint32_t pp_perf_columns(const pp_perf_group *group); /* up to the last filled column */
int pp_perf_is_direct(const pp_perf_group *group); /* 1: RDPMC reads it, without a system call */
int pp_perf_read(const pp_perf_group *group, uint64_t *columns);

typedef struct pp_trial {
    uint64_t ticks;  /* elapsed ticks of the TSC */
    uint64_t ns;     /* elapsed ns */
    uint64_t own_ns; /* time that the caller ran */
} pp_trial;

/* Measures how far each column advances while the caller, which is pinned to the group's CPU, runs
 * for `own_ns`. */
int pp_perf_trial(const pp_perf_group *group, uint64_t own_ns, uint64_t *moved, pp_trial *out);

/* cffi: end */

#endif

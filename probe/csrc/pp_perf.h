/* Perf events: declarations for Python. Source: perf.c, group.c. */
#ifndef PP_SHARED_PERF_H
#define PP_SHARED_PERF_H

#include <stdint.h>

/* cffi: begin */

/* 
 * Perf events that count on one CPU, whatever task runs there. The kernel counts the events of a
 * group together. To make a group, open its leader (`leader` -1), then its siblings (with the
 * leader's descriptor), and then enable the leader. */

enum {
    PP_EVENT_KERNEL = 1, /* count in the kernel only */
    PP_EVENT_HOST = 2,   /* do not count while a guest runs */
    PP_EVENT_USER = 4,   /* count in user space only */
    PP_EVENT_PINNED = 8  /* for a leader: its group is always on the counters */
};

typedef struct pp_event {
    uint32_t type;
    uint32_t flags; /* PP_EVENT_ bits, which only PMUs of cores accept */
    uint64_t config, config1, config2;
    uint64_t period; /* events between two samples of task and kernel stack; 0: no samples */
} pp_event;

int pp_perf_open(const pp_event *event, int32_t cpu, int32_t leader); /* returns a descriptor */
int pp_perf_enable(int32_t leader);

typedef struct pp_perf_group pp_perf_group;

/* 
 * Creates a group from these descriptors, the leader first; pp_perf_group_free closes them. With
 * `timed`, the first two columns are the times (ns) for which the group was enabled and counting.
 * Without `mapped`, the group is never read by RDPMC. The caller keeps the group until the lane
 * that reads it is detached. */
int pp_perf_group_new(const int32_t *fds, uint32_t n, int timed, int mapped, pp_perf_group **out);

/* Sets the group's columns, before a lane reads it: bit i of `columns` is set if column i is
 * filled, by the times (columns 0 and 1, with `timed`) and then by the events in order. */
int pp_perf_group_place(pp_perf_group *group, uint64_t columns);
void pp_perf_group_free(pp_perf_group *group); /* `group` may be NULL. */
uint32_t pp_perf_columns(const pp_perf_group *group); /* up to the last filled column */
int pp_perf_uses_rdpmc(const pp_perf_group *group); /* 1: RDPMC reads it, without a system call */
int pp_perf_read(const pp_perf_group *group, uint64_t *columns);

typedef struct pp_trial {
    uint64_t ticks;  /* elapsed ticks of the TSC */
    uint64_t ns;     /* elapsed ns */
    uint64_t cpu_ns; /* CPU time of the caller */
} pp_trial;

/* Spins until the caller, which must be pinned to the group's CPU, has used `cpu_ns` of CPU time.
 * `increases` becomes how far each column advanced. */
int pp_perf_trial(const pp_perf_group *group, uint64_t cpu_ns, uint64_t *increases, pp_trial *out);

/* cffi: end */

#endif

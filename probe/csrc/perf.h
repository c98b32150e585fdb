/*
 * Opening perf events, and the life of a group. Source: perf.c; most of what it has is declared in
 * perfprobe.h.
 */
#ifndef PP_PERF_H
#define PP_PERF_H

#include "group.h"

/* As pp_perf_open, by these operations. */
int pp_perf_open_by(const struct pp_perf_ops *ops, const pp_event *event, int32_t cpu,
                    int32_t leader);

#endif

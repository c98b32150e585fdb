/* Opens perf events; creates and frees groups. Source: perf.c (most functions: perfprobe.h). */
#ifndef PP_PERF_H
#define PP_PERF_H

#include "group.h"

/* Like pp_perf_open, but calls these operations, which tests replace. */
int pp_perf_open_by(const struct pp_perf_ops *ops, const pp_event *event, int32_t cpu,
                    int32_t leader);

#endif

/* 
 * Reads the times of all CPUs (user, system, idle ...) in /proc/stat. Source: proc_stat.c. */
#ifndef PP_PROC_STAT_H
#define PP_PROC_STAT_H

#include <stdbool.h>
#include <stdint.h>

#include "perfprobe.h"

/* Reads the text and keeps the lines of CPUs below stat->cpus. A line is kept if its first
 * PP_STAT_FIELDS numbers are decimal and fit into 64 bits; if a CPU has several such lines, the
 * last one counts. 0 or -errno. */
int pp_proc_stat_read(pp_proc_stat *stat);

/* Copies a CPU's fields from the last read. -ENODATA: the text had no line of this CPU. */
int pp_proc_stat_ticks(const pp_proc_stat *stat, uint32_t cpu, uint64_t *ticks);

#endif

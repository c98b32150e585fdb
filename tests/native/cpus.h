/* Functions that find the CPUs a test may use, and pin a thread to one. */
#ifndef PP_CPUS_H
#define PP_CPUS_H

#include <sched.h>

#include "check.h"

/* Writes up to two allowed CPUs to `cpus`. Returns their number. */
static inline int own_cpus(int *cpus)
{
    cpu_set_t set;
    int n = 0;

    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++)
        if (CPU_ISSET(cpu, &set))
            cpus[n++] = cpu;
    CHECK(n > 0);
    return n;
}

/* Pins this thread to the CPU. */
static inline void pin(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

#endif

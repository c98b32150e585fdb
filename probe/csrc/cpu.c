#define _GNU_SOURCE
#include "cpu.h"

#include <cpuid.h>
#include <errno.h>
#include <string.h>

#include "perfprobe.h"

/* Linux puts the CPU's number into the low 12 bits of TSC_AUX, and the node above them. */
enum { AUX_CPU = 0xfff };

enum { HAS_RDTSCP = 1 << 27 }; /* in EDX of CPUID leaf 0x80000001 */

/* --- clocks ----------------------------------------------------------------------------------- */

enum pp_clock pp_tsc_clock(void)
{
    unsigned a, b, c, d;

    if (__get_cpuid(0x80000001, &a, &b, &c, &d) && (d & HAS_RDTSCP))
        return PP_CLOCK_RDTSCP;
    return PP_CLOCK_RDTSC;
}

enum pp_clock pp_proven_clock(enum pp_clock clock)
{
    if (clock == PP_CLOCK_RDTSCP && pp_now(clock, true).cpu != sched_getcpu())
        return PP_CLOCK_RDTSC;
    return clock;
}

struct pp_instant pp_now(enum pp_clock clock, bool check_cpu)
{
    struct pp_instant now = {.cpu = -1};
    unsigned aux;

    if (clock == PP_CLOCK_RDTSCP) {
        now.stamp = pp_rdtscp(&aux);
        now.cpu = check_cpu ? (int)(aux & AUX_CPU) : -1;
        return now;
    }
    now.stamp = clock == PP_CLOCK_RDTSC ? pp_rdtsc() : pp_clock_ns(CLOCK_MONOTONIC_RAW);
    if (check_cpu)
        now.cpu = sched_getcpu();
    return now;
}

uint64_t pp_clock_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct timespec pp_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}

void pp_sleep_until(uint64_t ns)
{
    const struct timespec t = pp_timespec(ns);

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

uint64_t pp_stamp(void)
{
    return pp_rdtsc();
}

/* --- the CPU ---------------------------------------------------------------------------------- */

void pp_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t *registers)
{
    __cpuid_count(leaf, subleaf, registers[0], registers[1], registers[2], registers[3]);
}

int pp_current_cpu(void)
{
    return sched_getcpu();
}

int pp_single_cpu_mask(int cpu, struct pp_cpu_mask *mask)
{
    if (cpu < 0 || cpu >= PP_CPU_MAX)
        return -EINVAL;
    memset(mask, 0, sizeof *mask);
    CPU_SET_S((size_t)cpu, sizeof *mask, (cpu_set_t *)mask);
    return 0;
}

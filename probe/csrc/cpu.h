/*
 * Clocks, the CPU that a thread runs on, and masks of CPUs. Source: cpu.c, which also has
 * pp_stamp, pp_cpuid and pp_current_cpu of perfprobe.h.
 */
#ifndef PP_CPU_H
#define PP_CPU_H

#ifndef __x86_64__
#error "perfprobe needs the time-stamp counter, CPUID and RDPMC of x86-64"
#endif
#ifndef _GNU_SOURCE
#error "cpu_set_t needs _GNU_SOURCE"
#endif

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum pp_clock {
    PP_CLOCK_RDTSCP, /* stamp and CPU in one instruction */
    PP_CLOCK_RDTSC,  /* no RDTSCP (Core 2, some guests): the CPU comes from getcpu */
    PP_CLOCK_RAW     /* CLOCK_MONOTONIC_RAW, ns; neither RDTSC nor CPUID is executed */
};

struct pp_instant {
    uint64_t stamp;
    int cpu; /* -1: not asked */
};

/* Linux allows 8192 CPUs; CPU_SETSIZE is 1024. */
enum { PP_CPU_MAX = 8192 };

struct pp_cpu_mask {
    unsigned long bits[PP_CPU_MAX / (8 * sizeof(unsigned long))];
};

/*
 * The TSC, read between the instructions before and after: RDTSCP waits for earlier instructions,
 * LFENCE holds later ones back. `aux` receives TSC_AUX, which Linux fills with the CPU's number.
 * The compilers' builtins are used since <x86intrin.h> takes longer to compile than all of csrc.
 */
static inline uint64_t pp_rdtscp(unsigned *aux)
{
    uint64_t t = __builtin_ia32_rdtscp(aux);

    __builtin_ia32_lfence();
    return t;
}

static inline uint64_t pp_rdtsc(void)
{
    uint64_t t;

    __builtin_ia32_lfence();
    t = __builtin_ia32_rdtsc();
    __builtin_ia32_lfence();
    return t;
}

/* The better clock of the first two. It executes CPUID, which takes microseconds in guests. */
enum pp_clock pp_tsc_clock(void);

/*
 * PP_CLOCK_RDTSC instead of PP_CLOCK_RDTSCP where TSC_AUX does not hold this CPU's number: some
 * hypervisors leave it unset, and 12 bits hold no number above 4095. The caller runs on the CPU
 * that it asks about; if it is moved meanwhile, it gets the slower clock, which is right as well.
 */
enum pp_clock pp_proven_clock(enum pp_clock clock);

/* A stamp, and with `proof` the CPU it was taken on. */
struct pp_instant pp_now(enum pp_clock clock, bool proof);

uint64_t pp_clock_ns(clockid_t clock);
struct timespec pp_timespec(uint64_t ns);

/* Sleeps until `ns` of CLOCK_MONOTONIC; signals do not end it. */
void pp_sleep_until(uint64_t ns);

/* The mask of one CPU. -EINVAL: no kernel has such a CPU. */
int pp_cpu_only(int cpu, struct pp_cpu_mask *mask);

#endif

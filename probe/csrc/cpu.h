/* 
 * Clocks, the CPU that a thread runs on, and masks of CPUs. Source: cpu.c, which also defines
 * pp_stamp, pp_cpuid and pp_current_cpu of perfprobe.h. */
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
    PP_CLOCK_RDTSCP, /* one instruction returns stamp and CPU */
    PP_CLOCK_RDTSC,  /* no RDTSCP (Core 2, some guests): the CPU comes from getcpu */
    PP_CLOCK_RAW     /* ns of CLOCK_MONOTONIC_RAW; neither RDTSC nor CPUID is executed */
};

struct pp_instant {
    uint64_t stamp;
    int cpu; /* the CPU of the stamp; -1: not read */
};

/* Linux allows 8192 CPUs; CPU_SETSIZE is 1024. */
enum { PP_CPU_MAX = 8192 };

struct pp_cpu_mask {
    unsigned long bits[PP_CPU_MAX / (8 * sizeof(unsigned long))];
};

/* 
 * Reads the TSC in program order: RDTSCP waits for earlier instructions, and LFENCE delays later
 * ones. `aux` receives TSC_AUX, which Linux fills with the CPU's number. Builtins are used because
 * <x86intrin.h> takes longer to compile than all of csrc. */
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

/* Returns PP_CLOCK_RDTSCP or PP_CLOCK_RDTSC, by CPUID, which takes microseconds in guests. */
enum pp_clock pp_tsc_clock(void);

/* 
 * Returns PP_CLOCK_RDTSC instead of PP_CLOCK_RDTSCP if TSC_AUX does not have the number of the
 * calling thread's CPU: some hypervisors do not set it, and it has 12 bits for numbers up to 4095.
 * If the thread is moved meanwhile, the result is the slower clock, which works, too. */
enum pp_clock pp_proven_clock(enum pp_clock clock);

/* Returns a time stamp by this clock and, with `check_cpu`, the CPU on which it was read. */
struct pp_instant pp_now(enum pp_clock clock, bool check_cpu);

uint64_t pp_clock_ns(clockid_t clock);
struct timespec pp_timespec(uint64_t ns);

/* Sleeps until `ns` of CLOCK_MONOTONIC; signals do not end it. */
void pp_sleep_until(uint64_t ns);

/* Creates a mask with only this CPU. -EINVAL: no kernel has a CPU with this number. */
int pp_single_cpu_mask(int cpu, struct pp_cpu_mask *mask);

#endif

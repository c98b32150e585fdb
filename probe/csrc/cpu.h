/*
 * When and where: a stamp, and the CPU it was taken on.
 *
 * RDTSCP waits for earlier instructions, LFENCE holds later ones back: what lies between two such
 * stamps was executed between them. CPUID is asked once, not in the sampling path: it traps in
 * guests (microseconds).
 */
#ifndef PP_CPU_H
#define PP_CPU_H

#ifndef _GNU_SOURCE
#error "_GNU_SOURCE: sched_getcpu"
#endif

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__) && !defined(PP_NO_TSC) /* a test build defines it */
#include <cpuid.h>
#include <x86intrin.h>
#endif

enum pp_clock {
    PP_CLOCK_RDTSCP, /* stamp and CPU in one instruction */
    PP_CLOCK_RDTSC,  /* no RDTSCP (Core 2, some guests): the CPU comes from getcpu */
    PP_CLOCK_RAW
};

struct pp_instant {
    uint64_t stamp;
    int cpu; /* -1: not asked */
};

/* Linux puts the CPU number into the low 12 bits of TSC_AUX, the node above. */
enum { PP_AUX_CPU = 0xfff };

static inline uint64_t pp_clock_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ns of CLOCK_MONOTONIC; signals do not end it. */
static inline void pp_sleep_until(uint64_t ns)
{
    const struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u),
                               .tv_nsec = (long)(ns % 1000000000u)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

#if defined(__x86_64__) && !defined(PP_NO_TSC) /* a test build defines it */

static inline bool pp_has_tsc(void)
{
    return true;
}

static inline bool pp_has_rdtscp(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(0x80000001, &a, &b, &c, &d) && (d & (1u << 27));
}

static inline uint64_t pp_rdtscp(unsigned *aux)
{
    uint64_t t = __rdtscp(aux);

    _mm_lfence();
    return t;
}

static inline uint64_t pp_rdtsc(void)
{
    uint64_t t;

    _mm_lfence();
    t = __rdtsc();
    _mm_lfence();
    return t;
}

#else

static inline bool pp_has_tsc(void)
{
    return false;
}

static inline bool pp_has_rdtscp(void)
{
    return false;
}

static inline uint64_t pp_rdtscp(unsigned *aux)
{
    *aux = 0;
    return 0;
}

static inline uint64_t pp_rdtsc(void)
{
    return 0;
}

#endif

static inline struct pp_instant pp_now(enum pp_clock clock, bool proof)
{
    struct pp_instant now = {.cpu = -1};
    unsigned aux;

    if (clock == PP_CLOCK_RDTSCP) {
        now.stamp = pp_rdtscp(&aux);
        now.cpu = proof ? (int)(aux & PP_AUX_CPU) : -1;
        return now;
    }
    now.stamp = clock == PP_CLOCK_RDTSC ? pp_rdtsc() : pp_clock_ns(CLOCK_MONOTONIC_RAW);
    if (proof)
        now.cpu = sched_getcpu();
    return now;
}

/*
 * RDTSCP only where its TSC_AUX can be believed for this CPU: some hypervisors leave it unset, and
 * 12 bits hold no number above 4095. Called by a thread that runs on the CPU it asks about; if it
 * is moved in between, the answer is the slower, equally right way.
 */
static inline enum pp_clock pp_proven_clock(enum pp_clock clock)
{
    if (clock == PP_CLOCK_RDTSCP && pp_now(clock, true).cpu != sched_getcpu())
        return PP_CLOCK_RDTSC;
    return clock;
}

#endif

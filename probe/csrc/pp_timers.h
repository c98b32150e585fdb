/* Timers: what Python sees. Source: timers.c, exchange.c. */
#ifndef PP_SHARED_TIMERS_H
#define PP_SHARED_TIMERS_H

#include <stdint.h>

/* cffi: begin */

/*
 * The cost of asking for the time, or for a count: back to back, on the CPU that the caller is
 * pinned to. And stamps by which to tell how far the time-stamp counters of two CPUs are apart.
 */

enum {
    PP_TIMER_RDTSC = 1, /* the first six are stamps: a sample is the time from one to the next */
    PP_TIMER_RDTSCP = 2,
    PP_TIMER_LFENCE_RDTSC = 3,
    PP_TIMER_RDTSCP_LFENCE = 4,
    PP_TIMER_MFENCE_LFENCE_RDTSC = 5,
    PP_TIMER_CPUID_RDTSC = 6,
    PP_TIMER_NOTHING = 7,    /* only the stamps around a sample of the kinds below */
    PP_TIMER_CLOCK = 8,      /* clock_gettime of clock arg; values in ns */
    PP_TIMER_SYSCALL = 9,    /* getppid, which does next to nothing */
    PP_TIMER_PERF_PAGE = 10, /* the pp_perf_group of one event at address arg, by RDPMC */
    PP_TIMER_PERF_READ = 11, /* the same by read() */
    PP_TIMER_MSR = 12        /* register arg of fd, a /dev/cpu/N/msr */
};

typedef struct pp_timer {
    uint32_t kind;
    uint32_t calls; /* in a sample; of a stamp 1 */
    int32_t fd;
    uint64_t arg;
} pp_timer;

/* Fills `ticks` with the TSC ticks that n samples took, n a multiple of 8, and `values` with what
 * the last call of each answered. -EXDEV: it did not run on one CPU throughout. */
int pp_timer_run(const pp_timer *timer, uint32_t n, uint64_t *ticks, uint64_t *values);

/* One message to another CPU and back: their stamps, in the order in which they were taken. */
typedef struct pp_exchange {
    uint64_t sent; /* here */
    uint64_t seen; /* there */
    uint64_t back; /* here */
} pp_exchange;

/* Up to n exchanges between the caller, which is pinned, and a thread pinned to `cpu`; after
 * `limit_ns` it gives up with fewer. Returns how many, or -errno: -EINVAL for a CPU on which this
 * process may not run, -EXDEV if either did not stay on its CPU. */
int pp_exchange_stamps(int cpu, uint32_t n, uint64_t limit_ns, pp_exchange *out);

/* cffi: end */

#endif

/* Timers: declarations for Python. Source: timers.c, exchange.c. */
#ifndef PP_SHARED_TIMERS_H
#define PP_SHARED_TIMERS_H

#include <stdint.h>

/* cffi: begin */

/* 
 * Measures the cost of methods of reading the time or a counter, on the CPU to which the caller is
 * pinned; and the offset between the time-stamp counters of two CPUs. */

enum {
    PP_TIMER_RDTSC = 1, /* the first six are stamps: a sample is the time between two of them */
    PP_TIMER_RDTSCP = 2,
    PP_TIMER_LFENCE_RDTSC = 3,
    PP_TIMER_RDTSCP_LFENCE = 4,
    PP_TIMER_MFENCE_LFENCE_RDTSC = 5,
    PP_TIMER_CPUID_RDTSC = 6,
    PP_TIMER_NOTHING = 7,    /* no call: the cost of the stamps before and after other samples */
    PP_TIMER_CLOCK = 8,      /* clock_gettime of clock arg; values in ns */
    PP_TIMER_SYSCALL = 9,    /* getppid, a system call that does nearly nothing */
    PP_TIMER_PERF_PAGE = 10, /* the pp_perf_group of one event at address arg, by RDPMC */
    PP_TIMER_PERF_READ = 11, /* the pp_perf_group of one event at address arg, by read() */
    PP_TIMER_MSR = 12        /* register arg of fd, a /dev/cpu/N/msr */
};

typedef struct pp_timer {
    uint32_t kind;  /* a PP_TIMER_ kind, on which the meaning of fd and arg depends */
    uint32_t calls; /* number of calls in a sample; 1 for a stamp */
    int32_t fd;
    uint64_t arg;
} pp_timer;

/* Takes n samples (a multiple of 8) of a method. Fills `ticks` with the TSC ticks of each, and
 * `values` with the result of its last call. -EXDEV: the thread was moved to another CPU. */
int pp_timer_run(const pp_timer *timer, uint32_t n, uint64_t *ticks, uint64_t *values);

/* The stamps of one message to another CPU and back, in the order in which they were taken. */
typedef struct pp_exchange {
    uint64_t sent;     /* by the caller's CPU, before the message */
    uint64_t received; /* by the other CPU, when it sees the message */
    uint64_t returned; /* by the caller's CPU, when it sees the answer */
} pp_exchange;

/* Does up to n exchanges between the caller, which is pinned, and a thread pinned to `cpu`; stops
 * after `limit_ns`. Returns the number of exchanges, or -errno: -EINVAL for a CPU on which this
 * process may not run, -EXDEV if a thread did not stay on its CPU. */
int pp_exchange_stamps(int cpu, uint32_t n, uint64_t limit_ns, pp_exchange *out);

/* cffi: end */

#endif

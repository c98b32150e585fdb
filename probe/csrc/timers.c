#define _GNU_SOURCE
#include "perfprobe.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu.h"
#include "group.h"

enum { UNROLLED = 8 }; /* number of stamps in an iteration of the loop */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* --- stamps ----------------------------------------------------------------------------------- */

/* Reads the TSC with only the fences that the PP_TIMER_ kind names (the functions of cpu.h have
 * others). "volatile" and the memory clobber keep the compiler from moving the instructions. */
#define TSC(before, instruction, after, more)                                             \
    ({                                                                                    \
        uint32_t low_, high_;                                                             \
        __asm__ volatile(before instruction after                                         \
                         : "=a"(low_), "=d"(high_)                                        \
                         :                                                                \
                         : "memory" more);                                                \
        (uint64_t)high_ << 32 | low_;                                                     \
    })
#define AUX , "ecx"
#define CPUID_WRITES , "ebx", "ecx"

/* `kind` is a constant in each call, so the compiler keeps only one case of the switch. */
ALWAYS_INLINE uint64_t stamp(uint32_t kind)
{
    switch (kind) {
    case PP_TIMER_RDTSC:
        return TSC("", "rdtsc", "", );
    case PP_TIMER_RDTSCP:
        return TSC("", "rdtscp", "", AUX);
    case PP_TIMER_LFENCE_RDTSC:
        return TSC("lfence\n\t", "rdtsc", "", );
    case PP_TIMER_RDTSCP_LFENCE:
        return TSC("", "rdtscp", "\n\tlfence", AUX);
    case PP_TIMER_MFENCE_LFENCE_RDTSC:
        return TSC("mfence\n\tlfence\n\t", "rdtsc", "", );
    case PP_TIMER_CPUID_RDTSC:
        return TSC("xorl %%eax, %%eax\n\txorl %%ecx, %%ecx\n\tcpuid\n\t", "rdtsc", "",
                   CPUID_WRITES);
    }
    return pp_rdtsc();
}

ALWAYS_INLINE int run_stamps(uint32_t kind, uint32_t n, uint64_t *ticks, uint64_t *values)
{
    uint64_t last = stamp(kind);

    for (uint32_t i = 0; i < n; i += UNROLLED) {
        values[i] = stamp(kind);
        values[i + 1] = stamp(kind);
        values[i + 2] = stamp(kind);
        values[i + 3] = stamp(kind);
        values[i + 4] = stamp(kind);
        values[i + 5] = stamp(kind);
        values[i + 6] = stamp(kind);
        values[i + 7] = stamp(kind);
    }
    for (uint32_t i = 0; i < n; i++) {
        ticks[i] = values[i] - last;
        last = values[i];
    }
    return 0;
}

/* --- calls ------------------------------------------------------------------------------------ */

ALWAYS_INLINE int call(uint32_t kind, const pp_timer *timer, uint64_t *value)
{
    /* Room for the times and counts of a perf group. */
    uint64_t columns[PP_PERF_TIMES + PP_PERF_EVENTS];
    const struct pp_perf_group *group = (const void *)(uintptr_t)timer->arg;
    int rc = 0;

    columns[0] = 0;
    switch (kind) {
    case PP_TIMER_CLOCK:
        *value = pp_clock_ns((clockid_t)timer->arg);
        break;
    case PP_TIMER_SYSCALL:
        *value = (uint64_t)syscall(SYS_getppid);
        break;
    case PP_TIMER_PERF_PAGE:
        rc = pp_perf_read_pages(group, columns);
        *value = columns[0];
        break;
    case PP_TIMER_PERF_READ:
        rc = pp_perf_read_file(group, columns);
        *value = columns[0];
        break;
    case PP_TIMER_MSR:
        if (pread(timer->fd, value, sizeof *value, (off_t)timer->arg) != sizeof *value)
            rc = -EIO;
        break;
    default:
        *value = 0;
    }
    return rc;
}

ALWAYS_INLINE int run_calls(uint32_t kind, const pp_timer *timer, uint32_t n, uint64_t *ticks,
                            uint64_t *values)
{
    uint64_t last = pp_rdtsc();

    for (uint32_t i = 0; i < n; i++) {
        uint64_t now;

        for (uint32_t c = 0; c < timer->calls; c++) {
            int rc = call(kind, timer, &values[i]);

            if (rc)
                return rc;
        }
        now = pp_rdtsc();
        ticks[i] = now - last;
        last = now;
    }
    return 0;
}

#define STAMPS(kind) \
    case kind:       \
        return run_stamps(kind, n, ticks, values)
#define CALLS(kind) \
    case kind:      \
        return run_calls(kind, timer, n, ticks, values)

static int run(const pp_timer *timer, uint32_t n, uint64_t *ticks, uint64_t *values)
{
    switch (timer->kind) {
        STAMPS(PP_TIMER_RDTSC);
        STAMPS(PP_TIMER_RDTSCP);
        STAMPS(PP_TIMER_LFENCE_RDTSC);
        STAMPS(PP_TIMER_RDTSCP_LFENCE);
        STAMPS(PP_TIMER_MFENCE_LFENCE_RDTSC);
        STAMPS(PP_TIMER_CPUID_RDTSC);
        CALLS(PP_TIMER_NOTHING);
        CALLS(PP_TIMER_CLOCK);
        CALLS(PP_TIMER_SYSCALL);
        CALLS(PP_TIMER_PERF_PAGE);
        CALLS(PP_TIMER_PERF_READ);
        CALLS(PP_TIMER_MSR);
    }
    return -EINVAL;
}

int pp_timer_run(const pp_timer *timer, uint32_t n, uint64_t *ticks, uint64_t *values)
{
    int cpu = sched_getcpu(), rc;

    if (n == 0 || n % UNROLLED || timer->calls == 0)
        return -EINVAL;
    rc = run(timer, n, ticks, values);
    return rc == 0 && sched_getcpu() != cpu ? -EXDEV : rc;
}

#define _GNU_SOURCE
#include "timers.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "barrier.h"
#include "cpu.h"
#include "perf.h"

int pp_current_cpu(void)
{
    return sched_getcpu();
}

#if defined(__x86_64__) && !defined(PP_NO_TSC)

enum { UNROLLED = 8 }; /* stamps in a turn of the loop */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* --- stamps ----------------------------------------------------------------------------------- */

/* Written out, not taken from cpu.h: here each form has the fences of its name and no others. The
 * compiler keeps them in place, and memory is theirs to order. */
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

/* `kind` is a constant wherever this is called: of the switch one case is left. */
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
    /* A group's own code writes its times and all its counts. */
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
        rc = pp_perf_pages_read(group, columns);
        *value = columns[0];
        break;
    case PP_TIMER_PERF_READ:
        rc = pp_perf_read_group(group, columns);
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

/* --- two CPUs --------------------------------------------------------------------------------- */

enum {
    LINE = 64,         /* bytes; what travels between the two caches is one line */
    SPINS = 1000,      /* between two looks at the clock */
    MASK_BITS = 1 << 16
};

struct table {
    _Alignas(LINE) _Atomic uint64_t turn; /* odd: theirs, even: ours; OVER at the end */
    uint64_t seen;                        /* written by them before the turn is ours */
    _Alignas(LINE) uint64_t end_ns;       /* of CLOCK_MONOTONIC; constant from here on */
    int cpu;
    int rc;
};

static const uint64_t OVER = UINT64_MAX;

/* Until it is that turn. Neither waits for good: the other may not get to run. */
static bool awaited(struct table *table, uint64_t turn)
{
    for (;;) {
        for (int i = 0; i < SPINS; i++) {
            uint64_t now = pp_load_acquire(&table->turn);

            if (now == turn || now == OVER)
                return now == turn;
        }
        if (pp_clock_ns(CLOCK_MONOTONIC) > table->end_ns)
            return false;
    }
}

static void *answer(void *arg)
{
    struct table *table = arg;
    int cpu = sched_getcpu();

    for (uint64_t turn = 1; awaited(table, turn); turn += 2) {
        table->seen = pp_rdtsc();
        pp_store_release(&table->turn, turn + 1);
    }
    table->rc = cpu != table->cpu || sched_getcpu() != cpu ? -EXDEV : 0;
    return NULL;
}

static int start(struct table *table, pthread_t *thread)
{
    unsigned long mask[MASK_BITS / 8 / sizeof(unsigned long)] = {0};
    pthread_attr_t attr;
    int rc;

    if (table->cpu < 0 || table->cpu >= MASK_BITS)
        return -EINVAL;
    CPU_SET_S((size_t)table->cpu, sizeof mask, (cpu_set_t *)mask);
    rc = pthread_attr_init(&attr);
    if (rc)
        return -rc;
    rc = pthread_attr_setaffinity_np(&attr, sizeof mask, (cpu_set_t *)mask);
    if (rc == 0)
        rc = pthread_create(thread, &attr, answer, table);
    pthread_attr_destroy(&attr);
    return -rc;
}

int pp_exchange_stamps(int cpu, uint32_t n, uint64_t limit_ns, pp_exchange *out)
{
    struct table table = {.end_ns = pp_clock_ns(CLOCK_MONOTONIC) + limit_ns, .cpu = cpu};
    int here = sched_getcpu(), rc;
    pthread_t thread;
    uint32_t done = 0;

    rc = start(&table, &thread);
    if (rc)
        return rc;
    for (uint64_t turn = 1; done < n; turn += 2) {
        out[done].sent = pp_rdtsc();
        pp_store_release(&table.turn, turn);
        if (!awaited(&table, turn + 1))
            break;
        out[done].back = pp_rdtsc();
        out[done].seen = table.seen;
        done++;
    }
    pp_store_release(&table.turn, OVER);
    pthread_join(thread, NULL);
    if (table.rc == 0 && sched_getcpu() != here)
        return -EXDEV;
    return table.rc ? table.rc : (int)done;
}

#else

int pp_timer_run(const pp_timer *timer, uint32_t n, uint64_t *ticks, uint64_t *values)
{
    (void)timer;
    (void)n;
    (void)ticks;
    (void)values;
    return -ENOTSUP;
}

int pp_exchange_stamps(int cpu, uint32_t n, uint64_t limit_ns, pp_exchange *out)
{
    (void)cpu;
    (void)n;
    (void)limit_ns;
    (void)out;
    return -ENOTSUP;
}

#endif

/*
 * Feeds transitions of simulated CPUs to the idle program, which is not attached. Its rows are
 * compared with the order of these calls and the clock around them. Needs permission to load BPF.
 */
#ifndef PP_IDLE_PLAY_H
#define PP_IDLE_PLAY_H

#include <errno.h>

#include "check.h"
#include "cpu.h"
#include "idle.h"
#include "idle_program.h"
#include "idle_rows.h"

enum { A = 10, B = 20, CORE = 3 };
enum { IDLE = 1, POLL = 0, RUNS = -1 };

static const pp_idle_thread places[] = {{A, CORE, 0}, {B, CORE, 1}};
static char text[1 << 16];

static inline pp_idle *make(int32_t swaps)
{
    pp_idle *idle = NULL;
    int rc = pp_idle_make(places, 2, swaps, &idle, text, sizeof text);

    if (rc == -EPERM) {
        fprintf(stderr, "needs CAP_BPF and CAP_PERFMON, or root\n");
        exit(SKIPPED);
    }
    if (rc)
        fprintf(stderr, "%d: %s\n", rc, text);
    CHECK(rc == 0);
    return idle;
}

static inline void event(const pp_idle *idle, uint32_t cpu, int state)
{
    CHECK(pp_idle_run(idle, cpu, (uint32_t)state, false) == 0);
}

static inline uint64_t now_ns(void)
{
    return pp_clock_ns(CLOCK_MONOTONIC);
}

struct core_times {
    uint64_t ns[PP_IDLE_CORE_SUMS]; /* the four states and the unknown */
    int known;
};

static inline struct core_times read_core(const pp_idle *idle)
{
    struct core_times s = {.known = 0};

    CHECK(pp_idle_read_core(idle->base, CORE, s.ns, &s.known) == 0);
    return s;
}

static inline uint64_t busy(const pp_idle *idle, uint32_t cpu)
{
    uint64_t ns;

    CHECK(pp_idle_value(idle->base, PP_IDLE_BUSY, cpu, &ns) == 0);
    return ns;
}

static inline uint64_t entries(const pp_idle *idle, uint32_t cpu)
{
    return pp_idle_cpu(idle->base, cpu)->entries;
}

static inline uint64_t total(const struct core_times *s)
{
    return s->ns[0] + s->ns[1] + s->ns[2] + s->ns[3] + s->ns[PP_IDLE_CORE_UNKNOWN];
}

#endif

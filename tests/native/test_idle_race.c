/*
 * Runs the idle program on two CPUs at once, as two LPs of one core, with a reader.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "cpus.h"
#include "idle_play.h"

struct toggler {
    pthread_t thread;
    pp_idle *idle;
    uint32_t cpu;
    _Atomic int *stop;
    uint64_t unknown; /* own transitions after which its state was unknown */
};

static void *toggle(void *argument)
{
    struct toggler *t = argument;
    uint64_t own = t->cpu == A ? 4 : 8;
    int cpus[2], n = own_cpus(cpus);

    pin(cpus[t->cpu == A ? 0 : n - 1]);
    for (unsigned n = 0; !*t->stop; n++) {
        /* Each transition is made twice: the second does not change the state, so both add to the
         * same sum. */
        event(t->idle, t->cpu, n / 2 % 2 ? IDLE : RUNS);
        t->unknown += !(pp_idle_core(t->idle->base, CORE)->word & own);
    }
    return NULL;
}

/* Runs two CPUs and a reader at once, for that many idle entries of each CPU. Returns the number of
 * dropped updates. */
static uint64_t contend(int32_t swaps, uint64_t rounds)
{
    pp_idle *idle = make(swaps);
    _Atomic int stop = 0;
    struct toggler two[2] = {{.idle = idle, .cpu = A, .stop = &stop},
                             {.idle = idle, .cpu = B, .stop = &stop}};
    uint64_t start = ((const struct pp_idle_head *)idle->base)->start_ns;
    struct core_times s;
    int64_t off0, off1, slack;
    uint64_t unknown, dropped;

    event(idle, A, IDLE);
    event(idle, B, IDLE);
    unknown = read_core(idle).ns[PP_IDLE_CORE_UNKNOWN];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&two[i].thread, NULL, toggle, &two[i]) == 0);
    while (entries(idle, A) < rounds || entries(idle, B) < rounds) {
        uint64_t before = now_ns();
        int rc = pp_idle_read_core(idle->base, CORE, s.ns, &s.known);

        CHECK(rc == 0 || rc == -EAGAIN);
        CHECK(rc || start + total(&s) + 1000 >= before); /* its clock may lag slightly */
        CHECK(rc || start + total(&s) <= now_ns() + 1000);
    }
    stop = 1;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(two[i].thread, NULL) == 0);
    event(idle, A, IDLE);
    event(idle, B, IDLE);
    s = read_core(idle);
    dropped = pp_idle_core(idle->base, CORE)->dropped;
    CHECK(dropped == two[0].unknown + two[1].unknown);
    CHECK(dropped || s.ns[PP_IDLE_CORE_UNKNOWN] == unknown);
    slack = (int64_t)(pp_idle_cpu(idle->base, A)->clamped_ns +
                      pp_idle_cpu(idle->base, B)->clamped_ns + s.ns[PP_IDLE_CORE_UNKNOWN] - unknown);
    off0 = (int64_t)(s.ns[1] + s.ns[3] - busy(idle, A));
    off1 = (int64_t)(s.ns[2] + s.ns[3] - busy(idle, B));
    CHECK(llabs(off0) <= slack && llabs(off1) <= slack);
    pp_idle_close(idle);
    return dropped;
}

/* Both CPUs do nothing else here, while real transitions are microseconds apart. Still, hardly any
 * update fails in all its attempts, and each failure is counted. */
static void hardly_any_is_lost_in_contention(void)
{
    CHECK(contend(PP_IDLE_SWAPS, 10000) <= 6);
}

/* With one attempt, updates are dropped: each is counted, and the core is unknown rather than
 * wrong. Many short runs: a CPU that is delayed just before it gives up is visible only if little
 * else is unknown. */
static void a_dropped_update_is_seen(void)
{
    uint64_t dropped = 0;

    for (int i = 0; i < 40; i++)
        dropped += contend(1, 200);
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
        WAIT_FOR((dropped += contend(1, 5000)) > 0);
}

int main(void)
{
    hardly_any_is_lost_in_contention();
    a_dropped_update_is_seen();
    return 0;
}

#define _GNU_SOURCE
#include "perfprobe.h"

#include <errno.h>
#include <pthread.h>

#include "barrier.h"
#include "cpu.h"

enum {
    LINE = 64,   /* bytes of a cache line; one line is exchanged between the two CPUs */
    SPINS = 1000 /* iterations of a spin between two reads of the clock */
};

/* Memory that the caller and the responder, a thread on the other CPU, share. */
struct table {
    _Alignas(LINE) _Atomic uint64_t turn; /* odd: the responder's; even: the caller's; or OVER */
    uint64_t received;                    /* stamp of the responder in its turn */
    _Alignas(LINE) uint64_t end_ns;       /* ns of CLOCK_MONOTONIC; constant, like the mask */
    int cpu;
    struct pp_cpu_mask mask; /* contains only the responder's CPU */
    int rc;                  /* written by the responder at its end */
};

static const uint64_t OVER = UINT64_MAX;
static const uint64_t PLACING = UINT64_MAX - 1; /* the responder is not on its CPU yet */

/* Spins until this turn begins. False: the exchanges are over, or the time is up. */
static bool wait_for_turn(struct table *table, uint64_t turn)
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

static void *responder_main(void *arg)
{
    struct table *table = arg;
    int cpu;

    table->rc = -pthread_setaffinity_np(pthread_self(), sizeof table->mask,
                                        (cpu_set_t *)&table->mask);
    pp_store_release(&table->turn, table->rc ? OVER : 0);
    if (table->rc)
        return NULL;
    cpu = sched_getcpu();
    for (uint64_t turn = 1; wait_for_turn(table, turn); turn += 2) {
        table->received = pp_rdtsc();
        pp_store_release(&table->turn, turn + 1);
    }
    table->rc = cpu != table->cpu || sched_getcpu() != cpu ? -EXDEV : 0;
    return NULL;
}

int pp_exchange_stamps(int cpu, uint32_t n, uint64_t limit_ns, pp_exchange *out)
{
    struct table table = {
        .turn = PLACING, .end_ns = pp_clock_ns(CLOCK_MONOTONIC) + limit_ns, .cpu = cpu};
    int here = sched_getcpu(), rc;
    pthread_t thread;
    uint32_t done = 0;

    rc = pp_cpu_only(cpu, &table.mask);
    if (rc == 0)
        rc = -pthread_create(&thread, NULL, responder_main, &table);
    if (rc)
        return rc;
    for (uint64_t turn = 1; wait_for_turn(&table, turn - 1) && done < n; turn += 2) {
        out[done].sent = pp_rdtsc();
        pp_store_release(&table.turn, turn);
        if (!wait_for_turn(&table, turn + 1))
            break;
        out[done].returned = pp_rdtsc();
        out[done].received = table.received;
        done++;
    }
    pp_store_release(&table.turn, OVER);
    pthread_join(thread, NULL);
    if (table.rc == 0 && sched_getcpu() != here)
        return -EXDEV;
    return table.rc ? table.rc : (int)done;
}

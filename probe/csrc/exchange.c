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
struct shared_turns {
    _Alignas(LINE) _Atomic uint64_t turn; /* odd: the responder's; even: the caller's; or ENDED */
    uint64_t received;                    /* stamp of the responder in its turn */
    _Alignas(LINE) uint64_t end_ns;       /* ns of CLOCK_MONOTONIC; constant, like the mask */
    int cpu;
    struct pp_cpu_mask mask; /* contains only the responder's CPU */
    int rc;                  /* written by the responder at its end */
};

static const uint64_t ENDED = UINT64_MAX;
static const uint64_t MOVING = UINT64_MAX - 1; /* the responder is not on its CPU yet */

/* Spins until this turn begins. False: the exchanges are over, or the time is up. */
static bool wait_for_turn(struct shared_turns *shared, uint64_t turn)
{
    for (;;) {
        for (int i = 0; i < SPINS; i++) {
            uint64_t now = pp_load_acquire(&shared->turn);

            if (now == turn || now == ENDED)
                return now == turn;
        }
        if (pp_clock_ns(CLOCK_MONOTONIC) > shared->end_ns)
            return false;
    }
}

static void *responder_main(void *arg)
{
    struct shared_turns *shared = arg;
    int cpu;

    shared->rc = -pthread_setaffinity_np(pthread_self(), sizeof shared->mask,
                                        (cpu_set_t *)&shared->mask);
    pp_store_release(&shared->turn, shared->rc ? ENDED : 0);
    if (shared->rc)
        return NULL;
    cpu = sched_getcpu();
    for (uint64_t turn = 1; wait_for_turn(shared, turn); turn += 2) {
        shared->received = pp_rdtsc();
        pp_store_release(&shared->turn, turn + 1);
    }
    shared->rc = cpu != shared->cpu || sched_getcpu() != cpu ? -EXDEV : 0;
    return NULL;
}

int pp_exchange_stamps(int cpu, uint32_t n, uint64_t limit_ns, pp_exchange *out)
{
    struct shared_turns shared = {
        .turn = MOVING, .end_ns = pp_clock_ns(CLOCK_MONOTONIC) + limit_ns, .cpu = cpu};
    int here = sched_getcpu(), rc;
    pthread_t thread;
    uint32_t done = 0;

    rc = pp_single_cpu_mask(cpu, &shared.mask);
    if (rc == 0)
        rc = -pthread_create(&thread, NULL, responder_main, &shared);
    if (rc)
        return rc;
    for (uint64_t turn = 1; wait_for_turn(&shared, turn - 1) && done < n; turn += 2) {
        out[done].sent = pp_rdtsc();
        pp_store_release(&shared.turn, turn);
        if (!wait_for_turn(&shared, turn + 1))
            break;
        out[done].returned = pp_rdtsc();
        out[done].received = shared.received;
        done++;
    }
    pp_store_release(&shared.turn, ENDED);
    pthread_join(thread, NULL);
    if (shared.rc == 0 && sched_getcpu() != here)
        return -EXDEV;
    return shared.rc ? shared.rc : (int)done;
}

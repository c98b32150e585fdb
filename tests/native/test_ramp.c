/*
 * From idle to load: chunks account for all time, with every chain and any number of pieces. The
 * counts of a simulated counter are in the chunk where they occur. Invalid orders are refused.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>

#include "check.h"
#include "cpu.h"
#include "cpus.h"
#include "group.h"

enum { CAPACITY = 4096, GROWTH = 10, MAX_PIECES = 50, BLOCKS = 20 };

static pp_ramp_chunk chunks[CAPACITY];
static pp_ramp_result result;

static const pp_ramp_request order = {
    .idle_ns = 2000000, .blocks = BLOCKS, .growth = GROWTH, .max_pieces = MAX_PIECES};

/* Chunks follow each other without a gap; the slowest piece is within its chunk. */
static void check_chunks(uint64_t began, uint64_t ended)
{
    uint64_t pieces = 0;

    CHECK(result.chunks > 1 && chunks[0].begin >= began);
    CHECK(chunks[result.chunks - 1].end <= ended);
    for (uint32_t i = 0; i < result.chunks; i++) {
        const pp_ramp_chunk *c = &chunks[i];
        bool first = i == 0 || chunks[i - 1].phase != c->phase;

        if (i > 0)
            CHECK(c->begin == chunks[i - 1].end && c->phase >= chunks[i - 1].phase);
        pieces = first ? 0 : pieces;
        CHECK(c->pieces >= 1 && c->pieces <= MAX_PIECES && c->pieces <= 1 + pieces / GROWTH);
        pieces += c->pieces;
        CHECK(c->longest > 0 && c->longest_at >= c->begin);
        CHECK(c->longest_at + c->longest <= c->end);
        CHECK(c->longest * c->pieces + c->aside >= c->end - c->begin);
        CHECK(c->aside < c->end - c->begin);
    }
}

static void every_available_isa_runs(void)
{
    uint32_t isas = pp_ramp_isas();

    CHECK(isas & 1u << PP_RAMP_SCALAR);
    for (uint32_t isa = 0; isa < PP_RAMP_ISAS; isa++) {
        pp_ramp_phase phase = {.isa = isa, .ticks = 3000000};
        uint64_t began = pp_rdtsc();
        int rc = pp_ramp_run(&order, &phase, 1, chunks, CAPACITY, &result);

        if (!(isas & 1u << isa)) {
            CHECK(rc == -EOPNOTSUPP);
            continue;
        }
        CHECK(rc == 0 && result.stamp_ticks > 0);
        check_chunks(began, pp_rdtsc());
        CHECK(chunks[result.chunks - 1].end - chunks[0].begin >= phase.ticks);
        CHECK(chunks[result.chunks - 1].begin - chunks[0].begin < phase.ticks);
    }
}

static void phases_follow_each_other(void)
{
    pp_ramp_phase phases[] = {{.ticks = 1000000}, {.ticks = 500000}, {.ticks = 500000}};
    uint64_t began = pp_rdtsc();

    CHECK(pp_ramp_run(&order, phases, 3, chunks, CAPACITY, &result) == 0);
    check_chunks(began, pp_rdtsc());
    CHECK(chunks[0].phase == 0 && chunks[result.chunks - 1].phase == 2);
}

static void full_chunks_are_reported(void)
{
    pp_ramp_phase phase = {.ticks = UINT64_MAX};
    uint64_t began = pp_rdtsc();

    CHECK(pp_ramp_run(&order, &phase, 1, chunks, 40, &result) == -ENOSPC);
    CHECK(result.chunks == 40);
    check_chunks(began, pp_rdtsc());
}

static int cpu_reads; /* number of reads of the CPU so far */
static int moved_at_read;  /* the read that returns another CPU; 0: none */

int __real_sched_getcpu(void);
int __wrap_sched_getcpu(void);

int __wrap_sched_getcpu(void)
{
    return __real_sched_getcpu() + (++cpu_reads == moved_at_read);
}

static void a_move_is_reported(void)
{
    pp_ramp_phase phase = {.ticks = 1};

    cpu_reads = 0;
    moved_at_read = 1;
    CHECK(pp_ramp_run(&order, &phase, 1, chunks, CAPACITY, &result) == -EXDEV);
    moved_at_read = cpu_reads; /* the last one */
    cpu_reads = 0;
    CHECK(pp_ramp_run(&order, &phase, 1, chunks, CAPACITY, &result) == -EXDEV);
    moved_at_read = 0;
    CHECK(pp_ramp_run(&order, &phase, 1, chunks, CAPACITY, &result) == 0);
}

static void invalid_orders_are_refused(void)
{
    pp_ramp_phase phase = {.isa = PP_RAMP_ISAS, .ticks = 1};

    CHECK(pp_ramp_run(&order, &phase, 1, chunks, CAPACITY, &result) == -EINVAL);
    CHECK(pp_ramp_run(&order, &phase, 0, chunks, CAPACITY, &result) == -EINVAL);
    phase.isa = PP_RAMP_SCALAR;
    for (int i = 0; i < 3; i++) {
        pp_ramp_request none = order;
        uint32_t *const numbers[] = {&none.blocks, &none.growth, &none.max_pieces};

        *numbers[i] = 0;
        result.chunks = 1;
        CHECK(pp_ramp_run(&none, &phase, 1, chunks, CAPACITY, &result) == -EINVAL);
        CHECK(result.chunks == 0);
    }
}

static _Atomic int over;

static void *rival(void *unused)
{
    while (!over)
        ;
    return unused;
}

static uint64_t recorded_switches(void)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < result.chunks; i++)
        sum += chunks[i].switches;
    return sum;
}

/* Another thread wants the same CPU, so the chain must be preempted, and the chunk records it. */
static void a_preemption_is_recorded_in_its_chunk(void)
{
    pp_ramp_phase phase = {.ticks = 50000000};
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, rival, NULL) == 0);
    for (int i = 0; i < 100 && (i == 0 || recorded_switches() == 0); i++)
        CHECK(pp_ramp_run(&order, &phase, 1, chunks, CAPACITY, &result) == 0);
    CHECK(recorded_switches() > 0 && recorded_switches() < 1000000);
    over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

/* --- with a counter of cycles ----------------------------------------------------------------- */

enum { A_PIECE = 1000, AWAY_NS = 77 };

static struct perf_event_mmap_page page;
static uint64_t counter, readings;
static uint64_t gone_at, back_at; /* reads that lose it for good, or for AWAY_NS */

/* The counter advances only when it is read. */
static int fake_rdpmc(uint32_t index, uint64_t *count)
{
    CHECK(index == 6);
    readings++;
    if (readings == gone_at)
        page.index = 0;
    if (readings == back_at)
        page.time_enabled += AWAY_NS;
    *count = counter += A_PIECE;
    return 0;
}

static const struct pp_perf_ops fake = {.rdpmc = fake_rdpmc, .rdtsc = pp_rdtsc};
static struct pp_perf_group group = {.ops = &fake, .n = 1, .uses_rdpmc = true, .pages = {&page}};

static int run_with_counter(uint64_t ticks)
{
    pp_ramp_request with = order;
    pp_ramp_phase phase = {.ticks = ticks};

    page = (struct perf_event_mmap_page){.index = 7, .pmc_width = 48, .time_mult = 1};
    page.cap_user_rdpmc = 1;
    page.cap_user_time = 1;
    readings = 0;
    with.counter = (uintptr_t)&group;
    return pp_ramp_run(&with, &phase, 1, chunks, CAPACITY, &result);
}

/* Cycles spent reading the thread's context switches are not in any piece. */
static void every_piece_has_its_cycles(void)
{
    uint64_t began = pp_rdtsc(), pieces = 0;

    gone_at = back_at = 0;
    CHECK(run_with_counter(20000000) == 0);
    check_chunks(began, pp_rdtsc());
    CHECK(result.uncounted == 0 && result.uncounted_ns == 0);
    for (uint32_t i = 0; i < result.chunks; i++) {
        CHECK(chunks[i].cycles == (uint64_t)A_PIECE * chunks[i].pieces);
        CHECK(chunks[i].longest_cycles == A_PIECE);
        pieces += chunks[i].pieces;
    }
    CHECK(readings > pieces);
}

static void a_counter_that_others_use_is_reported(void)
{
    gone_at = 50;
    CHECK(run_with_counter(3000000) == 0 && result.uncounted > 0 && readings == gone_at);
    gone_at = 0;
    back_at = 3; /* the end of the first piece; a preempted run may have no further one */
    CHECK(run_with_counter(3000000) == 0 && result.uncounted == 0);
    CHECK(result.uncounted_ns == AWAY_NS);
}

static void a_counter_that_needs_the_kernel_is_refused(void)
{
    group.uses_rdpmc = false;
    CHECK(run_with_counter(1) == -EINVAL && readings == 0);
    group.uses_rdpmc = true;
    group.n = 2;
    CHECK(run_with_counter(1) == -EINVAL && readings == 0);
    group.n = 1;
}

static void without_a_counter_no_cycles_are_reported(void)
{
    pp_ramp_phase phase = {.ticks = 1000000};

    CHECK(pp_ramp_run(&order, &phase, 1, chunks, CAPACITY, &result) == 0);
    CHECK(result.uncounted == 0 && result.uncounted_ns == 0);
    for (uint32_t i = 0; i < result.chunks; i++)
        CHECK(chunks[i].cycles == 0 && chunks[i].longest_cycles == 0);
}

int main(void)
{
    pin(sched_getcpu());
    every_available_isa_runs();
    phases_follow_each_other();
    full_chunks_are_reported();
    a_move_is_reported();
    invalid_orders_are_refused();
    a_preemption_is_recorded_in_its_chunk();
    every_piece_has_its_cycles();
    a_counter_that_others_use_is_reported();
    a_counter_that_needs_the_kernel_is_refused();
    without_a_counter_no_cycles_are_reported();
    return 0;
}

#define _GNU_SOURCE
#include "perfprobe.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "cpu.h"
#include "group.h"
#include "ramp_chains.h"

/* The state of one call of pp_ramp_run. */
struct run {
    enum pp_clock clock;
    const struct pp_perf_group *counter; /* counts cycles; NULL: none */
    pp_ramp_result *result;
    uint64_t blocks;     /* number of blocks in a piece */
    uint64_t last_ticks; /* ticks of the previous piece; a piece that takes 25 % more is suspect */
    long switches;       /* involuntary context switches of the thread so far */
};

/* TSC and cycle count at one moment. */
struct moment {
    uint64_t ticks, cycles;
};

static const struct pp_perf_group *cycle_counter(const pp_ramp_request *request)
{
    return (const struct pp_perf_group *)(uintptr_t)request->counter;
}

static uint64_t read_cycles(struct run *run, uint64_t *times)
{
    const struct pp_perf_group *counter = run->counter;
    uint64_t count = 0;

    if (counter != NULL && pp_perf_page_read(counter->ops, counter->pages[0], times, &count))
        run->result->uncounted++;
    return count;
}

static struct moment read_moment(struct run *run)
{
    struct moment now = {.ticks = pp_now(run->clock, false).stamp};

    now.cycles = read_cycles(run, NULL);
    return now;
}

/* Returns the time in ns for which the cycle counter was enabled but did not count, because other
 * events had the hardware counters. */
static uint64_t read_uncounted_ns(struct run *run)
{
    uint64_t times[PP_PERF_TIMES] = {0};

    read_cycles(run, times);
    return times[0] - times[1];
}

static long count_switches(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_THREAD, &usage) ? 0 : usage.ru_nivcsw;
}

static uint64_t measure_stamp(struct run *run)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < 64; i++) {
        uint64_t before = read_moment(run).ticks, ticks = read_moment(run).ticks - before;

        least = ticks < least ? ticks : least;
    }
    return least;
}

/* Runs the pieces of a chunk, which begins at `begin`. Returns the moment of its end. */
static struct moment run_chunk(struct run *run, pp_ramp_chain chain, pp_ramp_chunk *chunk,
                               struct moment begin)
{
    struct moment from = begin;

    chunk->begin = begin.ticks;
    for (uint32_t i = 0; i < chunk->pieces; i++) {
        struct moment to;
        uint64_t ticks, cycles;

        chain(run->blocks);
        to = read_moment(run);
        ticks = to.ticks - from.ticks;
        cycles = to.cycles - from.cycles;
        chunk->cycles += cycles;
        if (ticks > chunk->longest) {
            chunk->longest = ticks;
            chunk->longest_at = from.ticks;
            chunk->longest_cycles = cycles;
        }
        from = to;
        if (ticks > run->last_ticks + run->last_ticks / 4) {
            long count = count_switches();

            chunk->switches += (uint32_t)(count - run->switches);
            run->switches = count;
            from = read_moment(run);
            chunk->aside += from.ticks - to.ticks;
        }
        run->last_ticks = ticks;
    }
    chunk->end = from.ticks;
    return from;
}

static int check_request(const pp_ramp_request *request, const pp_ramp_phase *phases, uint32_t n)
{
    const struct pp_perf_group *counter = cycle_counter(request);
    uint32_t isas = pp_ramp_isas();

    if (n == 0 || request->blocks == 0 || request->growth == 0 || request->max_pieces == 0)
        return -EINVAL;
    if (counter != NULL && (counter->n != 1 || !counter->uses_rdpmc))
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++) {
        if (phases[i].isa >= PP_RAMP_ISAS)
            return -EINVAL;
        if (!(isas & 1u << phases[i].isa))
            return -EOPNOTSUPP;
    }
    return 0;
}

static int run_phases(struct run *run, const pp_ramp_request *request, const pp_ramp_phase *phases,
                      uint32_t n_phases, pp_ramp_chunk *chunks, uint32_t capacity)
{
    struct moment stamp = read_moment(run);

    for (uint32_t phase = 0; phase < n_phases; phase++) {
        uint64_t start = stamp.ticks, pieces = 0;

        while (stamp.ticks - start < phases[phase].ticks) {
            uint64_t size = pieces / request->growth;
            pp_ramp_chunk *chunk;

            if (run->result->chunks == capacity)
                return -ENOSPC;
            chunk = &chunks[run->result->chunks++];
            chunk->phase = phase;
            size = size < 1 ? 1 : size;
            chunk->pieces = size > request->max_pieces ? request->max_pieces : (uint32_t)size;
            stamp = run_chunk(run, pp_ramp_chains[phases[phase].isa], chunk, stamp);
            pieces += chunk->pieces;
        }
    }
    return 0;
}

int pp_ramp_run(const pp_ramp_request *request, const pp_ramp_phase *phases, uint32_t n_phases,
                pp_ramp_chunk *chunks, uint32_t capacity, pp_ramp_result *result)
{
    struct run run = {.blocks = request->blocks, .last_ticks = UINT64_MAX / 2,
                      .counter = cycle_counter(request), .result = result};
    int cpu = sched_getcpu(), rc = check_request(request, phases, n_phases);
    uint64_t start_ns, wake_ns;

    memset(result, 0, sizeof *result);
    if (rc)
        return rc;
    run.clock = pp_proven_clock(pp_tsc_clock());
    memset(chunks, 0, capacity * sizeof *chunks); /* so that page faults occur before the pieces */
    pp_ramp_chains[PP_RAMP_SCALAR](1);
    run.switches = count_switches();
    wake_ns = pp_clock_ns(CLOCK_MONOTONIC) + request->idle_ns;
    pp_sleep_until(wake_ns);
    result->late_ns = pp_clock_ns(CLOCK_MONOTONIC) - wake_ns;
    start_ns = read_uncounted_ns(&run); /* also loads the counter's page before the first piece */
    rc = run_phases(&run, request, phases, n_phases, chunks, capacity);
    result->uncounted_ns = read_uncounted_ns(&run) - start_ns;
    result->stamp_ticks = measure_stamp(&run);
    return sched_getcpu() == cpu ? rc : -EXDEV;
}

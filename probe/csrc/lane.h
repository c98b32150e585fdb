/* 
 * A lane: a thread that samples one CPU (or an unpinned thread), the slots that it reads, and the
 * ring from it to the drainer (the thread that calls pp_drain). Source: lane.c.
 *
 * An entry of the ring is one sample: round, lateness (ns), and for each row the stamps before and
 * after the read, flags, valid words, columns. */
#ifndef PP_LANE_H
#define PP_LANE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu.h"
#include "perfprobe.h"
#include "ring.h"

enum { PP_ENTRY_ROUND, PP_ENTRY_LATENESS, PP_ENTRY_ROWS };
enum { PP_LANE_REPEATS = 2 }; /* maximum number of repeats of a read that took unusually long */
enum { PP_AT_BEFORE, PP_AT_AFTER, PP_AT_FLAGS, PP_AT_VALID }; /* offsets of words in a row */

/* The times of rounds, which all lanes share; constant while a lane runs. */
struct pp_schedule {
    uint64_t start_ns; /* the time of round 0 by CLOCK_MONOTONIC */
    uint64_t period_ns;
    enum pp_clock clock;
    bool check_cpu; /* whether a row is valid only if it was read on its own CPU */
};

struct pp_lane_row {
    pp_row plan;
    uint32_t columns; /* the highest column of its slots, plus one */
    uint32_t offset;  /* first word of the row in an entry */
    uint64_t median;  /* written by the lane: usual length of a read, in stamps; 0: unknown */
    uint32_t flags;   /* written by the drainer: flags that it adds until the row has data */
};

struct pp_lane {
    struct pp_ring ring; /* the lane is the producer, the drainer the consumer */

    /* Written by the lane, read by the drainer; on cache lines that the drainer does not write. */
    _Alignas(PP_CACHE_LINE) _Atomic uint64_t next; /* the next round that will be sampled */
    _Atomic uint64_t samples, overruns, dropped, repeats;
    _Atomic int32_t pin_errno, slot_errno;

    _Alignas(PP_CACHE_LINE) _Atomic uint32_t stop; /* the futex on which the lane sleeps */

    /* Constant while the thread runs. */
    const struct pp_schedule *schedule;
    struct pp_lane_row *rows;
    pp_slot *slots;
    uint32_t n_rows;
    int32_t cpu; /* the CPU's number, or PP_UNPINNED_CPU */
    pthread_t thread;

    /* Used only by the drainer. */
    bool running;
    bool settled;    /* whether the lane has nothing more for the round that is being drained */
    uint64_t late;   /* number of samples that were popped after their round */
    uint64_t cpu_ns; /* CPU time in ns of the lane's ended threads */
};

static inline uint64_t pp_deadline(const struct pp_schedule *schedule, uint64_t round)
{
    return schedule->start_ns + round * schedule->period_ns;
}

/* Returns the first round that is due after `now_ns`. */
static inline uint64_t pp_next_round(const struct pp_schedule *schedule, uint64_t now_ns)
{
    if (now_ns < schedule->start_ns)
        return 0;
    return (now_ns - schedule->start_ns) / schedule->period_ns + 1;
}

static inline uint64_t pp_lane_lost(const struct pp_lane *lane)
{
    return pp_read_once(&lane->dropped) + lane->late;
}

/* Starts the thread, which samples from `round` on. Rows, slots and ring must be set. */
int pp_lane_start(struct pp_lane *lane, uint64_t round);

/* Ask a lane to stop, and wait for its end; separate, so that many lanes can stop together. */
void pp_lane_stop(struct pp_lane *lane);
void pp_lane_join(struct pp_lane *lane);

#endif

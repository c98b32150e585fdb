/*
 * The sampler with its real threads. Only pread is made up: slow, stuck, counting or gone.
 */
#ifndef PP_SAMPLER_PLAY_H
#define PP_SAMPLER_PLAY_H

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "check.h"
#include "cpus.h"

enum { COUNTING = 1000, SLOW, STUCK, GONE, SOMETIMES_WIDE, MOVING };

static atomic_int count, stuck, wide, move_to, slack_ns;

static inline void spin_ms(uint64_t ms);

ssize_t __wrap_pread(int fd, void *buffer, size_t size, off_t offset);

ssize_t __wrap_pread(int fd, void *buffer, size_t size, off_t offset)
{
    (void)offset;
    slack_ns = prctl(PR_GET_TIMERSLACK);
    if (fd == GONE) {
        errno = ENODEV;
        return -1;
    }
    if (fd == SLOW)
        nap_ms(12);
    while (fd == STUCK && atomic_load(&stuck))
        nap_ms(1);
    if (fd == SOMETIMES_WIDE && atomic_load(&wide) > 0) {
        atomic_fetch_sub(&wide, 1);
        spin_ms(3);
    }
    if (fd == MOVING)
        pin(atomic_load(&move_to));
    return snprintf(buffer, size, "%d\n", 100 + atomic_fetch_add(&count, 1));
}

#include "sampler.c"

enum {
    MS = 1000000,
    ROW = 16, /* words a row takes here: head, one valid word, values */
    ROWS = 400,
    NO_CPU = 5000 /* none has it, and it is above what TSC_AUX holds */
};

static uint64_t frame[ROWS * ROW];
static uint32_t delivered;

static inline void spin_ms(uint64_t ms)
{
    uint64_t end = pp_clock_ns(CLOCK_MONOTONIC) + ms * MS;

    while (pp_clock_ns(CLOCK_MONOTONIC) < end)
        ;
}

static inline pp_sampler *make(uint64_t period_ns, bool proof, uint32_t ring)
{
    pp_config config = {.period_ns = period_ns, .words = ROWS * ROW, .ring = ring,
                        .stamp = PP_STAMP_TSC, .proof = proof};
    pp_sampler *s;

    CHECK(pp_new(&config, &s) == 0);
    return s;
}

static inline pp_row row_at(uint32_t i, uint32_t n_slots)
{
    return (pp_row){.head = i * ROW, .valid = i * ROW + PP_HEAD, .valid_words = 1,
                    .values = i * ROW + PP_HEAD + 1, .n_slots = n_slots};
}

static inline int attach(pp_sampler *s, int32_t cpu, uint32_t row, int fd, uint32_t flags)
{
    pp_row plan = row_at(row, 1);
    pp_slot slot = {.kind = PP_FILE, .column = 2, .fd = fd};

    return pp_attach(s, cpu, flags, &plan, 1, &slot, 1);
}

static inline uint64_t flags_of(uint32_t row)
{
    return frame[row * ROW + 4];
}

static inline uint64_t lost_of(uint32_t row)
{
    return frame[row * ROW + 3];
}

static inline uint64_t valid_of(uint32_t row)
{
    return frame[row * ROW + PP_HEAD];
}

static inline pp_stats stats_of(pp_sampler *s, int32_t cpu)
{
    pp_stats stats;

    CHECK(pp_get_stats(s, cpu, &stats) == 0);
    return stats;
}

/* Completes one round, as a patient caller would. */
static inline void complete(pp_sampler *s, uint64_t round)
{
    int pending;

    WAIT_FOR((pending = pp_drain(s, round, frame, 0, &delivered)) == 0);
}

/* Goes on to the next round in which the row was sampled. */
static inline uint64_t next_sampled(pp_sampler *s, uint64_t round, uint32_t row)
{
    do
        complete(s, round++);
    while (!(flags_of(row) & PP_ROW_SAMPLED));
    return round;
}

#endif

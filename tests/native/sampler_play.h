/*
 * The sampler with its real threads, which read simulated files. Each program defines `act` and
 * `reach`.
 */
#ifndef PP_SAMPLER_PLAY_H
#define PP_SAMPLER_PLAY_H

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "cpus.h"

/* Descriptors. COUNTING: each read returns one more than the last read of any file;
 * GONE: reads fail with ENODEV. All others count, too, and `act` adds to that. */
enum { COUNTING = 1000, GONE, SLOW, STUCK, SOMETIMES_WIDE, MOVING };

static atomic_int count;

/* Called at the start of each read. */
static void act(int fd);

ssize_t __wrap_pread(int fd, void *buffer, size_t size, off_t offset);

ssize_t __wrap_pread(int fd, void *buffer, size_t size, off_t offset)
{
    (void)offset;
    act(fd);
    if (fd == GONE) {
        errno = ENODEV;
        return -1;
    }
    return snprintf(buffer, size, "%d\n", 100 + atomic_fetch_add(&count, 1));
}

#include "sampler.c"

enum {
    MS = 1000000,
    ROW = 16, /* words in a row here: head, one valid word, values */
    ROWS = 400,
    NO_CPU = 5000 /* no CPU has this number, which TSC_AUX cannot hold */
};

static uint64_t frame[ROWS * ROW];
static uint32_t delivered;

static inline pp_sampler *make(uint64_t period_ns, bool proof, uint32_t ring)
{
    pp_config config = {.period_ns = period_ns, .words = ROWS * ROW, .ring = ring,
                        .stamp = PP_STAMP_TSC, .check_cpu = proof};
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

/* Two rows of the lane of no CPU, read one after the other between the same stamps. */
static inline int attach_anywhere(pp_sampler *s, uint32_t row, int fd)
{
    pp_row rows[] = {row_at(row, 1), row_at(row + 1, 2)};
    pp_slot slots[] = {{.kind = PP_FILE, .column = 1, .fd = fd},
                       {.kind = PP_FILE, .column = 0, .fd = COUNTING},
                       {.kind = PP_FILE, .column = 3, .fd = GONE}};

    return pp_attach(s, PP_UNPINNED_CPU, 0, rows, 2, slots, 3);
}

/* Advances the time to this round, if time is simulated. */
static void reach(const pp_sampler *s, uint64_t round);

/* Drains one round until no lane is pending. */
static inline void complete(pp_sampler *s, uint64_t round)
{
    int pending;

    reach(s, round);
    WAIT_FOR((pending = pp_drain(s, round, frame, 0, &delivered)) == 0);
}

/* Completes rounds up to the first one in which the row was sampled. Returns the round after it. */
static inline uint64_t next_sampled(pp_sampler *s, uint64_t round, uint32_t row)
{
    do
        complete(s, round++);
    while (!(flags_of(row) & PP_ROW_SAMPLED));
    return round;
}

#endif

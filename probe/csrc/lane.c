#define _GNU_SOURCE
#include "lane.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "slot.h"

enum {
    STACK = 64 << 10,      /* bytes: a lane needs a few KiB, and there may be a thousand lanes */
    WIDE_FACTOR = 4,       /* a read that takes this multiple of its usual length is wide */
    MIN_WIDE_READ = 20000, /* in stamps (5 to 20 us): a shorter read is never wide */
    MEDIAN_STEP = 8        /* the estimated median changes by 1 / MEDIAN_STEP: x10 in 20 reads */
};

/* --- reading ---------------------------------------------------------------------------------- */

static void read_slots(struct pp_lane *lane, const struct pp_lane_row *row, const pp_slot *slots,
                       uint64_t *out)
{
    uint64_t *valid = out + PP_AT_VALID;
    uint64_t *values = valid + row->plan.valid_words;
    int failed = 0;

    memset(valid, 0, (row->plan.valid_words + row->columns) * sizeof *valid);
    for (uint32_t i = 0; i < row->plan.n_slots; i++) {
        uint32_t column = slots[i].column;
        int rc = pp_slot_read(&slots[i], &values[column]);
        uint64_t filled = rc == 0 ? pp_slot_column_mask(&slots[i]) : 0;

        if (rc)
            failed = -rc;
        for (; filled; filled >>= 1, column++)
            valid[column / 64] |= (filled & 1) << (column % 64);
    }
    if (failed)
        pp_write_once(&lane->slot_errno, failed);
}

static bool checks_cpu(const struct pp_lane *lane)
{
    return lane->schedule->check_cpu && lane->cpu != PP_UNPINNED_CPU;
}

/* Reads `n` rows into an entry, between two stamps. Writes flags and stamps of the rows, and clears
 * their values if the thread was on another CPU. Returns the length of the read in stamps. */
static uint64_t read_once(struct pp_lane *lane, const struct pp_lane_row *rows, uint32_t n,
                          enum pp_clock clock, const pp_slot *slots, uint64_t *entry)
{
    bool check_cpu = checks_cpu(lane), elsewhere;
    struct pp_instant before = pp_now(clock, check_cpu);
    struct pp_instant after = before;

    /* A thread on the wrong CPU does not read: reads of MSRs and perf events from there would
     * interrupt the lane's CPU. */
    if (!check_cpu || before.cpu == lane->cpu) {
        for (uint32_t i = 0; i < n; slots += rows[i++].plan.n_slots)
            read_slots(lane, &rows[i], slots, entry + rows[i].offset);
        after = pp_now(clock, check_cpu);
    }
    elsewhere = check_cpu && (before.cpu != lane->cpu || after.cpu != lane->cpu);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *out = entry + rows[i].offset;

        out[PP_AT_BEFORE] = before.stamp;
        out[PP_AT_AFTER] = after.stamp;
        out[PP_AT_FLAGS] = PP_ROW_SAMPLED | (elsewhere ? PP_ROW_ELSEWHERE : 0);
        if (elsewhere)
            memset(out + PP_AT_VALID, 0, rows[i].plan.valid_words * sizeof *out);
    }
    return after.stamp - before.stamp;
}

/* 
 * Returns whether a read of `width` stamps took much longer than this row usually takes. The
 * estimated median increases or decreases by a fraction with each read, so outliers weigh no more
 * than other reads and no history is needed. A read of less than half the estimate replaces it at
 * once, because the first read may have been slow (cold caches). */
static bool is_wide(struct pp_lane_row *row, uint64_t width)
{
    uint64_t usual = row->median;
    uint64_t step = usual / MEDIAN_STEP + 1;

    if (usual == 0 || width < usual / 2)
        row->median = width + 1;
    else if (width > usual)
        row->median += step;
    else if (width < usual)
        row->median -= step;
    return usual != 0 && width > MIN_WIDE_READ && width / WIDE_FACTOR > usual;
}

/* Reads `n` rows together, and repeats a wide read. Returns the first row's flags; `wide` is
 * whether the last read was wide. */
static uint64_t read_together(struct pp_lane *lane, struct pp_lane_row *rows, uint32_t n,
                              enum pp_clock clock, const pp_slot *slots, uint64_t *entry,
                              bool *wide)
{
    const uint64_t *flags = entry + rows->offset + PP_AT_FLAGS;

    for (int repeat = 0;; repeat++) {
        uint64_t width = read_once(lane, rows, n, clock, slots, entry);

        *wide = !(*flags & PP_ROW_ELSEWHERE) && is_wide(rows, width);
        if (!*wide || repeat == PP_LANE_REPEATS)
            return *flags;
        pp_count(&lane->repeats, 1);
    }
}

/* Reads all rows of the lane. False: a row was read on another CPU. */
static bool read_all(struct pp_lane *lane, enum pp_clock clock, uint64_t *entry)
{
    const pp_slot *slots = lane->slots;
    bool here = true, wide;

    if (lane->cpu == PP_UNPINNED_CPU) {
        /* Wide reads are not flagged: the rows are times in ticks of 10 ms, much longer than any
         * read. */
        if (lane->n_rows)
            read_together(lane, lane->rows, lane->n_rows, clock, slots, entry, &wide);
        return true;
    }
    for (uint32_t i = 0; i < lane->n_rows; i++) {
        struct pp_lane_row *row = &lane->rows[i];
        uint64_t flags = read_together(lane, row, 1, clock, slots, entry, &wide);

        if (wide)
            flags |= PP_ROW_WIDE;
        if (pp_read_once(&lane->pin_errno))
            flags |= PP_ROW_UNPINNED;
        entry[row->offset + PP_AT_FLAGS] = flags;
        here &= !(flags & PP_ROW_ELSEWHERE);
        slots += row->plan.n_slots;
    }
    return here;
}

/* Reads one sample into the ring. False: a row was read on another CPU. */
static bool sample(struct pp_lane *lane, enum pp_clock clock, uint64_t round, uint64_t lateness_ns)
{
    uint64_t *entry = pp_ring_reserve(&lane->ring);
    bool here;

    if (entry == NULL) { /* the ring is full, so a sample would be lost: do not read */
        pp_count(&lane->dropped, 1);
        return true;
    }
    entry[PP_ENTRY_ROUND] = round;
    entry[PP_ENTRY_LATENESS] = lateness_ns;
    here = read_all(lane, clock, entry);
    pp_count(&lane->samples, 1);
    pp_ring_push(&lane->ring);
    return here;
}

/* --- the thread ------------------------------------------------------------------------------- */

static long futex(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *at)
{
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, at, NULL,
                   FUTEX_BITSET_MATCH_ANY);
}

/* 
 * Sleeps until a time of CLOCK_MONOTONIC. False: the lane must stop.
 *
 * The lane sleeps on a futex, because only a signal can end clock_nanosleep early, and signals
 * belong to the process. At 100 Hz and 1 kHz, lateness and cost of wake-ups by the futex's timeout
 * differ by less than a tenth from those of clock_nanosleep. Each lane has its own futex, so a stop
 * wakes one thread; with a condition variable all lanes would need a mutex when they wake. */
static bool sleep_until(struct pp_lane *lane, uint64_t at_ns)
{
    struct timespec at = pp_timespec(at_ns);

    while (pp_load_acquire(&lane->stop) == 0)
        if (futex(&lane->stop, FUTEX_WAIT_BITSET, 0, &at) == -1 && errno == ETIMEDOUT)
            return pp_load_acquire(&lane->stop) == 0;
    return false;
}

static void pin_lane(struct pp_lane *lane)
{
    struct pp_cpu_mask mask;
    int rc = -pp_single_cpu_mask(lane->cpu, &mask);

    if (rc == 0)
        rc = pthread_setaffinity_np(pthread_self(), sizeof mask, (cpu_set_t *)&mask);
    pp_write_once(&lane->pin_errno, rc);
}

static void *lane_main(void *arg)
{
    struct pp_lane *lane = arg;
    const struct pp_schedule *schedule = lane->schedule;
    uint64_t round = pp_read_once(&lane->next);
    enum pp_clock clock = schedule->clock;
    char name[16] = "perfprobe/any";

    if (lane->cpu != PP_UNPINNED_CPU)
        snprintf(name, sizeof name, "perfprobe/%d", (int)lane->cpu);
    pthread_setname_np(pthread_self(), name);
    prctl(PR_SET_TIMERSLACK, 1); /* ns; the default lets wake-ups be 50 us late */
    pp_keep_capabilities(0); /* reading open files needs no capability */
    if (lane->cpu != PP_UNPINNED_CPU)
        pin_lane(lane);
    if (checks_cpu(lane))
        clock = pp_proven_clock(clock);
    while (sleep_until(lane, pp_deadline(schedule, round))) {
        uint64_t now_ns = pp_clock_ns(CLOCK_MONOTONIC);
        uint64_t next = pp_next_round(schedule, now_ns);
        uint64_t due = next > round ? next - 1 : round; /* the latest due round, if it overslept */

        if (!sample(lane, clock, due, now_ns - pp_deadline(schedule, due)))
            pin_lane(lane); /* a change of the cpuset has moved the thread */
        next = pp_next_round(schedule, pp_clock_ns(CLOCK_MONOTONIC));
        pp_count(&lane->overruns, next - round - 1);
        /* After the push: if the drainer reads this value and then finds the ring empty, there will
         * be no sample of an older round. */
        pp_store_release(&lane->next, next);
        round = next;
    }
    /* The drainer reads this after it has joined the thread. */
    lane->cpu_ns += pp_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    return NULL;
}

/* --- starting and stopping -------------------------------------------------------------------- */

static int create_thread(struct pp_lane *lane)
{
    pthread_attr_t attr;
    int rc;

    pthread_attr_init(&attr); /* succeeds always on Linux */
    pthread_attr_setstacksize(&attr, STACK); /* if this fails, the default size remains */
    rc = pthread_create(&lane->thread, &attr, lane_main, lane);
    pthread_attr_destroy(&attr);
    if (rc == EINVAL) /* the stack is too small for thread-local data of libraries */
        rc = pthread_create(&lane->thread, NULL, lane_main, lane);
    return rc;
}

int pp_lane_start(struct pp_lane *lane, uint64_t round)
{
    sigset_t all, before;
    int rc;

    pp_write_once(&lane->next, round); /* before the thread exists, so that it reads this value */
    pp_write_once(&lane->pin_errno, lane->cpu == PP_UNPINNED_CPU ? 0 : EINPROGRESS);
    pp_write_once(&lane->stop, 0);
    /* A new thread inherits the mask, so lanes handle no signals except the SIGSEGV of a refused
     * RDPMC (rdpmc.h). */
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = create_thread(lane);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    lane->running = rc == 0;
    return -rc;
}

void pp_lane_stop(struct pp_lane *lane)
{
    pp_store_release(&lane->stop, 1);
    futex(&lane->stop, FUTEX_WAKE, 1, NULL);
}

void pp_lane_join(struct pp_lane *lane)
{
    pthread_join(lane->thread, NULL);
    lane->running = false;
}

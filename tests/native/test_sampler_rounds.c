/* Rounds in simulated time: their samples, lost samples, and flags. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "sampler_play.h"

/* --- simulated time: advances by order of the test, or when a read takes time ----------------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* the time, or the word of a futex */
static _Atomic uint64_t clock_ns = 1000000000; /* CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW */
static atomic_int stuck, wide;                  /* whether STUCK waits; wide reads still to come */
static atomic_int interruptions;                /* sleeps that a signal ends early, still to come */

static void pass(uint64_t ns)
{
    pthread_mutex_lock(&mutex);
    clock_ns += ns;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_RAW)
        return __real_clock_gettime(clock, t);
    *t = pp_timespec(clock_ns);
    return 0;
}

static long wait_for_futex(_Atomic uint32_t *word, uint32_t value, const struct timespec *at)
{
    uint64_t end_ns = (uint64_t)at->tv_sec * 1000000000 + (uint64_t)at->tv_nsec;

    if (interruptions > 0) {
        interruptions--;
        errno = EINTR;
        return -1;
    }
    pthread_mutex_lock(&mutex);
    while (*word == value && clock_ns < end_ns)
        pthread_cond_wait(&changed, &mutex);
    errno = *word == value ? ETIMEDOUT : EAGAIN;
    pthread_mutex_unlock(&mutex);
    return -1;
}

long __real_syscall(long number, long a, long b, long c, const void *d);
long __wrap_syscall(long number, long a, long b, long c, const void *d);

long __wrap_syscall(long number, long a, long b, long c, const void *d)
{
    if (number != SYS_futex)
        return __real_syscall(number, a, b, c, d);
    if (b == (FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG))
        return wait_for_futex((_Atomic uint32_t *)a, (uint32_t)c, d);
    pass(0); /* a wake-up */
    return 0;
}

static atomic_int pins; /* calls that pin a thread */

int __real_pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set);
int __wrap_pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set);

int __wrap_pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set)
{
    pins++;
    return __real_pthread_setaffinity_np(thread, size, set);
}

/* --- resources that are short ----------------------------------------------------------------- */

static int fails_at;     /* number of the allocation that fails; 0: none */
static int create_errno; /* error of a thread with a stack of its own size; 0: none */
static int pin_errno_at_start; /* of the lane whose thread was created last */

void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);

static bool fails(void)
{
    return fails_at > 0 && --fails_at == 0;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg)
{
    if (attr)
        pin_errno_at_start = ((struct pp_lane *)arg)->pin_errno;
    return attr && create_errno ? create_errno : __real_pthread_create(thread, attr, start, arg);
}

static atomic_int reading_stuck, ends_at_join; /* a read of STUCK began, and ends at a join */

int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result);

int __wrap_pthread_join(pthread_t thread, void **result)
{
    if (ends_at_join)
        stuck = 0;
    return __real_pthread_join(thread, result);
}

static void act(int fd)
{
    if (fd == SLOW)
        pass(12 * MS);
    reading_stuck |= fd == STUCK;
    while (fd == STUCK && stuck)
        nap_ms(1);
    if (fd == SOMETIMES_WIDE && wide > 0) {
        wide--;
        pass(3 * MS);
    }
}

/* Waits until each lane has completed the rounds that are due, except for a stuck lane. */
static void settle(const pp_sampler *s)
{
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        const struct pp_lane *lane = s->lanes[i];

        if (lane->running && !(stuck && lane->slots[0].fd == STUCK))
            WAIT_FOR(pp_deadline(lane->schedule, pp_read_once(&lane->next)) > clock_ns);
    }
}

static void reach(const pp_sampler *s, uint64_t round)
{
    uint64_t due_ns = pp_deadline(&s->schedule, round);

    settle(s);
    if (clock_ns < due_ns)
        pass(due_ns - clock_ns);
    settle(s);
}

static pp_sampler *make_simulated(uint64_t period_ns, uint32_t ring)
{
    pp_sampler *s = make(period_ns, false, ring);

    s->schedule.clock = PP_CLOCK_RAW; /* stamps are simulated: only `act` makes reads wide */
    return s;
}

/* A lane that cannot start is an error, and can be attached again. */
static void test_short_resources(void)
{
    const pp_config config = {.period_ns = MS, .words = 1, .ring = 1, .stamp = PP_STAMP_RAW};
    const int errors[] = {EAGAIN, EPERM, EINVAL};
    pp_sampler *s = NULL;

    fails_at = 1;
    CHECK(pp_new(&config, &s) == -ENOMEM && s == NULL);
    for (int number = 1; number <= 5; number++) {
        s = make_simulated(5 * MS, 2);
        fails_at = number;
        CHECK(attach(s, 0, 0, COUNTING, 0) == -ENOMEM && fails_at == 0);
        CHECK(pp_detach(s, 0) == -ENOENT);
        CHECK(attach(s, 0, 0, COUNTING, 0) == 0);
        pp_free(s);
    }
    for (int i = 0; i < 3; i++) {
        s = make_simulated(5 * MS, 2);
        create_errno = errors[i];
        /* EINVAL: libraries need a larger stack, and the default size is large enough */
        CHECK(attach(s, 0, 0, COUNTING, 0) == (errors[i] == EINVAL ? 0 : -errors[i]));
        CHECK(stats_of(s, 0).attached == (errors[i] == EINVAL));
        CHECK(pin_errno_at_start == EINPROGRESS);
        create_errno = 0;
        pp_free(s);
    }
}

/* --- rounds ----------------------------------------------------------------------------------- */

static void test_numbers_of_rounds(void)
{
    struct pp_schedule schedule = {.start_ns = 1000, .period_ns = 100};

    CHECK(pp_next_round(&schedule, 0) == 0);
    CHECK(pp_next_round(&schedule, 999) == 0);
    CHECK(pp_next_round(&schedule, 1000) == 1);
    CHECK(pp_next_round(&schedule, 1099) == 1);
    CHECK(pp_next_round(&schedule, 1100) == 2);
    CHECK(pp_deadline(&schedule, 2) == 1200);
}

/* The first delivered row has the flag, even if samples before it were lost. The lane is pinned only
 * at its start. */
static void test_rebased(void)
{
    pp_sampler *s = make_simulated(5 * MS, 2);
    uint64_t round;

    pins = 0;
    interruptions = 3;
    CHECK(attach(s, 0, 0, COUNTING, PP_ROW_REBASED) == 0);
    for (round = 0; round < 6; round++)
        reach(s, round);
    CHECK(stats_of(s, 0).lost == 4);
    round = next_sampled(s, round - 1, 0);
    CHECK(round == 7 && flags_of(0) & PP_ROW_REBASED);
    CHECK(lost_of(0) == 6); /* four found the ring full, and two were too old */
    round = next_sampled(s, round, 0);
    CHECK(round == 8 && !(flags_of(0) & PP_ROW_REBASED) && pins == 1);
    pp_free(s);
}

static void test_overruns(void)
{
    pp_sampler *s = make_simulated(5 * MS, 8);
    uint64_t round = 0;
    pp_stats stats;

    CHECK(attach(s, 0, 0, SLOW, 0) == 0);
    for (int i = 0; i < 5; i++)
        round = next_sampled(s, round, 0);
    CHECK(pp_detach(s, 0) == 0);
    stats = stats_of(s, 0);
    CHECK(stats.samples == 5 && round == 4 * 3 + 1);
    CHECK(stats.overruns == 2 * stats.samples); /* 12 ms contain two deadlines of 5 ms */
    pp_free(s);
}

/* Draining a round again waits for the missing lanes only, and counts no lane twice. */
static void test_pending_and_force(void)
{
    pp_sampler *s = make_simulated(400 * MS, 8);

    stuck = 1;
    CHECK(attach(s, 0, 0, COUNTING, 0) == 0);
    CHECK(pp_drain(s, 0, frame, 1, &delivered) == 1 && delivered == 0);
    CHECK(pp_detach(s, 0) == 0);
    CHECK(attach(s, 0, 0, COUNTING, 0) == 0); /* the round is open again for a new lane */
    CHECK(attach(s, 1, 1, STUCK, 0) == 0);
    CHECK(pp_drain(s, 0, frame, 0, &delivered) == 2 && delivered == 0);
    reach(s, 0);
    for (int i = 0; i < 3; i++) {
        CHECK(pp_drain(s, 0, frame, 0, &delivered) == 1 && delivered == 1);
        CHECK(flags_of(0) == PP_ROW_SAMPLED && flags_of(1) == 0);
    }
    stuck = 0;
    complete(s, 0);
    CHECK(delivered == 2 && flags_of(0) == PP_ROW_SAMPLED && flags_of(1) & PP_ROW_SAMPLED);

    stuck = 1;
    reach(s, 1);
    CHECK(pp_drain(s, 1, frame, 0, &delivered) == 1);
    CHECK(pp_drain(s, 1, frame, 1, &delivered) == 1 && delivered == 1);
    CHECK(flags_of(0) == PP_ROW_SAMPLED && flags_of(1) == 0 && lost_of(1) == 0);
    CHECK(pp_drain(s, 1, frame, 0, &delivered) == 0 && delivered == 1); /* it is closed */
    CHECK(pp_drain(s, 0, frame, 0, &delivered) == -EINVAL);
    stuck = 0;
    complete(s, 2);
    CHECK(delivered == 2 && lost_of(0) == 0 && lost_of(1) == 1);
    pp_free(s);
}

/* A drain does not wait for a lane with an empty ring whose next round is later. */
static void test_skipped_round_is_settled(void)
{
    static struct pp_lane lane;

    CHECK(pp_ring_init(&lane.ring, 2, PP_ENTRY_ROWS) == 0);
    pp_write_once(&lane.next, 3);
    CHECK(!collect(&lane, 3, frame) && !lane.settled);
    pp_write_once(&lane.next, 4);
    CHECK(!collect(&lane, 3, frame) && lane.settled);
    lane.settled = false;
    pp_ring_reserve(&lane.ring)[PP_ENTRY_ROUND] = 5;
    pp_ring_push(&lane.ring);
    CHECK(!collect(&lane, 4, frame) && lane.settled);
    CHECK(collect(&lane, 5, frame) && lane.late == 0);
    pp_ring_free(&lane.ring);
}

enum { PUSHED_ROUNDS = 20000 };

static int cpus[2], n_cpus;

/* Threads on two CPUs only wait until both run at once. */
static void wait_a_little(void)
{
    if (n_cpus < 2)
        sched_yield();
}

/* Pushes each round when the drainer has taken the one before it. */
static void *push_rounds(void *argument)
{
    struct pp_lane *lane = argument;

    pin(cpus[n_cpus - 1]);
    for (uint64_t round = 0; round < PUSHED_ROUNDS; round++) {
        uint64_t *entry;

        while ((entry = pp_ring_reserve(&lane->ring)) == NULL)
            wait_a_little();
        entry[PP_ENTRY_ROUND] = round;
        pp_ring_push(&lane->ring);
        pp_store_release(&lane->next, round + 1);
    }
    return NULL;
}

/* A sample that is pushed while the drainer looks for it is not skipped. */
static void test_no_sample_is_skipped(void)
{
    static struct pp_lane lane;
    pthread_t pusher;

    n_cpus = own_cpus(cpus);
    pin(cpus[0]);
    CHECK(pp_ring_init(&lane.ring, 1, PP_ENTRY_ROWS) == 0);
    CHECK(pthread_create(&pusher, NULL, push_rounds, &lane) == 0);
    for (uint64_t round = 0; round < PUSHED_ROUNDS; round++) {
        bool found = false;

        for (lane.settled = false; !lane.settled; wait_a_little())
            found = collect(&lane, round, frame);
        CHECK(found);
    }
    CHECK(pthread_join(pusher, NULL) == 0);
    pp_ring_free(&lane.ring);
}

/* A row keeps the flags of its attachment until it is delivered with data of its own CPU. */
static void test_flags_wait_for_data(void)
{
    static const uint64_t taken[] = {PP_ROW_SAMPLED | PP_ROW_ELSEWHERE, PP_ROW_SAMPLED,
                                     PP_ROW_SAMPLED};
    pp_sampler *s = make_simulated(1000 * MS, 4);
    struct pp_lane *lane = add_lane(s, 0);
    pp_row row = row_at(0, 1);
    pp_slot slot = {.kind = PP_FILE, .fd = COUNTING};

    CHECK(set_plan(lane, s->ring, PP_ROW_REBASED, &row, 1, &slot, 1) == 0);
    for (uint64_t round = 0; round < 3; round++) {
        uint64_t *entry = pp_ring_reserve(&lane->ring);

        entry[PP_ENTRY_ROUND] = round;
        entry[lane->rows[0].offset + PP_AT_FLAGS] = taken[round];
        pp_ring_push(&lane->ring);
        CHECK(collect(lane, round, frame));
        CHECK(flags_of(0) == (taken[round] | (round < 2 ? PP_ROW_REBASED : 0)));
    }
    pp_free(s);
}

/* Each round from the first is a sample, a sample for which the ring was full, or an overrun; each
 * sample is delivered or lost, including those that a detached lane leaves in its ring. */
static void test_every_round_is_accounted_for(void)
{
    enum { FIRST = 3, DELIVERED = 4, IN_RING = 2, DROPPED = 3, EACH = 7 };
    pp_sampler *s = make_simulated(2 * MS, IN_RING);
    struct pp_lane *lane = add_lane(s, 0);
    pp_row row = row_at(0, 1);
    pp_slot slot = {.kind = PP_FILE, .fd = SLOW};
    uint64_t round = 0;

    CHECK(set_plan(lane, s->ring, 0, &row, 1, &slot, 1) == 0);
    CHECK(pp_lane_start(lane, FIRST) == 0);
    for (int i = 0; i < DELIVERED; i++)
        round = next_sampled(s, round, 0);
    for (int i = 0; i < IN_RING + DROPPED; i++)
        reach(s, pp_read_once(&lane->next));
    CHECK(pp_detach(s, 0) == 0);
    CHECK(lane->samples == DELIVERED + IN_RING && lane->dropped == DROPPED);
    CHECK(lane->overruns == lane->samples * (EACH - 1)); /* each 12 ms contain six deadlines */
    CHECK(lane->next == FIRST + lane->samples * EACH + DROPPED);
    CHECK(stats_of(s, 0).lost == IN_RING + DROPPED);
    pp_free(s);
}

/* A sample that a lane completes after it was told to stop is lost, too. */
static void test_the_last_sample_is_accounted_for(void)
{
    pp_sampler *s = make_simulated(5 * MS, 2);

    reading_stuck = 0;
    stuck = 1;
    CHECK(attach(s, 0, 0, STUCK, 0) == 0);
    reach(s, 0);
    WAIT_FOR(reading_stuck);
    ends_at_join = 1;
    CHECK(pp_detach(s, 0) == 0);
    ends_at_join = 0;
    CHECK(stats_of(s, 0).samples == 1 && stats_of(s, 0).lost == 1);
    pp_free(s);
}

/* A lane that wakes up ten rounds late takes part in the round that is then current. */
static void test_overslept(void)
{
    pp_sampler *s = make_simulated(200 * MS, 2);
    struct pp_lane *lane = add_lane(s, 0);
    pp_row row = row_at(0, 1);
    pp_slot slot = {.kind = PP_FILE, .fd = COUNTING};

    s->schedule.start_ns -= (uint64_t)2250 * MS; /* now 50 ms after the time of round 10 */
    CHECK(set_plan(lane, s->ring, 0, &row, 1, &slot, 1) == 0);
    CHECK(pp_lane_start(lane, 0) == 0);
    settle(s);
    complete(s, 10);
    CHECK(delivered == 1 && frame[2] == 50 * MS && lost_of(0) == 0);
    CHECK(pp_detach(s, 0) == 0);
    CHECK(stats_of(s, 0).overruns == 10);
    pp_free(s);
}

/* --- wide reads -------------------------------------------------------------------------------- */

static void test_wide(void)
{
    pp_sampler *s = make_simulated(100 * MS, 8);
    uint64_t round;

    CHECK(attach(s, 0, 0, SOMETIMES_WIDE, 0) == 0);
    round = next_sampled(s, 0, 0);
    wide = 1;
    round = next_sampled(s, round, 0);
    CHECK(flags_of(0) == PP_ROW_SAMPLED && stats_of(s, 0).repeats == 1);
    wide = 3;
    round = next_sampled(s, round, 0);
    CHECK(flags_of(0) == (PP_ROW_SAMPLED | PP_ROW_WIDE));
    CHECK(stats_of(s, 0).repeats == 1 + PP_LANE_REPEATS && valid_of(0) == 1 << 2);
    CHECK(frame[1] - frame[0] == 3 * MS);
    pp_free(s);
}

/* The lane of no CPU repeats an interrupted read as a whole, and flags no row. */
static void test_anywhere_wide(void)
{
    pp_sampler *s = make_simulated(100 * MS, 8);
    uint64_t round;

    CHECK(attach_anywhere(s, 1, SOMETIMES_WIDE) == 0);
    round = next_sampled(s, 0, 1);
    for (int reads = 1; reads <= 3; reads += 2) {
        wide = reads;
        round = next_sampled(s, round, 1);
        CHECK(flags_of(1) == PP_ROW_SAMPLED && flags_of(2) == PP_ROW_SAMPLED);
        CHECK(frame[1 * ROW + PP_HEAD + 1 + 1] + 1 == frame[2 * ROW + PP_HEAD + 1]);
    }
    CHECK(stats_of(s, PP_UNPINNED_CPU).repeats == 1 + PP_LANE_REPEATS);
    pp_free(s);
}

/* --- the lane of no CPU ------------------------------------------------------------------------ */

/* A round waits for it as for a CPU's lane, but it is not counted as a CPU that delivered. */
static void test_anywhere_is_no_cpu(void)
{
    pp_sampler *s = make_simulated(400 * MS, 8);

    stuck = 1;
    CHECK(attach(s, 0, 0, COUNTING, 0) == 0);
    CHECK(attach_anywhere(s, 1, STUCK) == 0);
    reach(s, 0);
    CHECK(pp_drain(s, 0, frame, 0, &delivered) == 1);
    CHECK(delivered == 1 && flags_of(0) == PP_ROW_SAMPLED && flags_of(1) == 0);
    stuck = 0;
    complete(s, 0);
    CHECK(delivered == 1 && flags_of(1) == PP_ROW_SAMPLED);
    CHECK(pp_detach(s, 0) == 0);
    next_sampled(s, 1, 1);
    CHECK(delivered == 0);
    pp_free(s);
}

int main(void)
{
    test_short_resources();
    test_numbers_of_rounds();
    test_rebased();
    test_overruns();
    test_pending_and_force();
    test_skipped_round_is_settled();
    test_flags_wait_for_data();
    test_every_round_is_accounted_for();
    test_the_last_sample_is_accounted_for();
    test_overslept();
    test_wide();
    test_anywhere_wide();
    test_anywhere_is_no_cpu();
    test_no_sample_is_skipped(); /* the last one: it pins this thread */
    return 0;
}

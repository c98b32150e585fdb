/* Lanes in real time: their attachments, the CPUs of their threads, and how they end. */
#define _GNU_SOURCE
#include "sampler_play.h"

#include <sys/prctl.h>

static atomic_int move_to, slack_ns, blocks_segv;

static void act(int fd)
{
    sigset_t blocked;

    slack_ns = prctl(PR_GET_TIMERSLACK);
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0);
    blocks_segv = sigismember(&blocked, SIGSEGV);
    if (fd == MOVING)
        pin(atomic_load(&move_to));
}

static void reach(const pp_sampler *s, uint64_t round)
{
    (void)s; /* real time passes by itself */
    (void)round;
}

static bool accepted(pp_config config)
{
    pp_sampler *s = NULL;
    int rc = pp_new(&config, &s);

    CHECK(rc == 0 || (rc == -EINVAL && s == NULL));
    pp_free(s);
    return rc == 0;
}

static void test_bounds_of_a_config(void)
{
    const pp_config good = {.period_ns = 10000, .words = 1 << 24, .ring = 1 << 16,
                            .stamp = PP_STAMP_RAW};
    pp_config c = good;

    CHECK(accepted(c));
    c.period_ns = (uint64_t)1 << 42;
    CHECK(accepted(c));
    c.period_ns++;
    CHECK(!accepted(c));
    c.period_ns = 9999;
    CHECK(!accepted(c));
    c = good;
    c.first_ns = c.period_ns;
    CHECK(accepted(c));
    c.first_ns++;
    CHECK(!accepted(c));
    c = good;
    c.words++;
    CHECK(!accepted(c));
    c = good;
    c.ring++;
    CHECK(!accepted(c));
    c.ring = 0;
    CHECK(!accepted(c));
    c = good;
    c.stamp = 3;
    CHECK(!accepted(c));
}

/* The first round starts at the time that the caller gives, or after a period. */
static void test_first_round(void)
{
    const uint64_t hour = (uint64_t)3600 * 1000000000, first[] = {hour / 8, 0};

    for (int i = 0; i < 2; i++) {
        const pp_config c = {.period_ns = hour, .first_ns = first[i], .words = 1, .ring = 1,
                             .stamp = PP_STAMP_RAW};
        uint64_t before = pp_clock_ns(CLOCK_MONOTONIC), wait = first[i] ? first[i] : hour;
        pp_sampler *s = NULL;

        CHECK(pp_new(&c, &s) == 0);
        CHECK(pp_start_ns(s) >= before + wait);
        CHECK(pp_start_ns(s) <= pp_clock_ns(CLOCK_MONOTONIC) + wait);
        pp_free(s);
    }
}

static void test_refusals(void)
{
    pp_sampler *s = make(1000 * MS, true, 4);
    pp_config config = {.period_ns = 1, .words = 1, .ring = 1, .stamp = PP_STAMP_RAW};
    pp_row row = row_at(ROWS - 1, 1);
    pp_slot slot = {.kind = PP_FILE, .column = 9, .fd = COUNTING};
    pp_stats stats;

    CHECK(pp_new(&config, &(pp_sampler *){NULL}) == -EINVAL);
    test_bounds_of_a_config();
    test_first_round();
    CHECK(pp_attach(s, PP_UNPINNED_CPU - 1, 0, &row, 1, &slot, 1) == -EINVAL);
    CHECK(pp_attach(s, 0, 0, &row, 1, &slot, 0) == -EINVAL);
    CHECK(pp_attach(s, 0, 0, &row, 0, &slot, 1) == -EINVAL);
    slot.column = 10; /* one past the end of the frame; test_slot.c has the other bounds */
    CHECK(pp_attach(s, 0, 0, &row, 1, &slot, 1) == -EINVAL);
    CHECK(pp_detach(s, 0) == -ENOENT);
    CHECK(pp_get_stats(s, 0, &stats) == -ENOENT);
    CHECK(pp_attach(s, 0, 0, NULL, 0, NULL, 0) == 0);
    CHECK(attach(s, 0, 0, COUNTING, 0) == -EEXIST);
    pp_free(s);
    pp_free(NULL);
}

static uint64_t now_by(uint32_t stamp)
{
    return stamp == PP_STAMP_RAW ? pp_clock_ns(CLOCK_MONOTONIC_RAW) : pp_rdtsc();
}

/* Each lane on its CPU, after the deadline, with stamps of the configured clock in order. */
static void test_own_cpu(uint32_t stamp)
{
    int cpus[2], n = own_cpus(cpus);
    pp_config config = {.period_ns = 10 * MS, .words = ROWS * ROW, .ring = 8, .stamp = stamp,
                        .check_cpu = 1};
    pp_sampler *s;
    uint64_t round = 0, begun = now_by(stamp);

    CHECK(pp_new(&config, &s) == 0);
    for (int i = 0; i < n; i++)
        CHECK(attach(s, cpus[i], (uint32_t)i, COUNTING, 0) == 0);
    for (int i = 0; i < n; i++) {
        uint64_t *head = frame + i * ROW;
        uint64_t due;

        round = next_sampled(s, round, (uint32_t)i);
        due = pp_start_ns(s) + (round - 1) * config.period_ns;
        CHECK(!(head[4] & (PP_ROW_ELSEWHERE | PP_ROW_UNPINNED)));
        CHECK(begun < head[0] && head[0] < head[1] && head[1] < now_by(stamp));
        CHECK(due + head[2] < pp_clock_ns(CLOCK_MONOTONIC));
        CHECK(head[2] < config.period_ns); /* else it belongs to a later round */
        CHECK(valid_of((uint32_t)i) == 1 << 2);
        CHECK(head[PP_HEAD + 1 + 2] >= 100);
        CHECK(stats_of(s, cpus[i]).pin_errno == 0);
        CHECK(slack_ns == 1); /* the lane's; by default, wake-ups are 50 us late */
        CHECK(stats_of(s, cpus[i]).cpu_ns > 0);
    }
    pp_free(s);
}

static void test_nonexistent_cpu(bool proof)
{
    pp_sampler *s = make(5 * MS, proof, 8);

    atomic_store(&count, 0);
    CHECK(attach(s, NO_CPU, 0, COUNTING, 0) == 0);
    next_sampled(s, 0, 0);
    CHECK(!atomic_load(&count) == proof); /* a checked row is not read on another CPU */
    CHECK(stats_of(s, NO_CPU).pin_errno == EINVAL);
    CHECK(flags_of(0) & PP_ROW_UNPINNED);
    CHECK(!(flags_of(0) & PP_ROW_ELSEWHERE) == !proof);
    CHECK(valid_of(0) == (proof ? 0 : 1 << 2));
    pp_free(s);
}

/* The thread is pinned, and then another process moves it to another CPU. */
static void test_moved(void)
{
    int cpus[2];
    pp_sampler *s = make(5 * MS, true, 8);
    cpu_set_t other;
    uint64_t round;

    if (own_cpus(cpus) == 2) {
        CHECK(attach(s, cpus[0], 0, COUNTING, 0) == 0);
        round = next_sampled(s, 0, 0);
        CPU_ZERO(&other);
        CPU_SET(cpus[1], &other);
        CHECK(pthread_setaffinity_np(s->lanes[0]->thread, sizeof other, &other) == 0);
        do {
            round = next_sampled(s, round, 0);
            CHECK(valid_of(0) == (flags_of(0) & PP_ROW_ELSEWHERE ? 0 : 1 << 2));
        } while (!(flags_of(0) & PP_ROW_ELSEWHERE));
        do { /* it returns to its CPU */
            round = next_sampled(s, round, 0);
            CHECK(round < 4000);
        } while (flags_of(0) & PP_ROW_ELSEWHERE);
        CHECK(valid_of(0) == 1 << 2);
    }
    pp_free(s);
}

/* The thread is moved in the middle of a read: the CPU of the first stamp was right. */
static void test_moved_while_reading(void)
{
    int cpus[2];
    pp_sampler *s = make(5 * MS, true, 8);

    if (own_cpus(cpus) == 2) {
        atomic_store(&move_to, cpus[1]);
        CHECK(attach(s, cpus[0], 0, MOVING, 0) == 0);
        next_sampled(s, 0, 0);
        CHECK(flags_of(0) == (PP_ROW_SAMPLED | PP_ROW_ELSEWHERE) && valid_of(0) == 0);
    }
    pp_free(s);
}

static void test_repeated_attach_and_detach(void)
{
    pp_sampler *s = make(3 * MS, false, 8);
    uint64_t round = 0, samples = 0, cpu_ns = 0;

    CHECK(attach(s, 0, 0, COUNTING, 0) == 0);
    for (int i = 0; i < 10; i++) {
        CHECK(attach(s, 7, 1, COUNTING, i ? PP_ROW_REBASED : 0) == 0);
        round = next_sampled(s, round, 1);
        CHECK(!(flags_of(1) & PP_ROW_REBASED) == !i);
        round = next_sampled(s, round, 0);
        CHECK(stats_of(s, 7).cpu_ns > cpu_ns);
        CHECK(pp_detach(s, 7) == 0);
        CHECK(pp_detach(s, 7) == -ENOENT);
        CHECK(!stats_of(s, 7).attached && stats_of(s, 7).cpu_ns > cpu_ns);
        cpu_ns = stats_of(s, 7).cpu_ns;
        CHECK(stats_of(s, 7).samples > samples); /* counting continues */
        samples = stats_of(s, 7).samples;
        round = next_sampled(s, round, 0);
        CHECK(flags_of(1) == 0);
    }
    pp_free(s);
}

/* Stopping does not wait for the deadline, an hour from now. */
static void test_prompt_stop(void)
{
    pp_sampler *s = make((uint64_t)3600 * 1000 * MS, false, 2);

    for (int cpu = 0; cpu < 8; cpu++)
        CHECK(attach(s, cpu, 0, COUNTING, 0) == 0);
    nap_ms(5);
    CHECK(pp_detach(s, 3) == 0);
    pp_free(s);
}

static void test_failing_slot(void)
{
    pp_sampler *s = make(5 * MS, false, 4);
    pp_row row = row_at(1, 3);
    pp_slot slots[] = {{.kind = PP_FILE, .column = 0, .fd = COUNTING},
                       {.kind = PP_FILE, .column = 1, .fd = GONE},
                       {.kind = PP_FILE, .column = 5, .fd = COUNTING}};

    CHECK(pp_attach(s, 0, 0, &row, 1, slots, 3) == 0);
    next_sampled(s, 0, 1);
    CHECK(valid_of(1) == (1 << 0 | 1 << 5));
    CHECK(frame[row.values] + 1 == frame[row.values + 5]);
    CHECK(stats_of(s, 0).slot_errno == ENODEV);
    pp_free(s);
}

/* A lane that also owns the row of its core. */
static void test_two_rows(void)
{
    pp_sampler *s = make(5 * MS, false, 4);
    pp_row rows[] = {row_at(0, 1), row_at(300, 2)};
    pp_slot slots[] = {{.kind = PP_FILE, .column = 1, .fd = COUNTING},
                       {.kind = PP_FILE, .column = 0, .fd = COUNTING},
                       {.kind = PP_FILE, .column = 3, .fd = COUNTING}};

    CHECK(pp_attach(s, 0, 0, rows, 2, slots, 3) == 0);
    next_sampled(s, 0, 300);
    CHECK(flags_of(0) & flags_of(300) & PP_ROW_SAMPLED);
    CHECK(valid_of(0) == 1 << 1 && valid_of(300) == (1 << 0 | 1 << 3));
    CHECK(frame[rows[0].head + 1] <= frame[rows[1].head]);
    CHECK(frame[rows[1].values + 3] >= frame[rows[0].values + 1] + 2);
    pp_free(s);
}

/* --- the lane of no CPU ------------------------------------------------------------------------ */

static void test_anywhere(void)
{
    pp_sampler *s = make(5 * MS, true, 8);
    cpu_set_t own, lanes;
    char name[16];
    pthread_attr_t attr;
    size_t stack;

    CHECK(attach_anywhere(s, 1, COUNTING) == 0);
    CHECK(attach_anywhere(s, 1, COUNTING) == -EEXIST);
    next_sampled(s, 0, 1);
    CHECK(flags_of(1) == PP_ROW_SAMPLED && flags_of(2) == PP_ROW_SAMPLED);
    CHECK(valid_of(1) == 1 << 1 && valid_of(2) == 1 << 0);
    CHECK(frame[1 * ROW + PP_HEAD + 1 + 1] + 1 == frame[2 * ROW + PP_HEAD + 1]);
    CHECK(frame[1 * ROW] == frame[2 * ROW] && frame[1 * ROW + 1] == frame[2 * ROW + 1]);
    CHECK(frame[1 * ROW] < frame[1 * ROW + 1]);
    CHECK(stats_of(s, PP_UNPINNED_CPU).pin_errno == 0 && stats_of(s, PP_UNPINNED_CPU).cpu_ns > 0);
    CHECK(stats_of(s, PP_UNPINNED_CPU).slot_errno == ENODEV);
    CHECK(sched_getaffinity(0, sizeof own, &own) == 0);
    CHECK(pthread_getaffinity_np(s->lanes[0]->thread, sizeof lanes, &lanes) == 0);
    CHECK(CPU_EQUAL(&own, &lanes));
    CHECK(pthread_getname_np(s->lanes[0]->thread, name, sizeof name) == 0);
    CHECK(strcmp(name, "perfprobe/any") == 0);
    CHECK(pthread_getattr_np(s->lanes[0]->thread, &attr) == 0);
    CHECK(pthread_attr_getstacksize(&attr, &stack) == 0 && stack <= 1 << 20); /* default: 8 MiB */
    pthread_attr_destroy(&attr);
    CHECK(pp_detach(s, PP_UNPINNED_CPU) == 0 && attach_anywhere(s, 1, COUNTING) == 0);
    pp_free(s);
}

/* A signal to the process stays pending while all of its own threads block it. Only the SIGSEGV of a
 * refused RDPMC is handled in the lane. */
static void test_no_signals(void)
{
    pp_sampler *s = make(5 * MS, false, 8);
    sigset_t usr1, pending, own;

    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    CHECK(attach(s, 0, 0, COUNTING, 0) == 0);
    pthread_sigmask(SIG_BLOCK, &usr1, &own);
    CHECK(!sigismember(&own, SIGUSR1)); /* this thread's mask is as before */
    CHECK(kill(getpid(), SIGUSR1) == 0);
    next_sampled(s, 0, 0);
    CHECK(!blocks_segv);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
    CHECK(sigwaitinfo(&usr1, NULL) == SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
    pp_free(s);
}

static void test_many_lanes(void)
{
    pp_sampler *s = make(200 * MS, false, 4);
    uint64_t round = 0, seen = 0;
    static bool done[ROWS];

    for (int i = 0; i < ROWS; i++)
        CHECK(attach(s, i, (uint32_t)i, COUNTING, 0) == 0);
    for (; seen < ROWS; round++) {
        complete(s, round);
        for (uint32_t i = 0; i < ROWS; i++)
            if (!done[i] && flags_of(i) & PP_ROW_SAMPLED) {
                done[i] = true;
                seen++;
            }
        CHECK(round < 100);
    }
    pp_free(s);
}

int main(void)
{
    test_refusals();
    test_own_cpu(PP_STAMP_TSC);
    test_own_cpu(PP_STAMP_RAW);
    test_nonexistent_cpu(true);
    test_nonexistent_cpu(false);
    test_moved();
    test_moved_while_reading();
    test_repeated_attach_and_detach();
    test_prompt_stop();
    test_failing_slot();
    test_two_rows();
    test_anywhere();
    test_no_signals();
    test_many_lanes();
    return 0;
}

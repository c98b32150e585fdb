/* Rounds: which samples are theirs, which are lost, and what flags they carry. */
#define _GNU_SOURCE
#include "sampler_play.h"

static void test_rounds(void)
{
    struct pp_schedule schedule = {.start_ns = 1000, .period_ns = 100};

    CHECK(pp_next_round(&schedule, 0) == 0);
    CHECK(pp_next_round(&schedule, 999) == 0);
    CHECK(pp_next_round(&schedule, 1000) == 1);
    CHECK(pp_next_round(&schedule, 1099) == 1);
    CHECK(pp_next_round(&schedule, 1100) == 2);
    CHECK(pp_deadline(&schedule, 2) == 1200);
}

/* The flag reaches the first row that is delivered, though samples before it were lost. */
static void test_rebased(void)
{
    pp_sampler *s = make(5 * MS, false, 2);
    uint64_t round;

    CHECK(attach(s, 0, 0, COUNTING, PP_ROW_REBASED) == 0);
    WAIT_FOR(stats_of(s, 0).lost > 2);
    round = pp_next_round(&s->schedule, pp_clock_ns(CLOCK_MONOTONIC));
    round = next_sampled(s, round, 0);
    CHECK(flags_of(0) & PP_ROW_REBASED);
    CHECK(lost_of(0) > 4); /* some were refused, and two were too old */
    round = next_sampled(s, round, 0);
    CHECK(!(flags_of(0) & PP_ROW_REBASED));
    pp_free(s);
}

static void test_overruns(void)
{
    pp_sampler *s = make(5 * MS, false, 8);
    uint64_t round = 0;
    pp_stats stats;

    CHECK(attach(s, 0, 0, SLOW, 0) == 0);
    for (int i = 0; i < 5; i++)
        round = next_sampled(s, round, 0);
    CHECK(pp_detach(s, 0) == 0);
    stats = stats_of(s, 0);
    CHECK(stats.samples >= 5 && stats.samples <= round);
    CHECK(stats.overruns >= 2 * stats.samples); /* 12 ms hold two deadlines of 5 ms, or more */
    pp_free(s);
}

/* Draining a round again waits for the missing lanes only, and counts no lane twice. */
static void test_pending_and_force(void)
{
    pp_sampler *s = make(400 * MS, false, 8);

    atomic_store(&stuck, 1);
    CHECK(attach(s, 0, 0, COUNTING, 0) == 0);
    CHECK(attach(s, 1, 1, STUCK, 0) == 0);
    CHECK(pp_drain(s, 0, frame, 0, &delivered) == 2 && delivered == 0);
    WAIT_FOR(pp_drain(s, 0, frame, 0, &delivered) == 1);
    for (int i = 0; i < 3; i++) {
        CHECK(pp_drain(s, 0, frame, 0, &delivered) == 1 && delivered == 1);
        CHECK(flags_of(0) == PP_ROW_SAMPLED && flags_of(1) == 0);
    }
    atomic_store(&stuck, 0);
    complete(s, 0);
    CHECK(delivered == 2 && flags_of(0) == PP_ROW_SAMPLED && flags_of(1) & PP_ROW_SAMPLED);

    atomic_store(&stuck, 1);
    WAIT_FOR(pp_drain(s, 1, frame, 0, &delivered) == 1);
    CHECK(pp_drain(s, 1, frame, 1, &delivered) == 1 && delivered == 1);
    CHECK(flags_of(0) == PP_ROW_SAMPLED && flags_of(1) == 0 && lost_of(1) == 0);
    CHECK(pp_drain(s, 1, frame, 0, &delivered) == 0 && delivered == 1); /* it is closed */
    CHECK(pp_drain(s, 0, frame, 0, &delivered) == -EINVAL);
    atomic_store(&stuck, 0);
    complete(s, 2);
    CHECK(delivered == 2 && lost_of(0) == 0 && lost_of(1) == 1);
    pp_free(s);
}

/* A lane that has gone past a round is not waited for, though its ring is empty. */
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

/* A row keeps the flags of its attachment until it was delivered with data of its own CPU. */
static void test_flags_wait_for_data(void)
{
    static const uint64_t taken[] = {PP_ROW_SAMPLED | PP_ROW_ELSEWHERE, PP_ROW_SAMPLED,
                                     PP_ROW_SAMPLED};
    pp_sampler *s = make(1000 * MS, false, 4);
    struct pp_lane *lane = add_lane(s, 0);
    pp_row row = row_at(0, 1);
    pp_slot slot = {.kind = PP_FILE, .fd = COUNTING};

    CHECK(prepare(lane, s->ring, PP_ROW_REBASED, &row, 1, &slot, 1) == 0);
    for (uint64_t round = 0; round < 3; round++) {
        uint64_t *entry = pp_ring_reserve(&lane->ring);

        entry[PP_ENTRY_ROUND] = round;
        entry[lane->rows[0].at + PP_AT_FLAGS] = taken[round];
        pp_ring_push(&lane->ring);
        CHECK(collect(lane, round, frame));
        CHECK(flags_of(0) == (taken[round] | (round < 2 ? PP_ROW_REBASED : 0)));
    }
    pp_free(s);
}

/* Each round from the first is a sample, a sample that found the ring full, or an overrun; each
 * sample is delivered or lost, those included that a detached lane leaves in its ring. */
static void test_every_round_is_accounted_for(void)
{
    enum { FIRST = 3, DELIVERED = 4 };
    pp_sampler *s = make(2 * MS, false, 2);
    struct pp_lane *lane = add_lane(s, 0);
    pp_row row = row_at(0, 1);
    pp_slot slot = {.kind = PP_FILE, .fd = SLOW};
    uint64_t round = 0;

    CHECK(prepare(lane, s->ring, 0, &row, 1, &slot, 1) == 0);
    CHECK(pp_lane_start(lane, FIRST) == 0);
    for (int i = 0; i < DELIVERED; i++)
        round = next_sampled(s, round, 0);
    WAIT_FOR(pp_read_once(&lane->dropped) > 2);
    CHECK(pp_detach(s, 0) == 0);
    CHECK(lane->next - FIRST == lane->samples + lane->dropped + lane->overruns);
    CHECK(lane->samples + lane->dropped == DELIVERED + stats_of(s, 0).lost);
    pp_free(s);
}

/* A lane that wakes up ten rounds late takes part in the round of that moment. */
static void test_overslept(void)
{
    pp_sampler *s = make(200 * MS, false, 2);
    struct pp_lane *lane = add_lane(s, 0);
    pp_row row = row_at(0, 1);
    pp_slot slot = {.kind = PP_FILE, .fd = COUNTING};

    s->schedule.start_ns -= (uint64_t)2200 * MS;
    CHECK(prepare(lane, s->ring, 0, &row, 1, &slot, 1) == 0);
    CHECK(pp_lane_start(lane, 0) == 0);
    WAIT_FOR(pp_ring_fill(&lane->ring) > 0);
    CHECK(pp_ring_peek(&lane->ring)[PP_ENTRY_ROUND] >= 10);
    CHECK(pp_ring_peek(&lane->ring)[PP_ENTRY_LATENESS] < s->schedule.period_ns);
    CHECK(pp_detach(s, 0) == 0);
    CHECK(stats_of(s, 0).overruns >= 10);
    pp_free(s);
}

static void test_wide(void)
{
    pp_sampler *s = make(5 * MS, false, 8);
    uint64_t round = 0, repeats;

    CHECK(attach(s, 0, 0, SOMETIMES_WIDE, 0) == 0);
    for (int i = 0; i < 60; i++) /* until it knows what is usual */
        round = next_sampled(s, round, 0);
    repeats = stats_of(s, 0).repeats;
    atomic_store(&wide, 1);
    WAIT_FOR(stats_of(s, 0).repeats > repeats);
    repeats = stats_of(s, 0).repeats;
    atomic_store(&wide, 3);
    do
        round = next_sampled(s, round, 0);
    while (!(flags_of(0) & PP_ROW_WIDE));
    CHECK(stats_of(s, 0).repeats >= repeats + PP_LANE_REPEATS);
    CHECK(valid_of(0) == 1 << 2);
    pp_free(s);
}

int main(void)
{
    test_rounds();
    test_rebased();
    test_overruns();
    test_pending_and_force();
    test_skipped_round_is_settled();
    test_flags_wait_for_data();
    test_every_round_is_accounted_for();
    test_overslept();
    test_wide();
    return 0;
}

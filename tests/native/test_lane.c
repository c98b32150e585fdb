/* A lane treats an unusually wide read as interrupted; the widths here are simulated. */
#include "lane.c"

#include <fcntl.h>

#include "check.h"

enum { USUAL = 100000, ENOUGH = 200 };

/* Returns a row after many reads of about this width. */
static struct pp_lane_row row_with_usual_width(uint64_t usual)
{
    struct pp_lane_row row = {0};

    for (int i = 0; i < ENOUGH; i++)
        is_wide(&row, usual);
    return row;
}

static void the_first_read_is_not_wide(void)
{
    struct pp_lane_row row = {0};

    CHECK(!is_wide(&row, 1000 * USUAL) && row.median > 0);
}

static void wide_is_more_than_four_times_the_usual(void)
{
    struct pp_lane_row row = row_with_usual_width(USUAL);
    uint64_t usual = row.median;

    CHECK(usual >= USUAL - USUAL / 4 && usual <= USUAL + USUAL / 4);
    CHECK(!is_wide(&row, WIDE_FACTOR * usual));
    row.median = usual;
    CHECK(is_wide(&row, WIDE_FACTOR * (usual + 1)));
    CHECK(row.median == usual + usual / MEDIAN_STEP + 1); /* one outlier moves it by one step */
}

/* This holds however narrow the usual read is. */
static void nothing_below_the_floor_is_wide(void)
{
    struct pp_lane_row row = row_with_usual_width(10);

    CHECK(!is_wide(&row, MIN_WIDE_READ));
    CHECK(is_wide(&row, MIN_WIDE_READ + 1));
}

static void the_usual_width_rises_and_falls(void)
{
    struct pp_lane_row row = row_with_usual_width(USUAL);

    for (int i = 0; i < ENOUGH; i++)
        is_wide(&row, 3 * USUAL);
    CHECK(row.median > 2 * USUAL && row.median < 4 * USUAL);
    for (int i = 0; i < ENOUGH; i++)
        is_wide(&row, 2 * USUAL);
    CHECK(row.median > USUAL + USUAL / 2 && row.median < 3 * USUAL);
}

/* A bad start, such as a first read from cold caches, does not hide interruptions for long. */
static void one_fast_read_ends_a_bad_start(void)
{
    struct pp_lane_row row = {0};

    is_wide(&row, 100 * USUAL);
    is_wide(&row, USUAL);
    CHECK(is_wide(&row, 5 * USUAL));
}

/* A row is not read on another CPU, so the read takes no time. */
static void a_read_on_another_cpu_does_not_change_the_usual_width(void)
{
    const struct pp_schedule schedule = {.check_cpu = true};
    struct pp_lane lane = {.schedule = &schedule, .cpu = PP_CPU_MAX};
    struct pp_lane_row row = row_with_usual_width(USUAL);
    uint64_t usual = row.median, entry[PP_AT_VALID];
    bool wide;

    CHECK(read_together(&lane, &row, 1, PP_CLOCK_RAW, NULL, entry, &wide) & PP_ROW_ELSEWHERE);
    CHECK(!wide && row.median == usual);
}

/* The status bits of the second row would be polled twice. A failed slot has neither valid bits nor
 * values of the ring's earlier entry. */
static void a_row_has_the_columns_that_were_read(void)
{
    const struct pp_schedule schedule = {0};
    struct pp_lane lane = {.schedule = &schedule};
    pp_flags flags[3] = {{.mask = 1}, {.mask = 1}, {.mask = 1}};
    struct pp_lane_row rows[2] = {{.plan = {.valid_words = 2, .n_slots = 3}, .columns = 66},
                                  {.plan = {.valid_words = 1, .n_slots = 1}, .columns = 2}};
    uint64_t entry[PP_AT_VALID + 2 + 66], *valid = entry + PP_AT_VALID, *values = valid + 2;
    int zero = open("/dev/zero", O_RDONLY);
    pp_slot slots[] = {{.kind = PP_FLAGS, .fd = -1, .count = 2, .flags = &flags[0]},
                       {.kind = PP_FLAGS, .fd = zero, .column = 62, .count = 2, .flags = &flags[0]},
                       {.kind = PP_FLAGS, .fd = zero, .column = 64, .count = 2, .flags = &flags[1]},
                       {.kind = PP_FLAGS, .fd = zero, .count = 2, .flags = &flags[2]}};

    memset(entry, 0xff, sizeof entry);
    read_once(&lane, rows, 1, PP_CLOCK_RAW, slots, entry);
    CHECK(flags[0].polls == 1 && flags[1].polls == 1 && flags[2].polls == 0);
    CHECK(valid[0] == (uint64_t)3 << 62 && valid[1] == 3 && lane.slot_errno == EBADF);
    for (int i = 0; i < 66; i++)
        CHECK(values[i] == (i == 62 || i == 64));
    slots[0].fd = zero;
    lane.slot_errno = 0;
    read_once(&lane, rows, 1, PP_CLOCK_RAW, slots, entry);
    CHECK(valid[0] == ((uint64_t)3 << 62 | 3) && lane.slot_errno == 0);
    close(zero);
}

static void the_cpu_is_not_read_without_proof(void)
{
    for (int clock = PP_CLOCK_RDTSCP; clock <= PP_CLOCK_RAW; clock++)
        CHECK(pp_now((enum pp_clock)clock, false).cpu == -1);
}

int main(void)
{
    the_cpu_is_not_read_without_proof();
    a_row_has_the_columns_that_were_read();
    the_first_read_is_not_wide();
    wide_is_more_than_four_times_the_usual();
    nothing_below_the_floor_is_wide();
    the_usual_width_rises_and_falls();
    one_fast_read_ends_a_bad_start();
    a_read_on_another_cpu_does_not_change_the_usual_width();
    return 0;
}

/* A lane treats an unusually wide read as interrupted; the widths here are simulated. */
#include "lane.c"

#include <fcntl.h>

#include "check.h"

/* One read: the estimated median before it, its width, whether it is wide, and the median after. */
static void a_read_is_wide_by_the_median(void)
{
    const struct { uint64_t before, width; bool wide; uint64_t after; } reads[] = {
        {0, 100000000, false, 100000001}, /* the first: nothing is known yet */
        {100000, 400003, false, 112501}, {100000, 400004, true, 112501}, /* more than four times */
        {10, 20000, false, 12}, {10, 20001, true, 12}, /* the minimum, however narrow the others */
        {100000, 100000, false, 100000}, {100000, 100001, false, 112501},
        {100000, 99999, false, 87499}, {100000, 50000, false, 87499},
        {100000, 49999, false, 50000}, /* the first reads were slow, such as from cold caches */
    };

    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        struct pp_lane_row row = {.median = reads[i].before};

        CHECK(is_wide(&row, reads[i].width) == reads[i].wide);
        CHECK(row.median == reads[i].after);
    }
}

/* A row is not read on another CPU, so the read takes no time. */
static void a_read_on_another_cpu_does_not_change_the_usual_width(void)
{
    const struct pp_schedule schedule = {.check_cpu = true};
    struct pp_lane lane = {.schedule = &schedule, .cpu = PP_CPU_MAX};
    struct pp_lane_row row = {.median = 100000};
    uint64_t entry[PP_AT_VALID];
    bool wide;

    CHECK(read_together(&lane, &row, 1, PP_CLOCK_RAW, NULL, entry, &wide) & PP_ROW_ELSEWHERE);
    CHECK(!wide && row.median == 100000);
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
    a_read_is_wide_by_the_median();
    a_read_on_another_cpu_does_not_change_the_usual_width();
    return 0;
}

/* A plan fits if each part of each row lies in the frame; one word more does not fit. */
#include "plan.h"

#include "check.h"

enum { WORDS = 20 };

static const pp_row ends_with_the_frame[] = {
    {.head = WORDS - PP_HEAD, .valid = 0, .valid_words = 1, .values = 1, .n_slots = 1},
    {.head = 0, .valid = WORDS - 2, .valid_words = 2, .values = 5, .n_slots = 1},
    {.head = 0, .valid = 5, .valid_words = 1, .values = WORDS - 8, .n_slots = 1},
};

static void the_frame_is_long_enough(void)
{
    pp_slot slot = {.kind = PP_FILE, .column = 7};

    for (int i = 0; i < 3; i++) {
        CHECK(pp_plan_fits(WORDS, &ends_with_the_frame[i], 1, &slot, 1));
        CHECK(!pp_plan_fits(WORDS - 1, &ends_with_the_frame[i], 1, &slot, 1));
    }
}

static void nothing_wraps_around(void)
{
    for (int i = 0; i < 4; i++) {
        pp_slot slot = {.kind = PP_FILE, .column = 7};
        pp_row row = {.head = 0, .valid = 5, .valid_words = 1, .values = 6, .n_slots = 1};
        uint32_t *const parts[] = {&row.head, &row.valid, &row.values, &slot.column};

        CHECK(pp_plan_fits(WORDS, &row, 1, &slot, 1));
        *parts[i] = UINT32_MAX;
        CHECK(!pp_plan_fits(WORDS, &row, 1, &slot, 1));
    }
}

static void columns_have_valid_bits(void)
{
    pp_row row = {.head = 0, .valid = 5, .valid_words = 1, .values = 13, .n_slots = 1};
    pp_slot slot = {.kind = PP_FILE, .column = 63};

    CHECK(pp_plan_fits(1000, &row, 1, &slot, 1));
    slot.column = 64;
    CHECK(!pp_plan_fits(1000, &row, 1, &slot, 1));
    row.valid_words = 8;
    slot.column = 511;
    CHECK(pp_plan_fits(1000, &row, 1, &slot, 1));
    row.valid_words = 9;
    CHECK(!pp_plan_fits(1000, &row, 1, &slot, 1));
}

static void rows_have_all_the_slots(void)
{
    pp_row rows[] = {{.valid = 5, .valid_words = 1, .values = 6, .n_slots = 2},
                     {.valid = 5, .valid_words = 1, .values = 6, .n_slots = 1}};
    pp_slot slots[] = {{.kind = PP_FILE}, {.kind = PP_FILE}, {.kind = PP_FILE}, {.kind = 77}};

    CHECK(pp_plan_fits(WORDS, rows, 2, slots, 3));
    CHECK(!pp_plan_fits(WORDS, rows, 2, slots, 2));
    CHECK(!pp_plan_fits(WORDS, rows, 1, slots, 3));
    rows[1].n_slots = 2; /* the last one is of no kind */
    CHECK(!pp_plan_fits(WORDS, rows, 2, slots, 4));
    rows[1].n_slots = UINT32_MAX;
    CHECK(!pp_plan_fits(WORDS, rows, 2, slots, 1));
}

static void the_highest_column(void)
{
    pp_slot slots[] = {{.kind = PP_FILE, .column = 3}, {.kind = PP_FLAGS, .column = 9, .count = 4},
                       {.kind = PP_FILE, .column = 11}};

    CHECK(pp_plan_columns(slots, 0) == 0);
    CHECK(pp_plan_columns(slots, 1) == 4);
    CHECK(pp_plan_columns(slots, 3) == 13);
}

int main(void)
{
    the_frame_is_long_enough();
    nothing_wraps_around();
    columns_have_valid_bits();
    rows_have_all_the_slots();
    the_highest_column();
    return 0;
}

#include "plan.h"

#include "slot.h"

enum { MAX_VALID_WORDS = 8 }; /* of wire.MAX_COLUMNS columns */

static uint64_t end_of(const pp_slot *slot)
{
    return (uint64_t)slot->column + pp_slot_count(slot);
}

static bool slot_fits(uint32_t words, const pp_row *row, const pp_slot *slot)
{
    uint64_t end = end_of(slot);

    return pp_slot_known(slot) && end <= 64 * (uint64_t)row->valid_words &&
           row->values + end <= words;
}

bool pp_plan_fits(uint32_t words, const pp_row *rows, uint32_t n_rows, const pp_slot *slots,
                  uint32_t n_slots)
{
    uint64_t used = 0;

    for (uint32_t i = 0; i < n_rows; i++) {
        const pp_row *row = &rows[i];

        if ((uint64_t)row->head + PP_HEAD > words || row->valid_words > MAX_VALID_WORDS ||
            (uint64_t)row->valid + row->valid_words > words || row->n_slots > n_slots - used)
            return false;
        for (uint64_t k = used; k < used + row->n_slots; k++)
            if (!slot_fits(words, row, &slots[k]))
                return false;
        used += row->n_slots;
    }
    return used == n_slots;
}

uint32_t pp_plan_columns(const pp_slot *slots, uint32_t n)
{
    uint64_t highest = 0;

    for (uint32_t i = 0; i < n; i++)
        if (end_of(&slots[i]) > highest)
            highest = end_of(&slots[i]);
    return (uint32_t)highest;
}

/*
 * A plan: rows of the frame and the flat list of slots that fill them, as the caller gives it.
 */
#ifndef PP_PLAN_H
#define PP_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "perfprobe.h"
#include "slot.h"

enum { PP_MAX_VALID_WORDS = 8 }; /* wire.MAX_COLUMNS */

static inline bool pp_slot_fits(uint32_t words, const pp_row *row, const pp_slot *slot)
{
    uint64_t end = (uint64_t)slot->column + pp_slot_count(slot);

    return pp_slot_known(slot) && end <= 64 * row->valid_words && row->values + end <= words;
}

/* Whether every row with all its columns lies in the frame, and the slots are as many as said. */
static inline bool pp_plan_fits(uint32_t words, const pp_row *rows, uint32_t n_rows,
                                const pp_slot *slots, uint32_t n_slots)
{
    uint64_t used = 0;

    for (uint32_t i = 0; i < n_rows; i++) {
        const pp_row *row = &rows[i];

        if ((uint64_t)row->head + PP_HEAD > words || row->valid_words > PP_MAX_VALID_WORDS ||
            (uint64_t)row->valid + row->valid_words > words || row->n_slots > n_slots - used)
            return false;
        for (uint64_t k = used; k < used + row->n_slots; k++)
            if (!pp_slot_fits(words, row, &slots[k]))
                return false;
        used += row->n_slots;
    }
    return used == n_slots;
}

/* The highest column, plus one. */
static inline uint32_t pp_plan_columns(const pp_slot *slots, uint32_t n)
{
    uint32_t highest = 0;

    for (uint32_t i = 0; i < n; i++)
        if (slots[i].column + pp_slot_count(&slots[i]) > highest)
            highest = slots[i].column + pp_slot_count(&slots[i]);
    return highest;
}

#endif

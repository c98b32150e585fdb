/*
 * A slot: where a value comes from, or several that are read at once; and a plan: the rows of a
 * frame and the flat list of slots that fill them, as the caller gives them to pp_attach. Source:
 * slot.c.
 */
#ifndef PP_SLOT_H
#define PP_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "perfprobe.h"

enum { PP_FILE_TEXT = 256 }; /* bytes of a file that are looked at */

/* Whether the slot's kind is known, its arguments are possible, and it fills as many columns as
 * its kind does. The functions below take only slots that are. */
bool pp_slot_known(const pp_slot *slot);

/* Bit i: it fills the i-th column from its first. */
uint64_t pp_slot_filled(const pp_slot *slot);

/* 0 or -errno. `value` has room for all columns of the slot; a failure leaves them alone. */
int pp_slot_read(const pp_slot *slot, uint64_t *value);

/* Whether each row with all its columns lies within `words` of a frame, each slot is known and has
 * valid bits for its columns, and the rows have n_slots slots together. */
bool pp_plan_fits(uint32_t words, const pp_row *rows, uint32_t n_rows, const pp_slot *slots,
                  uint32_t n_slots);

/* The highest column of the slots, plus one. */
uint32_t pp_plan_columns(const pp_slot *slots, uint32_t n);

#endif

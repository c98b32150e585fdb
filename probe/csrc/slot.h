/*
 * A slot is the origin of a value, or of several values that are read at once. A plan is the rows
 * of a frame and the flat list of slots that fill them, as the caller passes them to pp_attach.
 * Source: slot.c.
 */
#ifndef PP_SLOT_H
#define PP_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "perfprobe.h"

enum { PP_FILE_TEXT = 256 }; /* number of bytes of a file that are read */

/* Whether the slot's kind exists, its arguments are possible, and its number of columns is that of
 * its kind. The functions below accept only slots that pass this check. */
bool pp_slot_is_valid(const pp_slot *slot);

/* Returns a mask: bit i is set if the slot fills the i-th column from its first. */
uint64_t pp_slot_filled(const pp_slot *slot);

/* Reads the slot. 0 or -errno. `value` has room for all columns of the slot; a failure does not
 * change them. */
int pp_slot_read(const pp_slot *slot, uint64_t *value);

/* Whether each row with all its columns is within `words` of a frame, each slot passes
 * pp_slot_is_valid and has valid bits for its columns, and the rows have n_slots slots in total. */
bool pp_plan_fits(uint32_t words, const pp_row *rows, uint32_t n_rows, const pp_slot *slots,
                  uint32_t n_slots);

/* Returns the highest column of the slots, plus one. */
uint32_t pp_plan_columns(const pp_slot *slots, uint32_t n);

#endif

/* 
 * A slot is one read that a lane repeats in each sample: its origin (a file, an MSR, a perf group)
 * and the columns that it fills. A plan is the rows of a frame and the flat list of slots that fill
 * them, as the caller passes them to pp_attach. Source: slot.c. */
#ifndef PP_SLOT_H
#define PP_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "perfprobe.h"

enum { PP_FILE_TEXT = 256 }; /* number of bytes of a file that are read */

/* Returns whether the slot's kind exists and its arguments and number of columns are possible. The
 * functions below must only be called for valid slots. */
bool pp_slot_is_valid(const pp_slot *slot);

/* Returns a mask: bit i is set if the slot fills the i-th column from its first. */
uint64_t pp_slot_column_mask(const pp_slot *slot);

/* Reads the slot into all its columns of `value`, which stay unchanged on failure (-errno). */
int pp_slot_read(const pp_slot *slot, uint64_t *value);

/* Returns whether all rows and columns are within a frame of `words` words, all slots are valid and
 * have valid bits for their columns, and the rows have n_slots slots in total. */
bool pp_plan_fits(uint32_t words, const pp_row *rows, uint32_t n_rows, const pp_slot *slots,
                  uint32_t n_slots);

/* Returns the highest column of the slots, plus one. */
uint32_t pp_plan_columns(const pp_slot *slots, uint32_t n);

#endif

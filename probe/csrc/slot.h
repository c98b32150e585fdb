/*
 * A slot: where a value comes from, or several that are read at once. Source: slot.c.
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

/* Columns from slot->column to the last that it fills. */
uint32_t pp_slot_count(const pp_slot *slot);

/* Bit i: it fills the i-th column from its first. */
uint64_t pp_slot_filled(const pp_slot *slot);

/* 0 or -errno. `value` has room for all columns of the slot; a failure leaves them alone. */
int pp_slot_read(const pp_slot *slot, uint64_t *value);

#endif

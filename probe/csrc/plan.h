/*
 * A plan: the rows of a frame and the flat list of slots that fill them, as the caller gives them
 * to pp_attach. Source: plan.c.
 */
#ifndef PP_PLAN_H
#define PP_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "perfprobe.h"

/* Whether each row with all its columns lies within `words` of a frame, each slot is of a known
 * kind and has valid bits for its columns, and the rows have n_slots slots together. */
bool pp_plan_fits(uint32_t words, const pp_row *rows, uint32_t n_rows, const pp_slot *slots,
                  uint32_t n_slots);

/* The highest column of the slots, plus one. */
uint32_t pp_plan_columns(const pp_slot *slots, uint32_t n);

#endif

/*
 * The BPF program at the raw tracepoint cpu_idle: its words are in idle_program.c, and their
 * explanation in idle_program.s.
 */
#ifndef PP_IDLE_PROGRAM_H
#define PP_IDLE_PROGRAM_H

#include <linux/bpf.h>
#include <stdint.h>

enum {
    PP_IDLE_EXITED = -1,
    PP_IDLE_SWAPS = 8, /* attempts to swap a core's word before the update is dropped */
    PP_IDLE_INSNS = 160 /* upper bound of instructions */
};

/* Writes the program for the rows in `map`, with `swaps` attempts. Returns its number of
 * instructions; `out` has room for PP_IDLE_INSNS. */
uint32_t pp_idle_program(struct bpf_insn *out, int map, int32_t swaps);

#endif

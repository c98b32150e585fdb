/* 
 * The BPF program that counts idle transitions, at the raw tracepoint cpu_idle. idle_program.c has
 * its machine code, idle_program.s the same code as a commented listing. */
#ifndef PP_IDLE_PROGRAM_H
#define PP_IDLE_PROGRAM_H

#include <linux/bpf.h>
#include <stdint.h>

enum {
    PP_IDLE_EXITED = -1, /* the state in the tracepoint when a CPU leaves idle */
    PP_IDLE_SWAPS = 8, /* attempts to swap a core's word before the update is dropped */
    PP_IDLE_INSNS = 160 /* upper bound of instructions */
};

/* Writes the program to `out`, for rows in the map with descriptor `map` and with `swaps` attempts
 * of the compare-and-swap. Returns its number of instructions, at most PP_IDLE_INSNS. */
uint32_t pp_idle_program(struct bpf_insn *out, int map, int32_t swaps);

#endif

/* 
 * The chains of instructions that pp_ramp_run runs. Source: ramp_chains.c, which also defines
 * pp_ramp_isas of perfprobe.h. */
#ifndef PP_RAMP_CHAINS_H
#define PP_RAMP_CHAINS_H

#include <stdint.h>

#include "perfprobe.h"

/* A function that runs `blocks` blocks of PP_RAMP_BLOCK steps. */
typedef void (*pp_ramp_chain)(uint64_t blocks);

/* The chains by PP_RAMP_ ISA; one whose ISA is not in pp_ramp_isas() is killed by SIGILL. */
extern const pp_ramp_chain pp_ramp_chains[PP_RAMP_ISAS];

#endif

/*
 * RDPMC that may be refused. It faults where it was switched off after the events were opened (0
 * written to the PMU's `rdpmc` file, which no page of an event tells), and on a CPU of another type
 * that lacks the counter: a thread may be moved there between its look at the page and RDPMC.
 */
#ifndef PP_RDPMC_H
#define PP_RDPMC_H

#include <stdint.h>

/* Handles the fault, in the whole process from now on. All other faults go to the handler that was
 * there before. A thread that blocks SIGSEGV is ended by the kernel, handler or not. */
void pp_rdpmc_guard(void);

/* 0, or not 0 if the CPU refused it; then `count` is left alone. Needs the guard. */
int pp_rdpmc(uint32_t counter, uint64_t *count);

#endif

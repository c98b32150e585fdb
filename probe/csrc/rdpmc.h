/*
 * RDPMC that may be refused. It faults if it was switched off after the events were opened (0
 * written to the PMU's `rdpmc` file, which no event's page shows), and on a CPU of another type
 * that lacks the counter: the thread may be moved there between its read of the page and RDPMC.
 */
#ifndef PP_RDPMC_H
#define PP_RDPMC_H

#include <stdint.h>

/* Handles the fault in the whole process from now on. All other faults go to the previous handler.
 * If a thread blocks SIGSEGV, the kernel ends the process in spite of the handler. */
void pp_rdpmc_guard(void);

/* Executes RDPMC. Returns 0, or not 0 if the CPU refused it; then `count` is unchanged. Needs the
 * guard. */
int pp_rdpmc(uint32_t counter, uint64_t *count);

#endif

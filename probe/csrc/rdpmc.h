/* 
 * RDPMC with a check whether the CPU refuses it. The instruction faults if RDPMC was disabled after
 * the events were opened (0 was written to the PMU's `rdpmc` file), and on a CPU of another type
 * without that counter, to which the thread may be moved after it has read the event's page. */
#ifndef PP_RDPMC_H
#define PP_RDPMC_H

#include <stdint.h>

/* Installs a handler of SIGSEGV for faults of pp_rdpmc; other faults are passed to the previous
 * handler. Threads that call pp_rdpmc must not block SIGSEGV, or the kernel kills the process. */
void pp_rdpmc_guard(void);

/* Executes RDPMC. Returns 0, or not 0 if the CPU refused it; `count` is unchanged then. Must be
 * called after pp_rdpmc_guard. */
int pp_rdpmc(uint32_t counter, uint64_t *count);

#endif

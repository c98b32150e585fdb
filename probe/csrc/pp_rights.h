/* Capabilities of threads: declarations for Python. Source: rights.c. */
#ifndef PP_SHARED_RIGHTS_H
#define PP_SHARED_RIGHTS_H

#include <stdint.h>

/* cffi: begin */

/* Drops all capabilities of the calling thread, and of threads that it starts later, except those
 * in `keep` (bit i: capability i). Executing a program cannot bring them back. */
int pp_keep_capabilities(uint64_t keep);

/* cffi: end */

#endif

/* Rights: what Python sees. Source: rights.c. */
#ifndef PP_SHARED_RIGHTS_H
#define PP_SHARED_RIGHTS_H

#include <stdint.h>

/* cffi: begin */

/* The calling thread, and threads that it starts later, have no capability from now on but those of
 * `keep` (bit i: capability i) that they have now, and cannot get others by executing a program. */
int pp_rights_keep(uint64_t keep);

/* cffi: end */

#endif

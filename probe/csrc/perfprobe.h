/* 
 * Includes all headers of the C helper that Python uses, one for each subject. cffi reads the
 * declarations between the two "cffi" marks of a header, with enums and structs, so that each
 * number is defined once.
 *
 * A result of type int is 0 (or a count) or -errno, unless a comment states otherwise. No function
 * prints. The only global variable is the previous signal handler in rdpmc.c. */
#ifndef PERFPROBE_H
#define PERFPROBE_H

#include "pp_cpu.h"
#include "pp_idle.h"
#include "pp_loops.h"
#include "pp_perf.h"
#include "pp_ramp.h"
#include "pp_rights.h"
#include "pp_sampler.h"
#include "pp_timers.h"

#endif

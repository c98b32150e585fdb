/*
 * Everything that Python uses, one header for each subject. cffi reads the declarations between
 * two marks. All enums and structs that Python shares are there, too, so that each number is
 * defined once.
 *
 * A result of type int is 0 (or a count) or -errno, unless a comment states otherwise. No function
 * prints. There is one global variable: rdpmc.c keeps the signal handler that was installed before
 * its own.
 */
#ifndef PERFPROBE_H
#define PERFPROBE_H

#include "pp_cpu.h"
#include "pp_idle.h"
#include "pp_known.h"
#include "pp_perf.h"
#include "pp_ramp.h"
#include "pp_rights.h"
#include "pp_sampler.h"
#include "pp_timers.h"

#endif

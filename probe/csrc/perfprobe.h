/*
 * All that Python sees, a header for each subject. cffi reads the declarations between their two
 * marks. All enums and structs that Python shares are there as well, so that a number has one place.
 *
 * A result of type int is 0 (or a count) or -errno, unless it says otherwise. Nothing prints. There
 * is one global: rdpmc.c keeps the handler of a signal that was there before its own.
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

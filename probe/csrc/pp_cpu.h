/* The CPU: declarations for Python. Source: cpu.c. */
#ifndef PP_SHARED_CPU_H
#define PP_SHARED_CPU_H

#include <stdint.h>

/* cffi: begin */

uint64_t pp_stamp(void); /* Returns the present TSC. */
int pp_current_cpu(void);

/* Executes CPUID on the caller's present CPU and writes eax, ebx, ecx, edx to `out`. */
void pp_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t *registers);

/* cffi: end */

#endif

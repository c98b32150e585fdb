/* The CPU: declarations for Python. Source: cpu.c. */
#ifndef PP_SHARED_CPU_H
#define PP_SHARED_CPU_H

#include <stdint.h>

/* cffi: begin */

uint64_t pp_stamp(void); /* Reads the TSC. */
int pp_current_cpu(void);

/* Executes CPUID on the caller's CPU and writes eax, ebx, ecx and edx to `registers`. */
void pp_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t *registers);

/* cffi: end */

#endif

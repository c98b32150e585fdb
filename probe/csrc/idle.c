/* 
 * Loads the BPF program of idle_program.h with bpf(2), attaches it to the tracepoint cpu_idle, and
 * maps its rows (idle_rows.h). The kernel removes everything when the process ends. The descriptors
 * are close-on-exec by default. */
#define _GNU_SOURCE
#include "idle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu.h"
#include "idle_program.h"
#include "idle_rows.h"

enum { CLOCK_RUNS = 8 }; /* number of runs that compare the kernel's clock with ours */

static const char NAME[] = "pp_idle"; /* name of map and program, for example in bpftool's lists */

/* Calls bpf(2). Callers must clear all of `attr` by memset: the kernel refuses unknown bytes that
 * are not 0, and an initializer may leave some. */
static int bpf(int command, union bpf_attr *attr)
{
    long rc = syscall(__NR_bpf, command, attr, sizeof *attr);

    return rc < 0 ? -errno : (int)rc;
}

/* Loads the program; if that fails, once more with a log. The log makes the verifier slow, and it
 * is an error if it is too small. */
static int load_program(struct pp_idle *idle, int32_t swaps, char *log, uint32_t log_size)
{
    struct bpf_insn program[PP_IDLE_INSNS];
    union bpf_attr attr;
    int tries = 5; /* a pending signal interrupts the verifier */
    size_t used;

    memset(&attr, 0, sizeof attr);
    attr.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT;
    attr.insn_cnt = pp_idle_program(program, idle->map, swaps);
    attr.insns = (uintptr_t)program;
    attr.license = (uintptr_t) "Dual MIT/GPL";
    memcpy(attr.prog_name, NAME, sizeof NAME);
    do
        idle->program = bpf(BPF_PROG_LOAD, &attr);
    while (idle->program == -EAGAIN && --tries);
    if (idle->program < 0) {
        used = (size_t)snprintf(log, log_size, "BPF_PROG_LOAD\n");
        if (used + 128 <= log_size) { /* the kernel's minimum size of a log */
            attr.log_level = 1;
            attr.log_buf = (uintptr_t)log + used;
            attr.log_size = log_size - (uint32_t)used;
            bpf(BPF_PROG_LOAD, &attr); /* only for the log; the result is that of the first call */
        }
    }
    return idle->program < 0 ? idle->program : 0;
}

static int attach_program(struct pp_idle *idle, char *log, uint32_t log_size)
{
    union bpf_attr attr;

    memset(&attr, 0, sizeof attr);
    attr.raw_tracepoint.name = (uintptr_t) "cpu_idle";
    attr.raw_tracepoint.prog_fd = (uint32_t)idle->program;
    idle->link = bpf(BPF_RAW_TRACEPOINT_OPEN, &attr);
    if (idle->link < 0)
        snprintf(log, log_size, "BPF_RAW_TRACEPOINT_OPEN\n");
    return idle->link < 0 ? idle->link : 0;
}

static int make_map(struct pp_idle *idle, char *log, uint32_t log_size)
{
    union bpf_attr attr;

    memset(&attr, 0, sizeof attr);
    attr.map_type = BPF_MAP_TYPE_ARRAY;
    attr.key_size = sizeof(uint32_t);
    attr.value_size = PP_IDLE_ROW;
    attr.max_entries = 1 + idle->cpus + idle->cores;
    attr.map_flags = BPF_F_MMAPABLE;
    memcpy(attr.map_name, NAME, sizeof NAME);
    snprintf(log, log_size, "BPF_MAP_CREATE\n");
    idle->map = bpf(BPF_MAP_CREATE, &attr);
    if (idle->map < 0)
        return idle->map;
    snprintf(log, log_size, "mmap\n");
    idle->size = (size_t)attr.max_entries * PP_IDLE_ROW;
    idle->base = mmap(NULL, idle->size, PROT_READ | PROT_WRITE, MAP_SHARED, idle->map, 0);
    return idle->base == MAP_FAILED ? -errno : 0;
}

/* Initialises the rows: no state is known, but an LP that a core lacks is idle. `ahead_ns` is the
 * kernel's clock minus this process's. -EEXIST: two CPUs are the same LP of one core. */
static int init_rows(struct pp_idle *idle, const pp_idle_thread *threads, uint32_t n,
                     int64_t ahead_ns)
{
    struct pp_idle_head *head = idle->base;
    struct pp_idle_cpu *cpus = (struct pp_idle_cpu *)idle->base + 1;
    struct pp_idle_core *cores = (struct pp_idle_core *)(cpus + idle->cpus);

    memset(idle->base, 0, idle->size);
    head->start_ns = pp_clock_ns(CLOCK_MONOTONIC) + (uint64_t)ahead_ns;
    head->ahead_ns = ahead_ns;
    head->cpus = idle->cpus;
    head->cores = idle->cores;
    for (uint32_t i = 0; i < n; i++) {
        struct pp_idle_cpu *cpu = &cpus[threads[i].cpu];
        struct pp_idle_core *core = &cores[threads[i].core];
        uint64_t word = pp_read_once(&core->word);
        uint64_t known = (uint64_t)4 << threads[i].lp;

        if (word == 0)
            word = head->start_ns << PP_IDLE_SHIFT | PP_IDLE_ALL_KNOWN;
        if (cpu->core || !(word & known))
            return -EEXIST;
        pp_write_once(&core->word, word & ~known);
        pp_write_once(&cpu->word, head->start_ns << PP_IDLE_SHIFT);
        cpu->core = 1 + idle->cpus + threads[i].core;
        cpu->bits = 5u << threads[i].lp;
    }
    return 0;
}

/* 
 * Measures how far the kernel's clock, which the program reads, is ahead of this process's clock;
 * they differ in a time namespace. The program is run a few times, and the time that it stores is
 * compared with this process's clock before and after each run. If all runs fit equal clocks, they
 * are equal; else the shortest run gives the difference to about 1 us. */
static int compare_clocks(const struct pp_idle *idle, uint32_t cpu, int64_t *ahead_ns)
{
    const struct pp_idle_cpu *row = pp_idle_cpu(idle->base, cpu);
    uint64_t shortest = UINT64_MAX;
    int64_t ahead = 0;
    bool equal = true;

    for (int i = 0; i < CLOCK_RUNS; i++) {
        uint64_t before = pp_clock_ns(CLOCK_MONOTONIC);
        int rc = pp_idle_run(idle, cpu, 0, false);
        uint64_t after = pp_clock_ns(CLOCK_MONOTONIC);
        uint64_t stamp = pp_load_acquire(&row->word) >> PP_IDLE_SHIFT;

        if (rc)
            return rc;
        equal = equal && before <= stamp && stamp <= after;
        if (after - before < shortest) {
            shortest = after - before;
            ahead = (int64_t)(stamp - before - shortest / 2);
        }
    }
    *ahead_ns = equal ? 0 : ahead;
    return 0;
}

/* Initialises the rows by the kernel's clock and makes them read-only for this process. */
static int start_rows(struct pp_idle *idle, const pp_idle_thread *threads, uint32_t n, char *log,
                      uint32_t log_size)
{
    int64_t ahead_ns = 0;
    int rc = compare_clocks(idle, threads[0].cpu, &ahead_ns);

    if (rc) {
        snprintf(log, log_size, "BPF_PROG_TEST_RUN\n");
        return rc;
    }
    rc = init_rows(idle, threads, n, ahead_ns);
    if (rc == 0 && mprotect(idle->base, idle->size, PROT_READ))
        rc = -errno;
    if (rc)
        snprintf(log, log_size, "mprotect\n");
    return rc;
}

int pp_idle_make(const pp_idle_thread *threads, uint32_t n, int32_t swaps, pp_idle **out, char *log,
                 uint32_t log_size)
{
    struct pp_idle *idle;
    int rc;

    snprintf(log, log_size, "arguments\n");
    idle = calloc(1, sizeof *idle);
    if (idle == NULL)
        return -ENOMEM;
    idle->map = idle->program = idle->link = -1;
    idle->base = MAP_FAILED;
    rc = n ? 0 : -EINVAL;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        const pp_idle_thread *p = &threads[i];

        if (p->cpu >= PP_IDLE_MAX || p->core >= PP_IDLE_MAX || p->lp > 1)
            rc = -EINVAL;
        if (p->cpu >= idle->cpus)
            idle->cpus = p->cpu + 1;
        if (p->core >= idle->cores)
            idle->cores = p->core + 1;
    }
    if (rc == 0)
        rc = make_map(idle, log, log_size);
    if (rc == 0)
        rc = init_rows(idle, threads, n, 0);
    if (rc == 0)
        rc = load_program(idle, swaps, log, log_size);
    if (rc == 0)
        rc = start_rows(idle, threads, n, log, log_size);
    *out = idle;
    return rc;
}

int pp_idle_open(const pp_idle_thread *threads, uint32_t n, pp_idle **out, char *log,
                 uint32_t log_size)
{
    pp_idle *idle = NULL;
    int rc = pp_idle_make(threads, n, PP_IDLE_SWAPS, &idle, log, log_size);

    if (rc == 0)
        rc = attach_program(idle, log, log_size);
    if (rc) {
        pp_idle_close(idle);
        return rc;
    }
    *out = idle;
    return 0;
}

void pp_idle_close(pp_idle *idle)
{
    if (idle == NULL)
        return;
    /* The link is closed first, so that the program stops. */
    if (idle->link >= 0)
        close(idle->link);
    if (idle->program >= 0)
        close(idle->program);
    if (idle->base != MAP_FAILED)
        munmap(idle->base, idle->size);
    if (idle->map >= 0)
        close(idle->map);
    free(idle);
}

/* Uses BPF_PROG_TEST_RUN, so that only the program writes the rows. */
int pp_idle_run(const pp_idle *idle, uint32_t cpu, uint32_t state, bool on_cpu)
{
    uint64_t context[2] = {state, cpu};
    union bpf_attr attr;

    if (pp_idle_cpu(idle->base, cpu) == NULL)
        return -ENOENT;
    memset(&attr, 0, sizeof attr);
    attr.test.prog_fd = (uint32_t)idle->program;
    attr.test.ctx_in = (uintptr_t)context;
    attr.test.ctx_size_in = sizeof context;
    if (on_cpu) {
        attr.test.flags = BPF_F_TEST_RUN_ON_CPU;
        attr.test.cpu = cpu;
    }
    return bpf(BPF_PROG_TEST_RUN, &attr);
}

int pp_idle_mark_busy(const pp_idle *idle, uint32_t cpu)
{
    return pp_idle_run(idle, cpu, (uint32_t)PP_IDLE_EXITED, true);
}

int pp_idle_offline(const pp_idle *idle, uint32_t cpu)
{
    return pp_idle_run(idle, cpu, 0, false);
}

const void *pp_idle_base(const pp_idle *idle)
{
    return idle->base;
}

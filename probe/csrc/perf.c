#define _GNU_SOURCE
#include "perf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu.h"
#include "rdpmc.h"

enum {
    SPIN_TURNS = 1000,         /* iterations of a spin loop between two reads of the clock */
    TRIAL_LIMIT_NS = 100000000, /* maximum elapsed time of a trial, if other tasks have the CPU */
    SAMPLE_DEPTH = 8            /* maximum number of kernel stack frames in a sample */
};

/* --- operations on real hardware -------------------------------------------------------------- */

static int machine_open(const struct perf_event_attr *attr, int cpu, int leader)
{
    return (int)syscall(SYS_perf_event_open, attr, -1, cpu, leader, PERF_FLAG_FD_CLOEXEC);
}

static uint64_t machine_rdtsc(void)
{
    return __builtin_ia32_rdtsc();
}

static const struct pp_perf_ops machine = {machine_open, read, pp_rdpmc, machine_rdtsc};

/* --- opening ---------------------------------------------------------------------------------- */

static struct perf_event_attr make_attr(const pp_event *event, int32_t leader)
{
    struct perf_event_attr attr;

    memset(&attr, 0, sizeof attr);
    /* Every kernel accepts the first size; config2 is the only later field used. */
    attr.size = event->config2 ? PERF_ATTR_SIZE_VER1 : PERF_ATTR_SIZE_VER0;
    attr.type = event->type;
    attr.config = event->config;
    attr.config1 = event->config1;
    attr.config2 = event->config2;
    attr.read_format =
        PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    /* A leader starts disabled: siblings that join a running leader would count zeros. */
    attr.disabled = leader < 0;
    attr.pinned = leader < 0 && (event->flags & PP_EVENT_PINNED) != 0;
    attr.exclude_user = (event->flags & PP_EVENT_KERNEL) != 0;
    attr.exclude_kernel = attr.exclude_hv = (event->flags & PP_EVENT_USER) != 0;
    attr.exclude_guest = (event->flags & PP_EVENT_HOST) != 0;
    if (event->period) {
        attr.size = PERF_ATTR_SIZE_VER5;
        attr.sample_period = event->period;
        attr.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_CALLCHAIN;
        attr.exclude_callchain_user = 1;
        attr.sample_max_stack = SAMPLE_DEPTH;
    }
    return attr;
}

int pp_perf_open_by(const struct pp_perf_ops *ops, const pp_event *event, int32_t cpu,
                    int32_t leader)
{
    struct perf_event_attr attr = make_attr(event, leader);
    int fd = ops->open(&attr, cpu, leader);

    return fd < 0 ? -errno : fd;
}

int pp_perf_open(const pp_event *event, int32_t cpu, int32_t leader)
{
    return pp_perf_open_by(&machine, event, cpu, leader);
}

int pp_perf_enable(int32_t leader)
{
    return ioctl(leader, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP) ? -errno : 0;
}

/* --- groups ----------------------------------------------------------------------------------- */

static void unmap_pages(struct pp_perf_group *group)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);

    for (uint32_t i = 0; i < group->n; i++)
        if (group->pages[i] != NULL)
            munmap((void *)(uintptr_t)group->pages[i], size);
    memset(group->pages, 0, sizeof group->pages);
}

/* Maps an event's page. Returns whether the page allows RDPMC. */
static bool map_page(struct pp_perf_group *group, uint32_t i)
{
    void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, group->fds[i], 0);

    if (page == MAP_FAILED)
        return false;
    group->pages[i] = page;
    return group->pages[i]->cap_user_rdpmc && group->pages[i]->cap_user_time;
}

/*
 * Maps the pages of all events, or of none if a page cannot be mapped (locked memory is limited) or
 * does not allow RDPMC (the PMU's `rdpmc` file is 0); the group is then read by read(). If 0 is
 * written to that file later, the pages do not show it, but RDPMC is refused, and read() is used.
 */
static void map_pages(struct pp_perf_group *group)
{
    for (uint32_t i = 0; i < group->n; i++)
        if (!map_page(group, i)) {
            unmap_pages(group);
            return;
        }
    group->uses_rdpmc = true;
    pp_rdpmc_guard();
}

int pp_perf_group_place(pp_perf_group *group, uint64_t columns)
{
    uint32_t times = group->timed ? PP_PERF_TIMES : 0;

    if ((uint32_t)__builtin_popcountll(columns) != group->n + times ||
        ~columns & ((1u << times) - 1))
        return -EINVAL;
    group->filled = columns;
    group->width = PP_PERF_WIDTH - (uint32_t)__builtin_clzll(columns);
    return 0;
}

int pp_perf_group_new(const int32_t *fds, uint32_t n, int timed, int mapped, pp_perf_group **out)
{
    struct pp_perf_group *group;

    if (n == 0 || n > PP_PERF_EVENTS)
        return -EINVAL;
    group = calloc(1, sizeof *group);
    if (group == NULL)
        return -ENOMEM;
    group->ops = &machine;
    group->n = n;
    group->timed = timed != 0;
    for (uint32_t i = 0; i < n; i++)
        group->fds[i] = fds[i];
    if (mapped)
        map_pages(group);
    *out = group;
    return pp_perf_group_place(group, ((uint64_t)1 << (n + (timed ? PP_PERF_TIMES : 0))) - 1);
}

void pp_perf_group_free(pp_perf_group *group)
{
    if (group == NULL)
        return;
    unmap_pages(group);
    for (uint32_t i = group->n; i > 0; i--) /* the leader is closed last */
        close(group->fds[i - 1]);
    free(group);
}

/* --- trials ----------------------------------------------------------------------------------- */

static void spin(uint64_t cpu_ns)
{
    uint64_t start = pp_clock_ns(CLOCK_MONOTONIC);
    uint64_t cpu_start_ns = pp_clock_ns(CLOCK_THREAD_CPUTIME_ID);

    do {
        for (int i = 0; i < SPIN_TURNS; i++)
            __asm__ volatile("" ::: "memory");
    } while (pp_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_start_ns < cpu_ns &&
             pp_clock_ns(CLOCK_MONOTONIC) - start < TRIAL_LIMIT_NS);
}

int pp_perf_trial(const pp_perf_group *group, uint64_t cpu_ns, uint64_t *increases, pp_trial *out)
{
    uint64_t before[PP_PERF_WIDTH] = {0}, ns, cpu_start_ns;
    int rc;

    /* The clocks are read after the counters: if a hypervisor takes the CPU away between the two,
     * that time is not part of the trial, because counters may not advance in it. */
    rc = pp_perf_read(group, before);
    cpu_start_ns = pp_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    ns = pp_clock_ns(CLOCK_MONOTONIC_RAW);
    out->ticks = pp_rdtsc();
    if (rc == 0)
        spin(cpu_ns);
    if (rc == 0)
        rc = pp_perf_read(group, increases);
    out->ticks = pp_rdtsc() - out->ticks;
    out->ns = pp_clock_ns(CLOCK_MONOTONIC_RAW) - ns;
    out->cpu_ns = pp_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_start_ns;
    for (uint32_t i = 0; i < group->width && rc == 0; i++)
        increases[i] -= before[i];
    return rc;
}

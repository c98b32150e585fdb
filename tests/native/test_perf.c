/*
 * Tests groups of perf events with simulated pages and buffers, attributes of opened events, and a
 * group of the kernel's software events.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "cpu.h"
#include "cpus.h"
#include "perf.h"
#include "slot.h"

enum { WIDTH = 48, LEADER = 100 };

static struct perf_event_mmap_page pages[3];
static uint64_t pmc[3];  /* the counters; page i is on counter i */
static int rdpmcs, reads;
static bool rdpmc_refused;
static int lock_changes; /* changes of the lock of page 0 left, one per read of a counter */
static int lock_changes_at = -1; /* the counter whose read changes it; -1: any */

static int fake_rdpmc(uint32_t counter, uint64_t *count)
{
    rdpmcs++;
    if (lock_changes > 0 && (lock_changes_at < 0 || lock_changes_at == (int)counter)) {
        lock_changes--;
        pages[0].lock += 2;
    }
    CHECK(counter < 3);
    *count = pmc[counter];
    return rdpmc_refused;
}

static uint64_t tsc;

static uint64_t fake_rdtsc(void)
{
    return tsc;
}

static uint64_t answer[8];
static ssize_t answered; /* bytes, or -errno */
static uint64_t read_ns; /* CPU time of a read */

static void work(uint64_t ns)
{
    uint64_t start_ns = pp_clock_ns(CLOCK_THREAD_CPUTIME_ID);

    while (pp_clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns < ns)
        ;
}

static ssize_t fake_read(int fd, void *buffer, size_t size)
{
    reads++;
    work(read_ns);
    CHECK(fd == LEADER);
    if (answered < 0) {
        errno = (int)-answered;
        return -1;
    }
    CHECK((size_t)answered <= size);
    memcpy(buffer, answer, (size_t)answered);
    return answered;
}

static struct perf_event_attr opened;
static int opened_leader, opened_fd = 77, open_errno;

static int fake_open(const struct perf_event_attr *attr, int cpu, int leader)
{
    CHECK(cpu == 5);
    opened = *attr;
    opened_leader = leader;
    errno = open_errno;
    return open_errno ? -1 : opened_fd;
}

static const struct pp_perf_ops fake = {fake_open, fake_read, fake_rdpmc, fake_rdtsc};

/* Three events on counters 0 to 2 at 1000, 2000 and 3000; read() would return 10, 20, 30. */
static struct pp_perf_group make(bool direct)
{
    struct pp_perf_group group = {.ops = &fake, .n = 3, .width = 5, .filled = 31, .timed = true,
                                  .uses_rdpmc = direct};
    const uint64_t file_content[] = {3, 900, 800, 10, 20, 30};

    memset(pages, 0, sizeof pages);
    for (int i = 0; i < 3; i++) {
        pages[i].index = (uint32_t)i + 1;
        pages[i].offset = 1000 * (i + 1);
        pages[i].pmc_width = WIDTH;
        pages[i].cap_user_rdpmc = 1;
        pages[i].cap_user_time = 1;
        pages[i].time_enabled = 50 + (uint64_t)i; /* a group uses those of its first page */
        pages[i].time_running = 40 + (uint64_t)i;
        pmc[i] = 0;
        group.pages[i] = &pages[i];
        group.fds[i] = LEADER + i;
    }
    memcpy(answer, file_content, sizeof file_content);
    answered = sizeof file_content;
    rdpmcs = reads = lock_changes = 0;
    lock_changes_at = -1;
    tsc = 0;
    return group;
}

static uint64_t count_of(uint64_t raw, uint32_t width, int64_t offset)
{
    uint64_t count = 0;

    make(true);
    pmc[0] = raw;
    pages[0].pmc_width = (uint16_t)width;
    pages[0].offset = offset;
    CHECK(pp_perf_page_read(&fake, &pages[0], NULL, &count) == 0);
    return count;
}

static void narrow_counters_are_sign_extended(void)
{
    CHECK(count_of(5, 48, 1000) == 1005);
    CHECK(count_of(0xffffffffffffu, 48, 1000) == 999);  /* -1 in 48 bits */
    CHECK(count_of(0x800000000000u, 48, (int64_t)1 << 47) == 0);
    CHECK(count_of(0x7fffffffffffu, 48, 0) == 0x7fffffffffffu);
    CHECK(count_of(0xffffffffffu, 40, 1000) == 999);
    CHECK(count_of(0x8000000000u, 40, (int64_t)1 << 39) == 0);
    CHECK(count_of(0xffffffffffu, 48, 0) == 0xffffffffffu); /* 40 bits are positive in 48 */
    CHECK(count_of(7, 48, -2) == 5);
    CHECK(count_of(7, 48, -100) == (uint64_t)-93);
    CHECK(count_of(UINT64_MAX, 64, 3) == 2);
    CHECK(count_of((uint64_t)1 << 63, 64, 0) == (uint64_t)1 << 63);
    CHECK(count_of(9, 0, 1) == 10); /* a page without a width */
}

static void a_page_that_allows_no_rdpmc_is_not_read(void)
{
    uint64_t count, times[2];

    make(true);
    pages[0].index = 0;
    CHECK(pp_perf_page_read(&fake, &pages[0], times, &count) == -EAGAIN && rdpmcs == 0);
    make(true);
    pages[0].cap_user_rdpmc = 0;
    CHECK(pp_perf_page_read(&fake, &pages[0], times, &count) == -EAGAIN && rdpmcs == 0);
    make(true);
    pages[0].cap_user_time = 0;
    CHECK(pp_perf_page_read(&fake, &pages[0], times, &count) == -EAGAIN && rdpmcs == 0);
    make(true);
    rdpmc_refused = true;
    CHECK(pp_perf_page_read(&fake, &pages[0], times, &count) == -EAGAIN && rdpmcs == 1);
    rdpmc_refused = false;
}

static void a_changed_lock_repeats_the_read(void)
{
    uint64_t count;

    make(true);
    lock_changes = PP_PERF_TRIES - 1;
    CHECK(pp_perf_page_read(&fake, &pages[0], NULL, &count) == 0);
    CHECK(rdpmcs == PP_PERF_TRIES && count == 1000);
    make(true);
    lock_changes = 1000;
    CHECK(pp_perf_page_read(&fake, &pages[0], NULL, &count) == -EAGAIN);
    CHECK(rdpmcs == PP_PERF_TRIES);
    make(true);
    pages[0].lock = 7; /* another CPU is writing */
    CHECK(pp_perf_page_read(&fake, &pages[0], NULL, &count) == -EAGAIN);
}

static void times_advance_after_the_page_was_written(void)
{
    uint64_t count, times[2];

    make(true);
    pages[0].time_mult = 33;
    pages[0].time_shift = 5;
    pages[0].time_offset = (uint64_t)-13000; /* the page was written at 13,000 ns */
    tsc = ((uint64_t)1 << 63) + 401 * 32 + 31; /* 13,264.97 ns; the product overflows */
    pages[0].time_offset -= ((uint64_t)1 << 58) * 33;
    CHECK(pp_perf_page_read(&fake, &pages[0], times, &count) == 0);
    CHECK(times[0] == 50 + 264 && times[1] == 40 + 264); /* running is still less than enabled */
    pages[0].time_running = 0;
    CHECK(pp_perf_page_read(&fake, &pages[0], times, &count) == 0 && times[1] == 264);
}

/* --- groups ----------------------------------------------------------------------------------- */

static void check_read(const struct pp_perf_group *group, bool by_page)
{
    const uint64_t page_content[] = {50, 40, 1000, 2000, 3000};
    const uint64_t file_content[] = {900, 800, 10, 20, 30};
    uint64_t out[5] = {0};

    CHECK(pp_perf_read(group, out) == 0);
    CHECK(memcmp(out, by_page ? page_content : file_content, sizeof out) == 0);
    CHECK(reads == !by_page);
}

static void a_group_is_read_by_all_pages_or_by_read(void)
{
    struct pp_perf_group group = make(true);
    uint64_t out[5];

    check_read(&group, true);
    group = make(false);
    check_read(&group, false);
    CHECK(rdpmcs == 0);
    group = make(true);
    pages[2].index = 0; /* with one event off its counter, read() reads all */
    check_read(&group, false);
    group = make(true);
    lock_changes = 1; /* the group was taken off and put back between its first and last event */
    lock_changes_at = 2;
    check_read(&group, true);
    CHECK(rdpmcs == 6);
    group = make(true);
    lock_changes = 1000;
    lock_changes_at = 2;
    check_read(&group, false);
    CHECK(rdpmcs == 3 * PP_PERF_TRIES);
    CHECK(pp_perf_read_pages(&group, out) == -EAGAIN);
    group = make(true);
    group.timed = false;
    CHECK(pp_perf_read_pages(&group, out) == 0 && out[0] == 1000 && out[2] == 3000);
}

static void results_of_read_are_checked(void)
{
    const int errors[] = {ENODEV, EINTR, ENOSPC, EIO, EBADF};
    struct pp_perf_group group = make(false);
    uint64_t out[5];

    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        answered = -errors[i];
        CHECK(pp_perf_read(&group, out) == -errors[i]);
    }
    for (answered = 0; answered < 48; answered += 8) /* 0: the kernel has abandoned the group */
        CHECK(pp_perf_read(&group, out) == -EIO);
    answered = 47;
    CHECK(pp_perf_read(&group, out) == -EIO);
    answered = 48;
    answer[0] = 2; /* not the group that was opened */
    CHECK(pp_perf_read(&group, out) == -EIO);
    answer[0] = 3;
    answer[2] = 0; /* never on the counters, which the times show */
    CHECK(pp_perf_read(&group, out) == 0 && out[0] == 900 && out[1] == 0 && out[4] == 30);
    group.timed = false;
    group.filled = 7;
    group.width = 3;
    CHECK(pp_perf_read(&group, out) == 0 && out[0] == 10 && out[2] == 30);
}

static void columns_may_have_gaps(void)
{
    struct pp_perf_group group = make(true);
    pp_slot slot = {.kind = PP_PERF, .column = 60, .count = 9, .group = &group};
    pp_row row = {.head = 0, .valid = 5, .valid_words = 2, .values = 7, .n_slots = 1};
    uint64_t out[10];

    CHECK(pp_perf_group_place(&group, 0x11) == -EINVAL);  /* too few */
    CHECK(pp_perf_group_place(&group, 0x1f << 1) == -EINVAL); /* the times are not first */
    CHECK(pp_perf_group_place(&group, 0x12b) == 0); /* 0 1 3 5 8 */
    CHECK(pp_perf_columns(&group) == 9);
    for (int i = 0; i < 10; i++)
        out[i] = 42;
    CHECK(pp_slot_read(&slot, out) == 0);
    CHECK(out[0] == 50 && out[1] == 40 && out[3] == 1000 && out[5] == 2000 && out[8] == 3000);
    CHECK(out[2] == 42 && out[4] == 42 && out[6] == 42 && out[7] == 42 && out[9] == 42);
    CHECK(pp_slot_column_mask(&slot) == 0x12b);
    CHECK(pp_plan_columns(&slot, 1) == 69);
    CHECK(pp_plan_fits(76, &row, 1, &slot, 1));
    CHECK(!pp_plan_fits(75, &row, 1, &slot, 1)); /* the last column would be past the frame */
    row.valid_words = 1;
    CHECK(!pp_plan_fits(200, &row, 1, &slot, 1));
    row.valid_words = 2;
    slot.count = 8; /* the group would write one column too many */
    CHECK(!pp_plan_fits(200, &row, 1, &slot, 1));
    slot.count = 9;
    slot.group = NULL;
    CHECK(!pp_plan_fits(200, &row, 1, &slot, 1));
}

/* --- pages ------------------------------------------------------------------------------------ */

enum { PAGED = 1000 }; /* the first of three descriptors whose pages are simulated */

static int mapped, unmappable; /* number of pages that are mapped; the page that cannot be, or -1 */

void *__real_mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset);

void *__wrap_mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset)
{
    if (fd < PAGED)
        return __real_mmap(at, size, rights, flags, fd, offset);
    CHECK(size == (size_t)sysconf(_SC_PAGESIZE) && rights == PROT_READ && offset == 0);
    if (fd - PAGED == unmappable)
        return MAP_FAILED;
    mapped++;
    return &pages[fd - PAGED];
}

int __real_munmap(void *at, size_t size);
int __wrap_munmap(void *at, size_t size);

int __wrap_munmap(void *at, size_t size)
{
    if ((char *)at < (char *)pages || (char *)at >= (char *)(pages + 3))
        return __real_munmap(at, size);
    mapped--;
    return 0;
}

static int closed[4], n_closed;

int __real_close(int fd);
int __wrap_close(int fd);

int __wrap_close(int fd)
{
    if (fd >= PAGED && n_closed < 4)
        closed[n_closed++] = fd;
    return fd < PAGED ? __real_close(fd) : 0;
}

static bool no_memory;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    return no_memory ? NULL : __real_calloc(n, size);
}

static void a_group_has_one_to_sixteen_events(void)
{
    const int32_t fds[PP_PERF_EVENTS + 1] = {PAGED};
    pp_perf_group *group = NULL;

    CHECK(pp_perf_group_new(fds, 0, 1, 1, &group) == -EINVAL);
    CHECK(pp_perf_group_new(fds, PP_PERF_EVENTS + 1, 1, 1, &group) == -EINVAL);
    no_memory = true;
    CHECK(pp_perf_group_new(fds, 1, 1, 0, &group) == -ENOMEM && group == NULL);
    no_memory = false;
    CHECK(pp_perf_group_new(fds, PP_PERF_EVENTS, 0, 0, &group) == 0);
    CHECK(pp_perf_columns(group) == PP_PERF_EVENTS); /* without times */
    free(group);
}

/* Pages are used if all of them allow RDPMC; otherwise, none stays mapped. */
static void all_pages_are_mapped_or_none(void)
{
    const int32_t fds[] = {PAGED, PAGED + 1, PAGED + 2};
    struct sigaction before, after;

    CHECK(sigaction(SIGSEGV, NULL, &before) == 0);
    for (int without = -1; without < 9; without++) {
        pp_perf_group *group;
        uint64_t tsc_before;

        make(true);
        unmappable = without < 3 ? without : -1;
        if (without >= 6)
            pages[without - 6].cap_user_time = 0;
        else if (without >= 3)
            pages[without - 3].cap_user_rdpmc = 0;
        CHECK(pp_perf_group_new(fds, 3, 1, 1, &group) == 0);
        CHECK(pp_perf_uses_rdpmc(group) == (without < 0));
        CHECK(mapped == (without < 0 ? 3 : 0));
        tsc_before = pp_rdtsc();
        CHECK(group->ops->rdtsc() >= tsc_before);
        n_closed = 0;
        pp_perf_group_free(group);
        CHECK(mapped == 0);
        CHECK(n_closed == 3 && closed[0] == fds[2] && closed[1] == fds[1] && closed[2] == fds[0]);
    }
    CHECK(sigaction(SIGSEGV, NULL, &after) == 0);
    CHECK(before.sa_sigaction != after.sa_sigaction); /* a refused RDPMC does not end the process */
}

/* --- opening ---------------------------------------------------------------------------------- */

static void an_event_is_opened_with_its_attributes(void)
{
    pp_event event = {.type = 4, .config = 0x20003c};

    open_errno = 0;
    CHECK(pp_perf_open_by(&fake, &event, 5, -1) == 77);
    CHECK(opened.type == 4 && opened.config == 0x20003c && opened.size == PERF_ATTR_SIZE_VER0);
    CHECK(opened.disabled == 1 && opened_leader == -1);
    CHECK(opened.exclude_user == 0 && opened.exclude_guest == 0 && opened.exclude_kernel == 0);
    CHECK(opened.read_format == (PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED |
                                PERF_FORMAT_TOTAL_TIME_RUNNING));
    CHECK(opened.sample_period == 0 && opened.inherit == 0 && opened.pinned == 0);
    CHECK(pp_perf_open_by(&fake, &event, 5, 9) == 77);
    CHECK(opened.disabled == 0 && opened_leader == 9);
    opened_fd = 0;
    CHECK(pp_perf_open_by(&fake, &event, 5, 0) == 0);
    CHECK(opened.disabled == 0 && opened_leader == 0);
    opened_fd = 77;
    event.flags = PP_EVENT_KERNEL;
    CHECK(pp_perf_open_by(&fake, &event, 5, 9) == 77);
    CHECK(opened.exclude_user == 1 && opened.exclude_guest == 0);
    event.flags = PP_EVENT_HOST;
    CHECK(pp_perf_open_by(&fake, &event, 5, 9) == 77);
    CHECK(opened.exclude_user == 0 && opened.exclude_guest == 1);
    event.flags = PP_EVENT_USER | PP_EVENT_PINNED;
    CHECK(pp_perf_open_by(&fake, &event, 5, 0) == 77);
    CHECK(opened.exclude_kernel == 1 && opened.exclude_hv == 1 && opened.exclude_user == 0);
    CHECK(opened.pinned == 0); /* only a leader can be */
    CHECK(pp_perf_open_by(&fake, &event, 5, -1) == 77);
    CHECK(opened.pinned == 1);
    event.config1 = 0x1234;
    CHECK(pp_perf_open_by(&fake, &event, 5, -1) == 77);
    CHECK(opened.config1 == 0x1234 && opened.size == PERF_ATTR_SIZE_VER0);
    event.config2 = 0x5678;
    CHECK(pp_perf_open_by(&fake, &event, 5, -1) == 77);
    CHECK(opened.config2 == 0x5678 && opened.size == PERF_ATTR_SIZE_VER1);
    event.period = 1000;
    CHECK(pp_perf_open_by(&fake, &event, 5, -1) == 77);
    CHECK(opened.sample_period == 1000 && opened.size == PERF_ATTR_SIZE_VER5);
    CHECK(opened.sample_type == (PERF_SAMPLE_TID | PERF_SAMPLE_CALLCHAIN));
    CHECK(opened.exclude_callchain_user == 1 && opened.sample_max_stack == 8);
}

static void every_errno_is_returned(void)
{
    const int errors[] = {EACCES, EPERM,  ENOENT, ENODEV, EINVAL, EOPNOTSUPP,
                          EMFILE, ENFILE, ENOSYS, ENOSPC, EBUSY,  ENOMEM};
    pp_event event = {0};

    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        open_errno = errors[i];
        CHECK(pp_perf_open_by(&fake, &event, 5, -1) == -errors[i]);
    }
}

/* A trial's clocks start after the first read of the counters and stop after the second. On a busy
 * host, a thread's CPU time may include time that the hypervisor took, so one of 20 tries counts. */
static void a_trial_measures_its_own_time(void)
{
    struct pp_perf_group group = make(false);
    uint64_t moved[5] = {0};
    pp_trial trial = {.cpu_ns = UINT64_MAX};

    read_ns = 3000000;
    for (int i = 0; i < 20 && trial.cpu_ns >= 2 * read_ns; i++)
        CHECK(pp_perf_trial(&group, 1, moved, &trial) == 0);
    CHECK(trial.cpu_ns >= read_ns && trial.cpu_ns < 2 * read_ns && moved[4] == 0);
    read_ns = 0;
    answered = -ENODEV;
    CHECK(pp_perf_trial(&group, 1, moved, &trial) == -ENODEV && moved[4] == 0);
}

/* Repeats a trial that ended after 100 ms because other threads had the CPU nearly all the time. */
static void try_for(uint64_t cpu_ns, pp_perf_group *group, uint64_t *moved, pp_trial *trial)
{
    for (int i = 0; i < 100; i++) {
        uint64_t ns = pp_clock_ns(CLOCK_MONOTONIC_RAW), ticks = pp_rdtsc();

        CHECK(pp_perf_trial(group, cpu_ns, moved, trial) == 0);
        ticks = pp_rdtsc() - ticks;
        ns = pp_clock_ns(CLOCK_MONOTONIC_RAW) - ns;
        CHECK(trial->ticks > 0 && trial->ticks <= ticks && trial->ns > 0 && trial->ns <= ns);
        ns += ns / 100; /* the scheduler's clock differs slightly */
        CHECK(trial->cpu_ns <= ns && moved[0] <= ns && moved[2] <= ns);
        if (trial->cpu_ns >= cpu_ns)
            return;
        CHECK(trial->ns >= 100000000);
    }
    CHECK(!"a share of the CPU");
}

/* Task clock, context switches and page faults of this thread's CPU, counted by the kernel. */
static int real_group(void)
{
    const uint64_t configs[] = {PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_CONTEXT_SWITCHES,
                                PERF_COUNT_SW_PAGE_FAULTS};
    pp_perf_group *group;
    pp_trial trial;
    uint64_t moved[PP_PERF_WIDTH];
    int32_t fds[3];
    int cpu = sched_getcpu();

    pin(cpu);
    for (int i = 0; i < 3; i++) {
        pp_event event = {.type = PERF_TYPE_SOFTWARE, .config = configs[i]};

        fds[i] = pp_perf_open(&event, cpu, i ? fds[0] : -1);
        if (fds[i] == -EACCES || fds[i] == -EPERM || fds[i] == -ENOSYS) {
            fprintf(stderr, "perf_event_open: %s\n", strerror(-fds[i]));
            return SKIPPED;
        }
        CHECK(fds[i] >= 0);
    }
    CHECK(pp_perf_group_new(fds, 3, 1, 1, &group) == 0);
    CHECK(!pp_perf_uses_rdpmc(group)); /* no software event is on a counter */
    CHECK(pp_perf_columns(group) == 5);
    CHECK(pp_perf_trial(group, 1000000, moved, &trial) == 0);
    CHECK(moved[0] == 0 && moved[2] == 0); /* disabled until enabled explicitly */
    CHECK(pp_perf_enable(fds[0]) == 0);
    work(50000000); /* before the trial, so not in its increases */
    try_for(2000000, group, moved, &trial);
    CHECK(moved[0] == moved[1] && moved[0] >= 2000000 && moved[2] >= 2000000);
    pp_perf_group_free(group);
    CHECK(read(fds[0], moved, 8) == -1 && errno == EBADF); /* the group closed them */
    pp_perf_group_free(NULL);
    return 0;
}

int main(void)
{
    narrow_counters_are_sign_extended();
    a_page_that_allows_no_rdpmc_is_not_read();
    a_changed_lock_repeats_the_read();
    times_advance_after_the_page_was_written();
    a_group_is_read_by_all_pages_or_by_read();
    results_of_read_are_checked();
    columns_may_have_gaps();
    a_group_has_one_to_sixteen_events();
    all_pages_are_mapped_or_none();
    an_event_is_opened_with_its_attributes();
    every_errno_is_returned();
    a_trial_measures_its_own_time();
    return real_group();
}

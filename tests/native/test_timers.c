/* Timers compared with brackets, call counts and files of known content; exchanges of stamps. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#include "cpu.h"
#include "cpus.h"
#include "group.h"

enum { N = 64 };

static uint64_t ticks[N], values[N];

static int run_of(uint32_t kind, uint32_t calls, int fd, uint64_t arg, uint32_t n)
{
    pp_timer timer = {.kind = kind, .calls = calls, .fd = fd, .arg = arg};

    memset(values, 0, sizeof values);
    return pp_timer_run(&timer, n, ticks, values);
}

static int cpus[2], n_cpus;

static pthread_t caller;
/* Which of the thread's next reads of its CPU returns another CPU; 0: none. */
static int wrong_read_of_caller, wrong_read_of_responder;

int __real_sched_getcpu(void);
int __wrap_sched_getcpu(void);

int __wrap_sched_getcpu(void)
{
    int *countdown =
        pthread_equal(pthread_self(), caller) ? &wrong_read_of_caller : &wrong_read_of_responder;

    return __real_sched_getcpu() + (*countdown && --*countdown == 0);
}

static uint64_t sum(void)
{
    uint64_t all = 0;

    for (int i = 0; i < N; i++)
        all += ticks[i];
    return all;
}

/* All samples are in the bracket, one after the other. */
static void stamps_are_within_their_bracket(void)
{
    for (uint32_t kind = PP_TIMER_RDTSC; kind <= PP_TIMER_CPUID_RDTSC; kind++) {
        uint64_t before = pp_rdtsc(), after;

        if (pp_tsc_clock() != PP_CLOCK_RDTSCP &&
            (kind == PP_TIMER_RDTSCP || kind == PP_TIMER_RDTSCP_LFENCE))
            continue;
        CHECK(run_of(kind, 1, -1, 0, N) == 0);
        after = pp_rdtsc();
        CHECK(values[0] > before && values[N - 1] < after);
        CHECK(sum() < after - before);
        for (int i = 1; i < N; i++)
            CHECK(values[i] >= values[i - 1] && ticks[i] == values[i] - values[i - 1]);
    }
}

static void clocks_are_within_their_bracket(void)
{
    static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW,
                                       CLOCK_MONOTONIC_COARSE};

    for (int k = 0; k < 3; k++) {
        uint64_t before = pp_clock_ns(clocks[k]), tsc = pp_rdtsc();

        CHECK(run_of(PP_TIMER_CLOCK, 3, -1, (uint64_t)clocks[k], N) == 0);
        CHECK(sum() < pp_rdtsc() - tsc); /* each sample starts when the previous one ended */
        CHECK(values[0] >= before && values[N - 1] <= pp_clock_ns(clocks[k]));
        for (int i = 1; i < N; i++)
            CHECK(values[i] >= values[i - 1]);
    }
}

static void the_system_call_is_made(void)
{
    CHECK(run_of(PP_TIMER_SYSCALL, 1, -1, 0, N) == 0);
    for (int i = 0; i < N; i++)
        CHECK(values[i] == (uint64_t)getppid() && ticks[i] > 0);
    CHECK(run_of(PP_TIMER_NOTHING, 1, -1, 0, N) == 0);
}

static void a_register_is_read_at_its_offset(void)
{
    FILE *file = tmpfile();
    uint64_t content[] = {11, 22, 33};
    int fd;

    CHECK(file != NULL);
    fd = fileno(file);
    CHECK(pwrite(fd, content, sizeof content, 0) == sizeof content);
    CHECK(run_of(PP_TIMER_MSR, 1, fd, 8, N) == 0);
    for (int i = 0; i < N; i++)
        CHECK(values[i] == 22);
    CHECK(run_of(PP_TIMER_MSR, 1, fd, 20, N) == -EIO); /* half a register */
    fclose(file);
    CHECK(run_of(PP_TIMER_MSR, 1, fd, 8, N) == -EIO);
}

static uint64_t reads;
static int move_at_read = -1;

/* A group of one event whose count is the number of reads. */
static ssize_t counted_read(int fd, void *buffer, size_t size)
{
    uint64_t group[] = {1, 900, 800, ++reads};

    CHECK(fd == 5 && size == sizeof group);
    if ((int)reads == move_at_read)
        pin(cpus[1]);
    if (reads == 1000) {
        errno = EBADF;
        return -1;
    }
    memcpy(buffer, group, sizeof group);
    return sizeof group;
}

static int counted_rdpmc(uint32_t counter, uint64_t *count)
{
    CHECK(counter == 2);
    *count = ++reads;
    return 0;
}

static void a_sample_has_the_requested_calls(void)
{
    struct perf_event_mmap_page page = {
        .index = 3, .pmc_width = 48, .cap_user_rdpmc = 1, .cap_user_time = 1};
    struct pp_perf_ops ops = {.read = counted_read, .rdpmc = counted_rdpmc};
    struct pp_perf_group group = {
        .ops = &ops, .n = 1, .width = 1, .filled = 1, .fds = {5}, .pages = {&page}};
    uint64_t at = (uint64_t)(uintptr_t)&group;

    for (uint32_t calls = 1; calls < 4; calls++)
        for (uint32_t kind = PP_TIMER_PERF_PAGE; kind <= PP_TIMER_PERF_READ; kind++) {
            reads = 0;
            CHECK(run_of(kind, calls, -1, at, N) == 0);
            CHECK(reads == N * calls);
            for (uint32_t i = 0; i < N; i++) /* the result of each sample's last call */
                CHECK(values[i] == (i + 1) * calls);
        }
    reads = 990;
    CHECK(run_of(PP_TIMER_PERF_READ, 1, -1, at, N) == -EBADF);
    CHECK(reads == 1000);
    if (n_cpus == 2) {
        reads = 0;
        move_at_read = 10;
        CHECK(run_of(PP_TIMER_PERF_READ, 1, -1, at, N) == -EXDEV);
        pin(cpus[0]);
    }
}

/* Some hypervisors do not write the CPU's number to TSC_AUX. */
static void a_clock_with_a_wrong_cpu_is_replaced(void)
{
    bool is_right;

    CHECK(pp_proven_clock(PP_CLOCK_RDTSC) == PP_CLOCK_RDTSC);
    CHECK(pp_proven_clock(PP_CLOCK_RAW) == PP_CLOCK_RAW);
    if (pp_tsc_clock() != PP_CLOCK_RDTSCP)
        return;
    is_right = pp_now(PP_CLOCK_RDTSCP, true).cpu == cpus[0];
    CHECK(pp_proven_clock(PP_CLOCK_RDTSCP) == (is_right ? PP_CLOCK_RDTSCP : PP_CLOCK_RDTSC));
    wrong_read_of_caller = is_right;
    CHECK(pp_proven_clock(PP_CLOCK_RDTSCP) == PP_CLOCK_RDTSC);
}

static void invalid_arguments_are_refused(void)
{
    CHECK(run_of(PP_TIMER_RDTSC, 1, -1, 0, 0) == -EINVAL);
    CHECK(run_of(PP_TIMER_RDTSC, 1, -1, 0, 7) == -EINVAL);
    CHECK(run_of(PP_TIMER_CLOCK, 0, -1, 0, 8) == -EINVAL);
    CHECK(run_of(99, 1, -1, 0, 8) == -EINVAL);
}

static pp_exchange exchanges[N];

/* A CPU that exchanges stamps with itself has one clock: each stamp is between those before and
 * after. The two threads take turns on it, so the time may end before all exchanges are made. */
static void one_clock_orders_all_stamps(void)
{
    int done = pp_exchange_stamps(cpus[0], N, 200000000, exchanges);

    CHECK(done >= 0 && done <= N);
    for (int i = 0; i < done; i++) {
        CHECK(exchanges[i].sent < exchanges[i].received);
        CHECK(exchanges[i].received < exchanges[i].returned);
        CHECK(i == 0 || exchanges[i - 1].returned < exchanges[i].sent);
    }
}

/* Tries again after fewer than two exchanges (the other thread did not run in time), and after an
 * error (its CPU went offline meanwhile). */
static void two_cpus_answer_each_other(void)
{
    int done = 0;

    for (int i = 0; i < 20 && done <= 1; i++) {
        nap_ms(i);
        done = pp_exchange_stamps(cpus[1], N, 1000000000, exchanges);
        CHECK(done >= 0 || done == -EXDEV || done == -EINVAL);
    }
    CHECK(done > 1 && done <= N);
    for (int i = 0; i < done; i++) {
        CHECK(exchanges[i].sent < exchanges[i].returned);
        CHECK(i == 0 || (exchanges[i - 1].returned < exchanges[i].sent &&
                         exchanges[i - 1].received < exchanges[i].received));
    }
}

static void a_thread_that_was_moved_is_an_error(void)
{
    wrong_read_of_caller = 2; /* at its end */
    CHECK(pp_exchange_stamps(cpus[0], N, 200000000, exchanges) == -EXDEV);
    for (int i = 1; i <= 2; i++) { /* at its start, at its end */
        wrong_read_of_responder = i;
        CHECK(pp_exchange_stamps(cpus[0], N, 200000000, exchanges) == -EXDEV);
    }
    CHECK(wrong_read_of_caller == 0 && wrong_read_of_responder == 0);
    wrong_read_of_caller = 2;
    CHECK(run_of(PP_TIMER_RDTSC, 1, -1, 0, N) == -EXDEV);
}

/* Neither thread waits for the limit if there is nothing to exchange. */
static void a_nonexistent_cpu_is_refused(void)
{
    const uint64_t hour = (uint64_t)3600 * 1000000000;
    const int nonexistent[] = {-1, PP_CPU_MAX - 1, PP_CPU_MAX};
    struct pp_cpu_mask mask;

    for (int i = 0; i < 3; i++)
        CHECK(pp_exchange_stamps(nonexistent[i], N, hour, exchanges) == -EINVAL);
    CHECK(pp_single_cpu_mask(PP_CPU_MAX - 1, &mask) == 0);
    CHECK(pp_single_cpu_mask(8 * (int)sizeof mask, &mask) == -EINVAL);
    CHECK(pp_exchange_stamps(cpus[0], 0, hour, exchanges) == 0);
}

int main(void)
{
    caller = pthread_self();
    n_cpus = own_cpus(cpus);
    pin(cpus[0]);
    CHECK(pp_current_cpu() == cpus[0]);
    stamps_are_within_their_bracket();
    clocks_are_within_their_bracket();
    the_system_call_is_made();
    a_register_is_read_at_its_offset();
    a_sample_has_the_requested_calls();
    a_clock_with_a_wrong_cpu_is_replaced();
    invalid_arguments_are_refused();
    one_clock_orders_all_stamps();
    if (n_cpus == 2)
        two_cpus_answer_each_other();
    a_thread_that_was_moved_is_an_error();
    a_nonexistent_cpu_is_refused();
    return 0;
}

/* RDPMC with a counter number that no CPU has: it faults, as for a counter that is switched off. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "group.h"
#include "rdpmc.h"

enum { NO_COUNTER = 0x1234567, ROW_WORDS = PP_HEAD + 2, MS = 1000000 };

static struct perf_event_mmap_page page;
static int reads;

static ssize_t fake_read(int fd, void *buffer, size_t size)
{
    const uint64_t file_content[] = {1, 900, 800, 4711};

    (void)fd;
    CHECK(size == sizeof file_content);
    memcpy(buffer, file_content, sizeof file_content);
    __atomic_fetch_add(&reads, 1, __ATOMIC_RELAXED);
    return sizeof file_content;
}

static uint64_t no_rdtsc(void)
{
    return 0;
}

static const struct pp_perf_ops ops = {NULL, fake_read, pp_rdpmc, no_rdtsc};
static struct pp_perf_group group = {.ops = &ops, .n = 1, .width = 1, .filled = 1,
                                     .uses_rdpmc = true, .pages = {&page}};

static void a_refused_count_is_read_by_the_kernel(void)
{
    uint64_t count = 7;

    for (int i = 0; i < 3; i++)
        CHECK(pp_rdpmc(NO_COUNTER, &count) != 0 && count == 7);
    CHECK(pp_perf_page_read(&ops, &page, NULL, &count) == -EAGAIN);
    CHECK(pp_perf_read(&group, &count) == 0 && count == 4711 && reads == 1); /* by the kernel */
}

/* Lanes block all signals, and a blocked fault would end the process. */
static void a_lane_continues_after_a_refusal(void)
{
    pp_config config = {.period_ns = 2 * MS, .words = ROW_WORDS, .ring = 8, .stamp = PP_STAMP_TSC,
                        .check_cpu = true};
    pp_row row = {.head = 0, .valid = PP_HEAD, .valid_words = 1, .values = PP_HEAD + 1,
                  .n_slots = 1};
    pp_slot slot = {.kind = PP_PERF, .fd = -1, .count = 1, .group = &group};
    int before = reads;
    pp_sampler *sampler;

    CHECK(pp_new(&config, &sampler) == 0);
    CHECK(pp_attach(sampler, sched_getcpu(), 0, &row, 1, &slot, 1) == 0);
    WAIT_FOR(__atomic_load_n(&reads, __ATOMIC_RELAXED) > before + 3);
    pp_free(sampler);
}

/* Returns how a child ends that gets a SIGSEGV, or else writes to a protected address: -SIGNAL, or
 * its status. */
static int end_of_a_child(bool sent)
{
    int *closed = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int status, child = fork();

    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        alarm(20);
        if (sent)
            kill(getpid(), SIGSEGV);
        else
            *(volatile int *)closed = 1;
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* Without an earlier handler, the guard changes nothing: a fault ends the process, even if the
 * signal is ignored. Each child installs its own guard. */
static void a_fault_without_a_handler_ends_the_process(void)
{
    static const struct {
        sighandler_t earlier_handler;
        bool sent;
        int end;
    } cases[] = {{SIG_DFL, false, -SIGSEGV}, {SIG_DFL, true, -SIGSEGV},
                 {SIG_IGN, false, -SIGSEGV}, {SIG_IGN, true, 0}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status, child = fork();

        if (child == 0) {
            signal(SIGSEGV, cases[i].earlier_handler);
            pp_rdpmc_guard();
            CHECK(end_of_a_child(cases[i].sent) == cases[i].end);
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
}

static volatile sig_atomic_t expected, arrived;

static void earlier_handler(int number)
{
    (void)number;
    if (!expected)
        _exit(42);
    arrived++;
}

/* A signal from kill() reaches the earlier handler; the guard remains for the next refusal. */
static void a_sent_signal_leaves_the_guard_installed(void)
{
    expected = 1;
    CHECK(kill(getpid(), SIGSEGV) == 0 && arrived == 1);
    CHECK(kill(getpid(), SIGSEGV) == 0 && arrived == 2);
    expected = 0;
    a_refused_count_is_read_by_the_kernel();
}

int main(void)
{
    a_fault_without_a_handler_ends_the_process();
    signal(SIGSEGV, earlier_handler); /* before the guard, which passes on other signals */
    page.index = NO_COUNTER + 1;
    page.cap_user_rdpmc = 1;
    page.cap_user_time = 1;
    pp_rdpmc_guard();
    pp_rdpmc_guard();
    a_refused_count_is_read_by_the_kernel();
    a_lane_continues_after_a_refusal();
    CHECK(end_of_a_child(false) == 42);
    reads = 0;
    a_sent_signal_leaves_the_guard_installed();
    return 0;
}

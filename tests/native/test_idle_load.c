/*
 * Tests loading and attaching the idle program, and their errors.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "cpus.h"
#include "idle.h"
#include "idle_program.h"
#include "idle_rows.h"

/* Makes one command of bpf(2) fail: the next `failures` times, or always if that is negative. */
static int fail_command = -1, fail_errno, failures = -1;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, int command, void *attr, size_t size);

/* bpf(2) is the only call by syscall() here. */
long __wrap_syscall(long number, int command, void *attr, size_t size)
{
    if (command == BPF_PROG_LOAD) /* bpftool lists the program by this name */
        CHECK(strncmp(((union bpf_attr *)attr)->prog_name, "pp_idle", 8) == 0);
    if (command == BPF_MAP_CREATE)
        CHECK(strncmp(((union bpf_attr *)attr)->map_name, "pp_idle", 8) == 0);
    if (command == fail_command && failures != 0) {
        failures -= failures > 0;
        errno = fail_errno;
        return -1;
    }
    return __real_syscall(number, command, attr, size);
}

static const pp_idle_thread places[] = {{0, 0, 0}, {1, 0, 1}};
static char text[1 << 16];

static int descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    CHECK(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void failures_are_named_and_leave_no_descriptor(void)
{
    static const struct {
        int command, error;
        const char *call;
    } cases[] = {
        {BPF_MAP_CREATE, ENOSYS, "BPF_MAP_CREATE\n"},
        {BPF_PROG_LOAD, EINVAL, "BPF_PROG_LOAD\n"},
        {BPF_PROG_LOAD, EAGAIN, "BPF_PROG_LOAD\n"},
        {BPF_PROG_TEST_RUN, EINVAL, "BPF_PROG_TEST_RUN\n"},
        {BPF_RAW_TRACEPOINT_OPEN, ENOENT, "BPF_RAW_TRACEPOINT_OPEN\n"},
    };
    static const pp_idle_thread twice[] = {{0, 0, 0}, {1, 0, 0}}, same[] = {{0, 0, 0}, {0, 1, 0}},
                               far[] = {{PP_IDLE_MAX, 0, 0}},
                               third[] = {{0, 0, 2}}, far_core[] = {{0, PP_IDLE_MAX, 0}};
    int before = descriptors();
    pp_idle *idle = NULL;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fail_command = cases[i].command;
        fail_errno = cases[i].error;
        CHECK(pp_idle_open(places, 2, &idle, text, sizeof text) == -cases[i].error);
        CHECK(strcmp(text, cases[i].call) == 0);
    }
    fail_command = -1;
    CHECK(pp_idle_open(twice, 2, &idle, text, sizeof text) == -EEXIST);
    CHECK(pp_idle_open(same, 2, &idle, text, sizeof text) == -EEXIST);
    CHECK(pp_idle_open(far, 1, &idle, text, sizeof text) == -EINVAL);
    CHECK(pp_idle_open(far_core, 1, &idle, text, sizeof text) == -EINVAL);
    CHECK(pp_idle_open(third, 1, &idle, text, sizeof text) == -EINVAL);
    CHECK(pp_idle_open(far, 0, &idle, text, sizeof text) == -EINVAL);
    CHECK(idle == NULL && descriptors() == before);
}

/* A pending signal interrupts the verifier, which is tried up to five times. */
static void an_interrupted_load_is_repeated(void)
{
    fail_command = BPF_PROG_LOAD;
    fail_errno = EAGAIN;
    for (int times = 4; times <= 5; times++) {
        pp_idle *idle = NULL;

        failures = times;
        CHECK(pp_idle_make(places, 2, PP_IDLE_SWAPS, &idle, text, sizeof text) ==
              (times < 5 ? 0 : -EAGAIN));
        pp_idle_close(idle);
    }
    fail_command = failures = -1;
}

/* The verifier refuses more attempts than it can follow, and the log has its message. */
static void the_log_has_the_verifiers_message(void)
{
    pp_idle *idle = NULL;
    int rc = pp_idle_make(places, 2, 10000000, &idle, text, sizeof text);

    CHECK(rc < 0 && idle->program < 0); /* which error depends on the kernel */
    CHECK(strncmp(text, "BPF_PROG_LOAD\n", 14) == 0 && strstr(text + 14, "if r0 == r1") != NULL);
    pp_idle_close(idle);
    rc = pp_idle_make(places, 2, 10000000, &idle, text, 20); /* too short for the log */
    CHECK(rc < 0 && strcmp(text, "BPF_PROG_LOAD\n") == 0);
    pp_idle_close(idle);
}

/* tests/probe/machine/test_idle_trace.py tests that transitions of the kernel arrive. */
static void an_attached_program_counts(void)
{
    static const pp_idle_thread far[] = {{4095, 4095, 1}};
    pp_idle *idle = NULL, *other = NULL;
    uint64_t first, second;
    int cpu = sched_getcpu();
    pp_idle_thread here = {(uint32_t)cpu, 0, 0};

    pin(cpu);
    CHECK(pp_idle_open(&here, 1, &idle, text, sizeof text) == 0);
    CHECK(pp_idle_open(far, 1, &other, text, sizeof text) == 0);
    CHECK(pp_idle_mark_busy(idle, here.cpu) == 0);
    CHECK(pp_idle_value(idle->base, PP_IDLE_BUSY, here.cpu, &first) == 0);
    CHECK(pp_idle_value(idle->base, PP_IDLE_BUSY, here.cpu, &second) == 0);
    CHECK(second > first); /* this thread runs on it */
    pp_idle_close(other);
    pp_idle_close(idle);
}

static int may_load(void)
{
    pp_idle *idle = NULL;
    int rc = pp_idle_make(places, 2, PP_IDLE_SWAPS, &idle, text, sizeof text);

    pp_idle_close(idle);
    CHECK(rc == 0 || rc == -EPERM);
    return rc == 0;
}

int main(void)
{
    if (!may_load()) {
        fprintf(stderr, "needs CAP_BPF and CAP_PERFMON, or root\n");
        return SKIPPED;
    }
    failures_are_named_and_leave_no_descriptor();
    an_interrupted_load_is_repeated();
    the_log_has_the_verifiers_message();
    an_attached_program_counts();
    return 0;
}

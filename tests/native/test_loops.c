/* Loops execute the stated number of instructions: a traced child is single-stepped, and each step
 * is one instruction in user space. Work spans report their time and CPU. */
#define _GNU_SOURCE
#include "loops.c"

#include "check.h"
#include "cpus.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static void child(uint32_t kind, uint64_t turns)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
        _exit(SKIPPED);
    raise(SIGSTOP);
    loops[kind](turns);
    _exit(0);
}

/* Returns the number of instructions from SIGSTOP to the end. */
static long steps(uint32_t kind, uint64_t turns)
{
    const pid_t pid = fork();
    long n = 0;
    int status;

    CHECK(pid >= 0);
    if (pid == 0)
        child(kind, turns);
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status)) {
        fprintf(stderr, "a child cannot be traced here\n");
        exit(WEXITSTATUS(status));
    }
    for (;;) {
        CHECK(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0);
        CHECK(waitpid(pid, &status, 0) == pid);
        if (WIFEXITED(status))
            break;
        CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
        n++;
    }
    CHECK(WEXITSTATUS(status) == 0);
    return n;
}

/* The instructions around the loop are the same for any number of turns, so they cancel out in the
 * difference. A step over SYSCALL may be reported with the instruction after it. */
static bool has_length(uint32_t kind)
{
    const long few = steps(kind, 2), more = steps(kind, 4);
    const long turn = (long)pp_loop_instructions(kind);

    if (more - few == 2 * turn || (kind == PP_LOOP_ENTER && more - few == 2 * (turn - 1)))
        return true;
    fprintf(stderr, "kind %u: %ld more steps for 2 turns of %ld\n", kind, more - few, turn);
    return false;
}

/* A sanitizer's code around the loop may take another path in one of the two children, and some
 * hypervisors lose a step: three attempts. A wrong length is wrong in all of them. */
static void check_length(uint32_t kind)
{
    CHECK(has_length(kind) || has_length(kind) || has_length(kind));
}

/* The thread's own clock, if simulated: 1000 ns, then 300 more at each read. */
static bool clock_is_simulated;
static long cpu_ns;
static int reads_until_moved; /* reads of the clock until the thread moves; 0: it does not move */
static int other_cpu;

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    if (reads_until_moved && --reads_until_moved == 0)
        pin(other_cpu);
    if (!clock_is_simulated || clock != CLOCK_THREAD_CPUTIME_ID)
        return __real_clock_gettime(clock, t);
    cpu_ns += cpu_ns ? 300 : 1000;
    *t = (struct timespec){.tv_nsec = cpu_ns};
    return 0;
}

static void check_own_time(void)
{
    uint64_t marks[2];
    pp_work_span span;

    clock_is_simulated = true;
    CHECK(pp_loop_run(PP_LOOP_ADD, 10, marks, 2, &span) == 0 && span.cpu_ns == 300);
    clock_is_simulated = false;
}

/* A span reports its CPU, or -1 if it ended on another one. */
static void check_cpu(void)
{
    pp_work_span span;
    int cpus[2], n = own_cpus(cpus);

    pin(cpus[0]);
    pp_work_pattern(0, 0, 1, &span, 1);
    CHECK(span.cpu == cpus[0]);
    if (n == 2) {
        other_cpu = cpus[1];
        reads_until_moved = 3; /* its start makes the first two */
        pp_work_pattern(0, 0, 1, &span, 1);
        CHECK(span.cpu == -1);
    }
}

static void check_pattern(void)
{
    enum { N = 3 };
    const uint64_t period = 5000000, on = 1000000;
    const uint64_t begin = pp_clock_ns(CLOCK_MONOTONIC) + period;
    pp_work_span spans[N];

    pp_work_pattern(begin, period, on, spans, N);
    for (unsigned i = 0; i < N; i++) {
        CHECK(spans[i].begin_ns >= begin + i * period);
        CHECK(spans[i].end_ns >= begin + i * period + on);
        CHECK(spans[i].begin <= spans[i].end);
    }
}

int main(void)
{
    uint64_t marks[3];
    pp_work_span span;

    check_own_time();
    check_cpu();
    check_pattern();
    CHECK(pp_loop_instructions(PP_LOOP_KINDS) == 0);
    CHECK(pp_loop_run(PP_LOOP_KINDS, 1, marks, 3, &span) == -EINVAL);
    CHECK(pp_loop_run(PP_LOOP_ADD, 0, marks, 3, &span) == -EINVAL); /* would run too long */
    for (uint32_t kind = 0; kind < PP_LOOP_KINDS; kind++) {
        CHECK(pp_loop_run(kind, 10, marks, 3, &span) == 0);
        CHECK(span.begin <= marks[0] && marks[0] <= marks[1] && marks[2] <= span.end);
        check_length(kind);
    }
    return 0;
}

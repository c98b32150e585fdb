/* Loops execute the stated number of instructions: a traced child is single-stepped, and each step
 * is one instruction in user space. Spells report their time and CPU. */
#define _GNU_SOURCE
#include "known.c"

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

/* Instructions from SIGSTOP to the end. */
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

/* The instructions around the loop are the same for any number of turns, so they drop out of the
 * difference. A step over SYSCALL may be reported with the instruction after it. */
static bool has_length(uint32_t kind)
{
    const long few = steps(kind, 2), more = steps(kind, 12);
    const long turn = (long)pp_known_turn(kind);

    if (more - few == 10 * turn || (kind == PP_KNOWN_ENTER && more - few == 10 * (turn - 1)))
        return true;
    fprintf(stderr, "kind %u: %ld more steps for 10 turns of %ld\n", kind, more - few, turn);
    return false;
}

/* A sanitizer's code around the loop may take another path in one of the two children, and some
 * hypervisors lose a step: three attempts. A wrong length is wrong in all of them. */
static void check_length(uint32_t kind)
{
    CHECK(has_length(kind) || has_length(kind) || has_length(kind));
}

/* The thread's own clock, if simulated: 1000 ns, then 300 more at each read. */
static bool made_up;
static long own_ns;
static int looks_until_moved; /* reads of the clock; 0: not moved */
static int other_cpu;

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    if (looks_until_moved && --looks_until_moved == 0)
        pin(other_cpu);
    if (!made_up || clock != CLOCK_THREAD_CPUTIME_ID)
        return __real_clock_gettime(clock, t);
    own_ns += own_ns ? 300 : 1000;
    *t = (struct timespec){.tv_nsec = own_ns};
    return 0;
}

static void check_own_time(void)
{
    uint64_t marks[2];
    pp_spell spell;

    made_up = true;
    CHECK(pp_known_run(PP_KNOWN_ADD, 10, marks, 2, &spell) == 0 && spell.own_ns == 300);
    made_up = false;
}

/* A spell reports its CPU, or -1 if it ended on another one. */
static void check_cpu(void)
{
    pp_spell spell;
    int cpus[2], n = own_cpus(cpus);

    pin(cpus[0]);
    pp_known_pattern(0, 0, 1, &spell, 1);
    CHECK(spell.cpu == cpus[0]);
    if (n == 2) {
        other_cpu = cpus[1];
        looks_until_moved = 3; /* its start makes the first two */
        pp_known_pattern(0, 0, 1, &spell, 1);
        CHECK(spell.cpu == -1);
    }
}

static void check_pattern(void)
{
    enum { N = 3 };
    const uint64_t period = 5000000, on = 1000000;
    const uint64_t begin = pp_clock_ns(CLOCK_MONOTONIC) + period;
    pp_spell spells[N];

    pp_known_pattern(begin, period, on, spells, N);
    for (unsigned i = 0; i < N; i++) {
        CHECK(spells[i].begin_ns >= begin + i * period);
        CHECK(spells[i].end_ns >= begin + i * period + on);
        CHECK(spells[i].begin <= spells[i].end);
    }
}

int main(void)
{
    uint64_t marks[3];
    pp_spell spell;

    check_own_time();
    check_cpu();
    check_pattern();
    CHECK(pp_known_turn(PP_KNOWN_KINDS) == 0);
    CHECK(pp_known_run(PP_KNOWN_KINDS, 1, marks, 3, &spell) == -EINVAL);
    CHECK(pp_known_run(PP_KNOWN_ADD, 0, marks, 3, &spell) == -EINVAL); /* would run too long */
    for (uint32_t kind = 0; kind < PP_KNOWN_KINDS; kind++) {
        CHECK(pp_known_run(kind, 10, marks, 3, &spell) == 0);
        CHECK(spell.begin <= marks[0] && marks[0] <= marks[1] && marks[2] <= spell.end);
        check_length(kind);
    }
    return 0;
}

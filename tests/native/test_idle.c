/*
 * The rows that the idle program writes for a series of transitions, and how a reader reads them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "idle_play.h"

/* Called once, at the next read of the clock, which is between a reader's two reads of the word. */
static void (*hook)(void);
static time_t ahead_s; /* how far this process's CLOCK_MONOTONIC is ahead of the kernel's */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    void (*now)(void) = hook;
    int rc;

    hook = NULL;
    if (now)
        now();
    rc = __real_clock_gettime(clock, t);
    t->tv_sec += clock == CLOCK_MONOTONIC ? ahead_s : 0;
    return rc;
}

static void this_process_cannot_write_the_rows(void)
{
    pp_idle *idle = make(PP_IDLE_SWAPS);
    int zero = open("/dev/zero", O_RDONLY);

    CHECK(zero >= 0);
    CHECK(read(zero, idle->base, 1) == -1 && errno == EFAULT);
    close(zero);
    pp_idle_close(idle);
}

static void unknown_until_the_first_transition(void)
{
    pp_idle *idle = make(PP_IDLE_SWAPS);
    uint64_t value;

    CHECK(!read_core(idle).known);
    CHECK(pp_idle_value(idle->base, PP_IDLE_BUSY, A, &value) == -ENODATA);
    event(idle, A, RUNS);
    CHECK(!read_core(idle).known && read_core(idle).ns[1] == 0);
    CHECK(pp_idle_value(idle->base, PP_IDLE_LP0, CORE, &value) == -ENODATA);
    CHECK(pp_idle_value(idle->base, PP_IDLE_BUSY, A, &value) == 0);
    event(idle, B, IDLE);
    CHECK(read_core(idle).known);
    CHECK(pp_idle_value(idle->base, PP_IDLE_LP0, CORE, &value) == 0);
    CHECK(entries(idle, A) == 0 && entries(idle, B) == 1);
    CHECK(pp_idle_value(idle->base, PP_IDLE_BOTH, CORE + 1, &value) == -ENOENT);
    CHECK(pp_idle_value(idle->base, PP_IDLE_BOTH, CORE - 1, &value) == -ENOENT);
    CHECK(pp_idle_value(idle->base, PP_IDLE_BUSY, A + 1, &value) == -ENOENT);
    CHECK(pp_idle_offline(idle, A + 1) == -ENOENT);
    pp_idle_close(idle);
}

/* The time in each state is between the time inside the calls and the time around them. */
static void each_state_gets_its_time(void)
{
    static const struct {
        uint32_t cpu;
        int state;
        unsigned then; /* the core's state after the event */
    } steps[] = {
        {A, RUNS, 1}, {B, RUNS, 3}, {A, IDLE, 2}, {A, POLL, 2}, {B, IDLE, 0}, {B, RUNS, 2},
        {B, RUNS, 2}, {A, RUNS, 3}, {B, POLL, 1}, {A, IDLE, 0}, {A, RUNS, 1}, {A, POLL, 0},
    };
    pp_idle *idle = make(PP_IDLE_SWAPS);
    uint64_t least[4] = {0}, most[4] = {0}, before, after, last_before, last_after;
    struct core_times s;
    unsigned state = 0;

    event(idle, A, IDLE);
    last_before = now_ns();
    event(idle, B, IDLE);
    last_after = now_ns();
    for (size_t i = 0; i <= sizeof steps / sizeof steps[0]; i++) {
        nap_ms(1 + (long)i % 3);
        before = now_ns();
        if (i < sizeof steps / sizeof steps[0])
            event(idle, steps[i].cpu, steps[i].state);
        else
            s = read_core(idle); /* includes the state that has not ended */
        after = now_ns();
        least[state] += before - last_after;
        most[state] += after - last_before;
        if (i < sizeof steps / sizeof steps[0])
            state = steps[i].then;
        last_before = before;
        last_after = after;
    }
    for (int i = 0; i < 4; i++)
        CHECK(least[i] > 0 && s.ns[i] >= least[i] && s.ns[i] <= most[i]);
    CHECK(busy(idle, A) == s.ns[1] + s.ns[3] && busy(idle, B) == s.ns[2] + s.ns[3]);
    pp_idle_close(idle);
}

static void an_offline_cpu_is_idle(void)
{
    pp_idle *idle = make(PP_IDLE_SWAPS);
    struct core_times s;
    uint64_t before;

    event(idle, A, RUNS);
    event(idle, B, RUNS);
    CHECK(pp_idle_offline(idle, B) == 0);
    s = read_core(idle);
    before = busy(idle, A);
    nap_ms(2);
    CHECK(read_core(idle).ns[3] == s.ns[3] && read_core(idle).ns[1] > s.ns[1]);
    CHECK((int64_t)(busy(idle, A) - before) >= 2000000); /* up to now */
    pp_idle_close(idle);
}

static void a_clock_behind_is_clamped(void)
{
    const uint64_t ahead_ns = 1000000000000;
    uint64_t then, before, after;
    pp_idle *idle = make(PP_IDLE_SWAPS);
    struct pp_idle_core *core;
    struct core_times s, t;
    const struct pp_idle_cpu *cpu;

    event(idle, A, RUNS);
    event(idle, B, RUNS);
    /* As if the clock of B were a thousand seconds ahead. */
    CHECK(mprotect(idle->base, idle->size, PROT_READ | PROT_WRITE) == 0);
    core = (struct pp_idle_core *)(uintptr_t)pp_idle_core(idle->base, CORE);
    core->word += ahead_ns << PP_IDLE_SHIFT;
    core->sums[3] += ahead_ns;
    then = core->word >> PP_IDLE_SHIFT;
    s = read_core(idle);
    before = now_ns();
    event(idle, A, IDLE);
    after = now_ns();
    t = read_core(idle);
    CHECK(s.ns[3] == t.ns[3] && t.ns[2] == 0 && total(&s) == total(&t));
    cpu = pp_idle_cpu(idle->base, A);
    CHECK(cpu->clamped == 1 && pp_idle_cpu(idle->base, B)->clamped == 0);
    CHECK(cpu->clamped_ns >= then - after && cpu->clamped_ns <= then - before);
    CHECK(core->dropped == 0);
    pp_idle_close(idle);
}

/* As in a time namespace. */
static void another_clock_than_the_kernels_is_compared(void)
{
    for (ahead_s = 0; ahead_s <= 3600; ahead_s += 3600) {
        uint64_t begun = now_ns();
        pp_idle *idle = make(PP_IDLE_SWAPS);
        const struct pp_idle_head *head = idle->base;
        int64_t off = head->ahead_ns + ahead_s * 1000000000;

        CHECK(llabs((int64_t)(head->start_ns - begun) - head->ahead_ns) < 1000000000);
        CHECK(ahead_s ? llabs(off) < 1000000000 : off == 0);
        event(idle, A, RUNS);
        nap_ms(5);
        CHECK(busy(idle, A) >= 4000000 && busy(idle, A) <= now_ns() - begun + 1000000);
        pp_idle_close(idle);
    }
    ahead_s = 0;
}

/* A reader must see that an addition is missing. */
static void a_row_in_the_middle_of_an_update_is_not_read(void)
{
    pp_idle *idle = make(PP_IDLE_SWAPS);
    struct pp_idle_core *core;
    struct pp_idle_cpu *cpu;
    struct core_times s;
    uint64_t value;

    CHECK(mprotect(idle->base, idle->size, PROT_READ | PROT_WRITE) == 0);
    core = (struct pp_idle_core *)(uintptr_t)pp_idle_core(idle->base, CORE);
    core->word += (uint64_t)5 << PP_IDLE_SHIFT;
    CHECK(pp_idle_read_core(idle->base, CORE, s.ns, &s.known) == -EAGAIN);
    core->sums[PP_IDLE_CORE_UNKNOWN] += 5;
    CHECK(pp_idle_read_core(idle->base, CORE, s.ns, &s.known) == 0);
    cpu = (struct pp_idle_cpu *)(uintptr_t)pp_idle_cpu(idle->base, A);
    cpu->word += (uint64_t)5 << PP_IDLE_SHIFT;
    CHECK(pp_idle_value(idle->base, PP_IDLE_BUSY, A, &value) == -EAGAIN);
    cpu->sums[PP_IDLE_CPU_UNKNOWN] += 5;
    CHECK(pp_idle_value(idle->base, PP_IDLE_BUSY, A, &value) == -ENODATA);
    pp_idle_close(idle);
}

static pp_idle *hooked;
static uint64_t hooked_before, hooked_after;

static void go_idle_and_wait(void)
{
    event(hooked, A, IDLE);
    hooked_before = now_ns();
    nap_ms(2);
    hooked_after = now_ns();
}

/* A reader that slept does not add the time after a transition to the state before it. */
static void a_transition_during_a_read_is_seen(void)
{
    struct core_times s;

    hooked = make(PP_IDLE_SWAPS);
    event(hooked, B, IDLE);
    event(hooked, A, RUNS);
    hook = go_idle_and_wait;
    s = read_core(hooked);
    CHECK(s.ns[1] > 0 && s.ns[0] >= hooked_after - hooked_before);
    CHECK(s.ns[1] == busy(hooked, A));
    pp_idle_close(hooked);
}

int main(void)
{
    this_process_cannot_write_the_rows();
    unknown_until_the_first_transition();
    each_state_gets_its_time();
    an_offline_cpu_is_idle();
    a_clock_behind_is_clamped();
    another_clock_than_the_kernels_is_compared();
    a_row_in_the_middle_of_an_update_is_not_read();
    a_transition_during_a_read_is_seen();
    return 0;
}

#define _GNU_SOURCE
#include "perfprobe.h"

#include <errno.h>
#include <sys/syscall.h>

#include "cpu.h"

static void begin_span(pp_work_span *s)
{
    s->cpu = sched_getcpu();
    s->cpu_ns = pp_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    s->begin_ns = pp_clock_ns(CLOCK_MONOTONIC);
    s->begin = pp_rdtsc();
}

static void end_span(pp_work_span *s)
{
    s->end = pp_rdtsc();
    s->end_ns = pp_clock_ns(CLOCK_MONOTONIC);
    s->cpu_ns = pp_clock_ns(CLOCK_THREAD_CPUTIME_ID) - s->cpu_ns;
    if (sched_getcpu() != s->cpu)
        s->cpu = -1;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

/* Instructions in a loop's body; loop_enter has more, because its system call costs more. */
#define BODY 64
#define ENTER_BODY 512

#define REPEAT(times, body) ".rept " TEXT(times) "\n\t" body "\n\t.endr\n\t"
#define LOOP(inside) "1:\n\t" inside "dec %[n]\n\tjnz 1b"

/* Uses TEST instead of NOP: some CPUs drop NOPs early and may not count them. */
static void loop_free(uint64_t n)
{
    __asm__ volatile(LOOP(REPEAT(BODY, "test %%eax, %%eax")) : [n] "+r"(n) : : "cc");
}

static void loop_add(uint64_t n)
{
    uint64_t sum = 1, one = 1;

    __asm__ volatile(LOOP(REPEAT(BODY, "add %[one], %[sum]"))
                     : [n] "+r"(n), [sum] "+r"(sum)
                     : [one] "r"(one)
                     : "cc");
}

static void loop_imul(uint64_t n)
{
    uint64_t product = 3, three = 3;

    __asm__ volatile(LOOP(REPEAT(BODY, "imul %[three], %[product]"))
                     : [n] "+r"(n), [product] "+r"(product)
                     : [three] "r"(three)
                     : "cc");
}

/* The clobbers are the registers that the system call changes. */
static void loop_enter(uint64_t n)
{
    uint64_t product = 3, three = 3;

    __asm__ volatile(LOOP(REPEAT(ENTER_BODY, "imul %[three], %[product]")
                          "mov %[call], %%eax\n\t"
                          "syscall\n\t")
                     : [n] "+r"(n), [product] "+r"(product)
                     : [three] "r"(three), [call] "i"(SYS_getppid)
                     : "rax", "rcx", "r11", "cc", "memory");
}

static void (*const loops[PP_LOOP_KINDS])(uint64_t) = {
    [PP_LOOP_FREE] = loop_free,
    [PP_LOOP_ADD] = loop_add,
    [PP_LOOP_IMUL] = loop_imul,
    [PP_LOOP_ENTER] = loop_enter,
};

uint32_t pp_loop_instructions(uint32_t kind)
{
    const uint32_t ends = kind == PP_LOOP_ENTER ? 4 : 2; /* (MOV and SYSCALL,) DEC and JNZ */

    return kind < PP_LOOP_KINDS ? pp_chain_instructions(kind) + ends : 0;
}

uint32_t pp_chain_instructions(uint32_t kind)
{
    if (kind >= PP_LOOP_KINDS)
        return 0;
    return kind == PP_LOOP_ENTER ? ENTER_BODY : BODY;
}

int pp_loop_run(uint32_t kind, uint64_t turns, uint64_t *marks, uint32_t n_marks,
                 pp_work_span *out)
{
    if (kind >= PP_LOOP_KINDS || turns == 0)
        return -EINVAL;
    begin_span(out);
    for (uint32_t i = 0; i < n_marks; i++) {
        loops[kind](turns);
        marks[i] = pp_rdtsc();
    }
    end_span(out);
    return 0;
}

void pp_work_pattern(uint64_t begin_ns, uint64_t period_ns, uint64_t on_ns, pp_work_span *spans,
                      uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t start = begin_ns + i * period_ns;

        pp_sleep_until(start);
        begin_span(&spans[i]);
        while (pp_clock_ns(CLOCK_MONOTONIC) < start + on_ns)
            ;
        end_span(&spans[i]);
    }
}

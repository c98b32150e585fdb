/* Valid and invalid texts of /proc/stat. Their memory ends with the text, so that a sanitizer
 * detects a read past it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "proc_stat.h"
#include "slot.h"

enum { CPUS = 4, SIZE = 4096 };

static pp_proc_stat make(uint32_t cpus, uint32_t size)
{
    pp_proc_stat stat = {.fd = memfd_create("stat", 0), .cpus = cpus, .size = size};

    stat.text = malloc(size);
    stat.lines = calloc(cpus, sizeof *stat.lines);
    CHECK(stat.fd >= 0 && stat.text != NULL && stat.lines != NULL);
    return stat;
}

static void discard(pp_proc_stat *stat)
{
    close(stat->fd);
    free(stat->text);
    free(stat->lines);
}

static void write_text(const pp_proc_stat *stat, const char *text, size_t n)
{
    CHECK(ftruncate(stat->fd, 0) == 0);
    CHECK(pwrite(stat->fd, text, n, 0) == (ssize_t)n);
}

/* Returns the sum of the CPU's fields weighted by 1 to 8; -1 if it has no line. */
static int64_t ticks_of(const pp_proc_stat *stat, uint32_t cpu)
{
    uint64_t ticks[PP_STAT_FIELDS + 1] = {[PP_STAT_FIELDS] = 42};
    int64_t sum = 0;
    int rc = pp_proc_stat_ticks(stat, cpu, ticks);

    CHECK(ticks[PP_STAT_FIELDS] == 42 && (rc == 0 || rc == -ENODATA));
    for (int i = 0; i < PP_STAT_FIELDS; i++)
        sum += (i + 1) * (int64_t)ticks[i];
    return rc ? -1 : sum;
}

/* Checks the sums of the first three CPUs in a text. */
static void check_sums(const char *text, int64_t cpu0, int64_t cpu1, int64_t cpu2)
{
    pp_proc_stat stat = make(CPUS, SIZE);
    const int64_t expected[] = {cpu0, cpu1, cpu2, -1};

    write_text(&stat, text, strlen(text));
    errno = EIO; /* of an earlier call */
    CHECK(pp_proc_stat_read(&stat) == 0);
    for (uint32_t cpu = 0; cpu < CPUS; cpu++) {
        int64_t got = ticks_of(&stat, cpu);

        if (got != expected[cpu])
            fprintf(stderr, "'%s': CPU %d: %lld\n", text, (int)cpu, (long long)got);
        CHECK(got == expected[cpu]);
    }
    discard(&stat);
}

#define ONES " 1 1 1 1 1 1 1 1" /* 36 */
#define TWOS " 2 2 2 2 2 2 2 2" /* 72 */

static void test_lines(void)
{
    check_sums("cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 7 0 0\n"
          "intr 5 0\ncpu2" ONES "\n", 1, 56, -1); /* text after the CPUs is ignored */
    check_sums("cpu0" ONES "\ncpu2" TWOS "\n", 36, -1, 72); /* CPU 1 is off */
    check_sums("cpu2" ONES "\ncpu0" TWOS "\ncpu1" ONES, 72, 36, 36); /* in any order, no newline */
    check_sums("cpu0" ONES "\ncpu0" TWOS "\ncpu0 1 x\n", 72, -1, -1);
    check_sums("cpu0\t1\t1 \t1 1\v1\f1 1 1 \r\ncpu1" ONES " x\n", 36, 36, -1);
    check_sums("", -1, -1, -1);
    check_sums("\ncpu0" ONES "\n", -1, -1, -1);
    check_sums("cp", -1, -1, -1);
    check_sums("cpu", -1, -1, -1);
}

static void test_invalid_lines(void)
{
    check_sums("cpu0 1 1 1 1 1 1 1\ncpu1" ONES "\n", -1, 36, -1); /* not from the next line */
    check_sums("cpu0\ncpu\ncpufreq" ONES "\ncpu1" ONES "\n", -1, 36, -1);
    check_sums("cpu00" ONES "\ncpu01" ONES "\ncpu 2" ONES "\n", -1, -1, -1);
    check_sums("cpu1x" ONES "\ncpu-1" ONES "\ncpu+1" ONES "\ncpu1.0" ONES "\n", -1, -1, -1);
    check_sums("cpu4" ONES "\ncpu4294967296" ONES "\ncpu18446744073709551616" ONES "\n",
               -1, -1, -1);
    check_sums("cpu0 1 1 1 -1 1 1 1 1\ncpu1 1 1 1 1: 1 1 1 1\ncpu2 1 1 1 1.5 1 1 1 1\n",
               -1, -1, -1);
}

static void test_numbers(void)
{
    pp_proc_stat stat = make(CPUS, SIZE);
    const char *text = "cpu0 18446744073709551615 0 0 0 0 0 0 0\n"
                       "cpu1 18446744073709551616 0 0 0 0 0 0 0\n"
                       "cpu2 99999999999999999999999999 0 0 0 0 0 0 0\n";
    uint64_t ticks[PP_STAT_FIELDS];

    write_text(&stat, text, strlen(text));
    CHECK(pp_proc_stat_read(&stat) == 0);
    CHECK(pp_proc_stat_ticks(&stat, 0, ticks) == 0 && ticks[0] == UINT64_MAX && ticks[1] == 0);
    CHECK(ticks_of(&stat, 1) == -1 && ticks_of(&stat, 2) == -1);
    discard(&stat);
}

/* Each read discards the values of the one before it, even if it fails. */
static void test_repeated_reads(void)
{
    pp_proc_stat stat = make(CPUS, SIZE);
    int fd = stat.fd;

    CHECK(ticks_of(&stat, 0) == 0); /* the initial value, which is never used */
    write_text(&stat, "cpu0" ONES "\ncpu1" ONES "\n", 42);
    CHECK(pp_proc_stat_read(&stat) == 0 && ticks_of(&stat, 1) == 36);
    write_text(&stat, "cpu0" TWOS "\n", 21);
    CHECK(pp_proc_stat_read(&stat) == 0 && ticks_of(&stat, 0) == 72 && ticks_of(&stat, 1) == -1);
    stat.fd = -1;
    CHECK(pp_proc_stat_read(&stat) == -EBADF && ticks_of(&stat, 0) == -1);
    stat.fd = fd;
    CHECK(pp_proc_stat_read(&stat) == 0 && ticks_of(&stat, 0) == 72);
    discard(&stat);
}

/* Cuts the text at each byte: a line counts only with its newline, unless the text ends before the
 * memory. */
static void test_cut_text(void)
{
    const char *text = "cpu  1 1 1 1 1 1 1 1 1 1\ncpu0" ONES " 1 1\ncpu1" ONES " 1 123\n";
    size_t length = strlen(text), first = 25, second = first + 25;

    for (size_t size = 1; size <= length + 1; size++) {
        pp_proc_stat stat = make(CPUS, (uint32_t)size);

        write_text(&stat, text, length);
        CHECK(pp_proc_stat_read(&stat) == 0);
        CHECK(ticks_of(&stat, 0) == (size >= second ? 36 : -1));
        CHECK(ticks_of(&stat, 1) == (size >= length ? 36 : -1));
        discard(&stat);
    }
}

static void test_many_cpus(void)
{
    enum { MANY = 5000 };
    static char text[MANY * 64];
    pp_proc_stat few = make(CPUS, sizeof text), many = make(MANY, sizeof text);
    size_t n = 0;

    for (unsigned i = 0; i < MANY; i++)
        n += (size_t)sprintf(text + n, "cpu%u %u 0 0 0 0 0 0 0 0 0\n", i, 7 * i);
    write_text(&few, text, n);
    write_text(&many, text, n);
    CHECK(pp_proc_stat_read(&few) == 0 && pp_proc_stat_read(&many) == 0);
    for (uint32_t i = 0; i < MANY; i++) {
        CHECK(ticks_of(&many, i) == 7 * i);
        CHECK(i >= CPUS || ticks_of(&few, i) == 7 * i);
    }
    discard(&few);
    discard(&many);
}

static void test_slots(void)
{
    pp_proc_stat stat = make(CPUS, SIZE);
    pp_slot first = {.kind = PP_STAT, .fd = 2, .count = PP_STAT_FIELDS, .stat = &stat};
    pp_slot next = first;
    uint64_t value[PP_STAT_FIELDS + 1] = {[PP_STAT_FIELDS] = 42};

    next.kind = PP_STAT_LINE;
    next.fd = 1;
    CHECK(pp_slot_is_valid(&first) && pp_slot_column_mask(&first) == 0xFF);
    write_text(&stat, "cpu1" ONES "\n", 21);
    CHECK(pp_slot_read(&first, value) == -ENODATA && value[0] == 0); /* its CPU is off */
    CHECK(pp_slot_read(&next, value) == 0 && value[7] == 1 && value[8] == 42);
    write_text(&stat, "cpu1" TWOS "\n", 21);
    CHECK(pp_slot_read(&next, value) == 0 && value[7] == 1); /* it does not read the file again */
    CHECK(pp_slot_read(&first, value) == -ENODATA);
    CHECK(pp_slot_read(&next, value) == 0 && value[7] == 2);
    close(stat.fd);
    CHECK(pp_slot_read(&first, value) == -EBADF && pp_slot_read(&next, value) == -ENODATA);
    next.fd = CPUS;
    CHECK(!pp_slot_is_valid(&next));
    next.fd = -1;
    CHECK(!pp_slot_is_valid(&next));
    next.fd = 0;
    CHECK(pp_slot_is_valid(&next));
    next.count = 7;
    CHECK(!pp_slot_is_valid(&next));
    first.stat = NULL;
    CHECK(!pp_slot_is_valid(&first));
    stat.fd = -1;
    discard(&stat);
}

/* Valid texts with a few bytes changed, removed or doubled: no read past the end, and each value
 * is a number in the text. */
static void test_random_texts(void)
{
    static const char bytes[] = "0123456789 \n\tcpu-x\0\xff";
    const char *good = "cpu  9 9\ncpu0" ONES " 1\ncpu1" TWOS " 1\ncpu3 123 4 5 6 7 8 9 10\nintr 1\n";
    size_t length = strlen(good);
    uint64_t seed = 1;
    int lines = 0;

    for (int turn = 0; turn < 20000; turn++) {
        char text[512];
        size_t n = length;
        pp_proc_stat stat = make(CPUS, (uint32_t)(1 + turn % (2 * (int)length)));

        memcpy(text, good, length);
        for (int i = turn % 8; i > 0; i--) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[(seed >> 33) % n] = bytes[(seed >> 20) % (sizeof bytes - 1)];
            if (seed >> 62 == 0)
                n -= (seed >> 40) % n / 4;
        }
        write_text(&stat, text, n);
        CHECK(pp_proc_stat_read(&stat) == 0);
        for (uint32_t cpu = 0; cpu < CPUS; cpu++)
            lines += ticks_of(&stat, cpu) >= 0;
        discard(&stat);
    }
    CHECK(lines > 10000 && lines < 60000);
}

int main(void)
{
    test_lines();
    test_invalid_lines();
    test_numbers();
    test_repeated_reads();
    test_cut_text();
    test_many_cpus();
    test_slots();
    test_random_texts();
    return 0;
}

#define _GNU_SOURCE
#include "proc_stat.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* A position in a line of text, and the line's end. */
struct cursor {
    const char *at;
    const char *end;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

/* Parses the decimal number at the cursor. False: there is none, it does not fit into 64 bits, or
 * another character than a blank follows it. */
static bool parse_number(struct cursor *line, uint64_t *value)
{
    const char *begin = line->at;
    uint64_t n = 0;

    for (; line->at < line->end && !is_blank(*line->at); line->at++) {
        unsigned digit = (unsigned)*line->at - '0';

        if (digit > 9 || __builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, digit, &n))
            return false;
    }
    *value = n;
    return line->at > begin;
}

static bool parse_fields(struct cursor *line, uint64_t *ticks)
{
    for (int i = 0; i < PP_STAT_FIELDS; i++) {
        while (line->at < line->end && is_blank(*line->at))
            line->at++;
        if (!parse_number(line, &ticks[i]))
            return false;
    }
    return true;
}

/* Keeps a line that begins with the number of a CPU: not the line `cpu`, whose number is missing, or
 * `cpu07`. */
static void keep_line(pp_proc_stat *stat, struct cursor line)
{
    const char *digits = line.at;
    uint64_t cpu, ticks[PP_STAT_FIELDS];

    if (parse_number(&line, &cpu) && (*digits != '0' || line.at == digits + 1) &&
        cpu < stat->cpus && parse_fields(&line, ticks)) {
        memcpy(stat->lines[cpu].ticks, ticks, sizeof ticks);
        stat->lines[cpu].read = stat->reads;
    }
}

/* Keeps the lines of CPUs, which are the first ones of the text. */
static void keep_lines(pp_proc_stat *stat, const char *end)
{
    const char *at = stat->text;

    while (end - at >= 3 && memcmp(at, "cpu", 3) == 0) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));

        keep_line(stat, (struct cursor){at + 3, newline ? newline : end});
        if (newline == NULL)
            return;
        at = newline + 1;
    }
}

int pp_proc_stat_read(pp_proc_stat *stat)
{
    ssize_t n = pread(stat->fd, stat->text, stat->size, 0);
    const char *end;

    stat->reads++; /* invalidates the lines of the previous read */
    if (n < 0)
        return -errno;
    end = stat->text + n;
    if (n == stat->size) /* the last line may be cut off within a number, so it is not used */
        while (end > stat->text && end[-1] != '\n')
            end--;
    keep_lines(stat, end);
    return 0;
}

int pp_proc_stat_ticks(const pp_proc_stat *stat, uint32_t cpu, uint64_t *ticks)
{
    const pp_stat_line *line = &stat->lines[cpu];

    if (line->read != stat->reads)
        return -ENODATA;
    memcpy(ticks, line->ticks, sizeof line->ticks);
    return 0;
}

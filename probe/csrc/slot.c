#define _GNU_SOURCE
#include "slot.h"

#include <errno.h>
#include <unistd.h>

#include "group.h"
#include "idle_rows.h"
#include "proc_stat.h"

enum { MAX_VALID_WORDS = 8 }; /* words for the valid bits of wire.MAX_COLUMNS columns */

/* --- files ------------------------------------------------------------------------------------ */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns whether a character is part of a word. "cpu0", "0x1f", "1.5" and "0-3" are words, none of
 * which is an integer. */
static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.' || c == '-';
}

/* Parses an integer word (-?[0-9]+) to two's complement. -EINVAL: the word is not an integer.
 * -ERANGE: the value does not fit into 64 bits. */
static int parse_word(const char *word, const char *end, uint64_t *value)
{
    bool negative = *word == '-';
    bool huge = false;
    uint64_t n = 0;

    word += negative;
    if (word == end)
        return -EINVAL;
    for (; word < end; word++) {
        if (!is_digit(*word))
            return -EINVAL;
        huge |= __builtin_mul_overflow(n, 10, &n);
        huge |= __builtin_add_overflow(n, (uint64_t)(*word - '0'), &n);
    }
    if (huge || (negative && n > (uint64_t)1 << 63))
        return -ERANGE;
    *value = negative ? -n : n;
    return 0;
}

/* Parses integer number `index` (from 0) of a text. -ENODATA: the text has fewer integers. */
static int parse_nth(const char *text, const char *end, uint64_t index, uint64_t *value)
{
    while (text < end) {
        const char *word = text;

        while (text < end && is_word(*text))
            text++;
        if (text > word) {
            uint64_t n = 0;
            int rc = parse_word(word, text, &n);

            if (rc != -EINVAL && index-- == 0) {
                if (rc == 0)
                    *value = n;
                return rc;
            }
        } else {
            text++;
        }
    }
    return -ENODATA;
}

/* Reads an integer in a file of the kernel, which writes a new text for each read at offset 0. */
static int read_file(const pp_slot *slot, uint64_t *value)
{
    char text[PP_FILE_TEXT];
    ssize_t n = pread(slot->fd, text, sizeof text, 0);

    if (n < 0)
        return -errno;
    if (n == sizeof text) /* the last word may be cut off, so it is not used */
        while (n > 0 && is_word(text[n - 1]))
            n--;
    return parse_nth(text, text + n, slot->arg, value);
}

/* --- registers -------------------------------------------------------------------------------- */

/* Reads an MSR through the kernel's msr driver: eight bytes at the offset of the register's number.
 * On the register's own CPU the driver executes RDMSR; from another CPU it interrupts that CPU. */
static int read_msr(int fd, uint64_t msr, uint64_t *value)
{
    uint64_t content;
    ssize_t n = pread(fd, &content, sizeof content, (off_t)msr);

    if (n < 0)
        return -errno;
    if (n != sizeof content)
        return -EIO;
    *value = content;
    return 0;
}

static int read_field(int fd, const pp_field *field, uint64_t *value)
{
    uint64_t bits = 0;
    int rc = read_msr(fd, field->msr, &bits);

    if (rc)
        return rc;
    if (field->enable && !(bits >> field->enable & 1))
        return -ENODATA;
    bits = bits >> field->shift & (((uint64_t)1 << field->width) - 1);
    *value = field->below ? field->below - bits : bits;
    return 0;
}

static int poll_flags(int fd, pp_flags *flags, uint64_t *value)
{
    uint64_t bits = 0, *seen = flags->seen;
    int rc = read_msr(fd, flags->msr, &bits);

    if (rc)
        return rc;
    *value++ = ++flags->polls;
    for (uint32_t mask = flags->mask; mask; mask &= mask - 1, seen++) {
        *seen += bits >> __builtin_ctz(mask) & 1;
        *value++ = *seen;
    }
    return 0;
}

/* --- slots ------------------------------------------------------------------------------------ */

/* Returns the number of columns of a PP_FLAGS slot: one for the polls, and one for each bit. */
static uint32_t flags_width(const pp_flags *flags)
{
    return 1 + (uint32_t)__builtin_popcount(flags->mask);
}

static bool field_is_valid(const pp_field *field)
{
    return field->width > 0 && field->width < 64 && field->shift <= 64 - field->width &&
           field->enable < 64;
}

static bool has_line(const pp_slot *slot)
{
    return slot->stat != NULL && slot->fd >= 0 && (uint32_t)slot->fd < slot->stat->cpus;
}

static bool is_traced(const pp_slot *slot)
{
    return slot->kind >= PP_TRACED && slot->kind <= PP_TRACED + PP_IDLE_BUSY;
}

/* Returns the number of columns from slot->column to the last that the slot fills. */
static uint32_t column_count(const pp_slot *slot)
{
    return slot->count ? slot->count : 1;
}

uint64_t pp_slot_column_mask(const pp_slot *slot)
{
    if (slot->kind == PP_PERF)
        return slot->group->filled;
    return ((uint64_t)1 << column_count(slot)) - 1;
}

bool pp_slot_is_valid(const pp_slot *slot)
{
    uint32_t count = column_count(slot);

    switch (slot->kind) {
    case PP_FILE:
    case PP_MSR:
        return count == 1;
    case PP_PERF:
        return slot->group != NULL && count == slot->group->width;
    case PP_FIELD:
        return slot->field != NULL && count == 1 && field_is_valid(slot->field);
    case PP_FLAGS:
        return slot->flags != NULL && count == flags_width(slot->flags);
    case PP_STAT:
    case PP_STAT_LINE:
        return count == PP_STAT_FIELDS && has_line(slot);
    default:
        return is_traced(slot) && slot->rows != NULL && count == 1;
    }
}

int pp_slot_read(const pp_slot *slot, uint64_t *value)
{
    int rc = 0;

    switch (slot->kind) {
    case PP_FILE:
        return read_file(slot, value);
    case PP_MSR:
        return read_msr(slot->fd, slot->arg, value);
    case PP_FIELD:
        return read_field(slot->fd, slot->field, value);
    case PP_FLAGS:
        return poll_flags(slot->fd, slot->flags, value);
    case PP_PERF:
        return pp_perf_read(slot->group, value);
    case PP_STAT:
        rc = pp_proc_stat_read(slot->stat);
        /* fallthrough */
    case PP_STAT_LINE: /* PP_STAT has read the file */
        return rc ? rc : pp_proc_stat_ticks(slot->stat, (uint32_t)slot->fd, value);
    default:
        if (is_traced(slot))
            return pp_idle_value(slot->rows, slot->kind - PP_TRACED, (uint64_t)slot->fd, value);
        return -ENOSYS;
    }
}

/* --- plans ------------------------------------------------------------------------------------ */

static uint64_t end_column(const pp_slot *slot)
{
    return (uint64_t)slot->column + column_count(slot);
}

bool pp_plan_fits(uint32_t words, const pp_row *rows, uint32_t n_rows, const pp_slot *slots,
                  uint32_t n_slots)
{
    uint64_t used = 0;

    for (uint32_t i = 0; i < n_rows; i++) {
        const pp_row *row = &rows[i];

        if ((uint64_t)row->head + PP_HEAD > words || row->valid_words > MAX_VALID_WORDS ||
            (uint64_t)row->valid + row->valid_words > words || row->n_slots > n_slots - used)
            return false;
        for (uint64_t k = used; k < used + row->n_slots; k++)
            if (!pp_slot_is_valid(&slots[k]) || row->values + end_column(&slots[k]) > words ||
                end_column(&slots[k]) > 64 * (uint64_t)row->valid_words)
                return false;
        used += row->n_slots;
    }
    return used == n_slots;
}

uint32_t pp_plan_columns(const pp_slot *slots, uint32_t n)
{
    uint64_t highest = 0;

    for (uint32_t i = 0; i < n; i++)
        if (end_column(&slots[i]) > highest)
            highest = end_column(&slots[i]);
    return (uint32_t)highest;
}

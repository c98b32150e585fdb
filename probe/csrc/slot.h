/*
 * How a value is read, or several at once: a small function per kind of slot, 0 or -errno.
 */
#ifndef PP_SLOT_H
#define PP_SLOT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "idle.h"
#include "perf.h"
#include "perfprobe.h"

enum { PP_FILE_TEXT = 256 }; /* bytes of a file that are looked at */

static inline bool pp_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "cpu0", "0x1f", "1.5" and "0-3" are words, none of them an integer. */
static inline bool pp_is_word(char c)
{
    return pp_is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.' || c == '-';
}

/* The value of a word -?[0-9]+; negative ones as two's complement. -EINVAL: it is no integer. */
static inline int pp_parse_word(const char *word, const char *end, uint64_t *value)
{
    bool negative = *word == '-';
    bool huge = false;
    uint64_t n = 0;

    word += negative;
    if (word == end)
        return -EINVAL;
    for (; word < end; word++) {
        if (!pp_is_digit(*word))
            return -EINVAL;
        huge |= __builtin_mul_overflow(n, 10, &n);
        huge |= __builtin_add_overflow(n, (uint64_t)(*word - '0'), &n);
    }
    if (huge || (negative && n > (uint64_t)1 << 63))
        return -ERANGE;
    *value = negative ? -n : n;
    return 0;
}

/* The index-th integer of a text. -ENODATA: there are not so many. */
static inline int pp_parse_nth(const char *text, const char *end, uint64_t index, uint64_t *value)
{
    while (text < end) {
        const char *word = text;

        while (text < end && pp_is_word(*text))
            text++;
        if (text > word) {
            uint64_t n = 0;
            int rc = pp_parse_word(word, text, &n);

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

/* A kernel file: reading it at 0 makes its text anew, so the descriptor stays open. */
static inline int pp_read_file(const pp_slot *slot, uint64_t *value)
{
    char text[PP_FILE_TEXT];
    ssize_t n = pread(slot->fd, text, sizeof text, 0);

    if (n < 0)
        return -errno;
    if (n == sizeof text) /* the last word may go on: half a number is a wrong number */
        while (n > 0 && pp_is_word(text[n - 1]))
            n--;
    return pp_parse_nth(text, text + n, slot->arg, value);
}

/* A register: the driver takes its number as the offset and gives eight bytes. Read on its own CPU
 * it is a plain RDMSR, elsewhere an interrupt for that CPU. */
static inline int pp_read_msr(int fd, uint64_t msr, uint64_t *value)
{
    ssize_t n = pread(fd, value, sizeof *value, (off_t)msr);

    if (n < 0)
        return -errno;
    return n == sizeof *value ? 0 : -EIO;
}

static inline int pp_read_field(int fd, const pp_field *field, uint64_t *value)
{
    uint64_t bits;
    int rc = pp_read_msr(fd, field->msr, &bits);

    if (rc)
        return rc;
    if (field->enable && !(bits >> field->enable & 1))
        return -ENODATA;
    bits = bits >> field->shift & (((uint64_t)1 << field->width) - 1);
    *value = field->below ? field->below - bits : bits;
    return 0;
}

static inline int pp_poll_flags(int fd, pp_flags *flags, uint64_t *value)
{
    uint64_t bits, *seen = flags->seen;
    int rc = pp_read_msr(fd, flags->msr, &bits);

    if (rc)
        return rc;
    *value++ = ++flags->polls;
    for (uint32_t mask = flags->mask; mask; mask &= mask - 1, seen++) {
        *seen += bits >> __builtin_ctz(mask) & 1;
        *value++ = *seen;
    }
    return 0;
}

static inline void *pp_slot_state(const pp_slot *slot)
{
    return (void *)(uintptr_t)slot->arg;
}

static inline const struct pp_perf_group *pp_slot_group(const pp_slot *slot)
{
    return pp_slot_state(slot);
}

/* Columns: the polls, and one for each bit. */
static inline uint32_t pp_flags_width(const pp_flags *flags)
{
    return 1 + (uint32_t)__builtin_popcount(flags->mask);
}

static inline bool pp_field_known(const pp_field *field)
{
    return field->width > 0 && field->width < 64 && field->shift <= 64 - field->width &&
           field->enable < 64;
}

static inline uint32_t pp_slot_count(const pp_slot *slot)
{
    return slot->count ? slot->count : 1;
}

/* Bit i: it fills the i-th column from its first. */
static inline uint64_t pp_slot_filled(const pp_slot *slot)
{
    if (slot->kind == PP_PERF)
        return pp_slot_group(slot)->filled;
    return ((uint64_t)1 << pp_slot_count(slot)) - 1;
}

static inline bool pp_slot_traced(const pp_slot *slot)
{
    return slot->kind >= PP_TRACED && slot->kind <= PP_TRACED + PP_IDLE_ENTRIES;
}

static inline bool pp_slot_known(const pp_slot *slot)
{
    uint32_t count = pp_slot_count(slot);

    switch (slot->kind) {
    case PP_FILE:
    case PP_MSR:
        return count == 1;
    case PP_PERF:
        return slot->arg != 0 && count == pp_slot_group(slot)->width;
    case PP_FIELD:
        return slot->arg != 0 && count == 1 && pp_field_known(pp_slot_state(slot));
    case PP_FLAGS:
        return slot->arg != 0 && count == pp_flags_width(pp_slot_state(slot));
    default:
        return pp_slot_traced(slot) && slot->arg != 0 && count == 1;
    }
}

/* `value` has room for all columns of the slot. A failure leaves them alone. */
static inline int pp_read_slot(const pp_slot *slot, uint64_t *value)
{
    switch (slot->kind) {
    case PP_FILE:
        return pp_read_file(slot, value);
    case PP_MSR:
        return pp_read_msr(slot->fd, slot->arg, value);
    case PP_FIELD:
        return pp_read_field(slot->fd, pp_slot_state(slot), value);
    case PP_FLAGS:
        return pp_poll_flags(slot->fd, pp_slot_state(slot), value);
    case PP_PERF:
        return pp_perf_get(pp_slot_group(slot), value);
    default:
        if (pp_slot_traced(slot))
            return pp_idle_value(pp_slot_state(slot), slot->kind - PP_TRACED,
                                 (uint64_t)slot->fd, value);
        return -ENOSYS;
    }
}

#endif

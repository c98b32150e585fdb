/*
 * How one value is read: a small function per kind of slot, 0 or -errno.
 */
#ifndef PP_SLOT_H
#define PP_SLOT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

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

static inline bool pp_slot_known(const pp_slot *slot)
{
    return slot->kind == PP_FILE;
}

static inline int pp_read_slot(const pp_slot *slot, uint64_t *value)
{
    switch (slot->kind) {
    case PP_FILE:
        return pp_read_file(slot, value);
    default:
        return -ENOSYS;
    }
}

#endif

/* 
 * A ring of equal entries of u64 words, with one producer (the lane's thread) and one consumer (the
 * thread that drains). Source: ring.c; the functions of the sampling path are inline here.
 *
 * A full ring refuses new entries: a producer that dropped the oldest entry could overwrite it
 * while the consumer copies it. So only the consumer advances `tail`. */
#ifndef PP_RING_H
#define PP_RING_H

#include <stddef.h>
#include <stdint.h>

#include "barrier.h"

enum { PP_CACHE_LINE = 64 };

struct pp_ring {
    /* Numbers of entries that were pushed and popped so far. They are on different cache lines, so
     * that a write to one does not invalidate the line of the other. */
    _Alignas(PP_CACHE_LINE) _Atomic uint64_t head; /* written by the producer */
    _Alignas(PP_CACHE_LINE) _Atomic uint64_t tail; /* written by the consumer */
    _Alignas(PP_CACHE_LINE) uint64_t *data;        /* this cache line is constant */
    uint64_t capacity;                             /* number of entries, a power of two */
    uint64_t words;                                /* number of words in an entry */
};

/* Creates a ring of at least `min_entries` entries of `words` words each. 0 or -ENOMEM. */
int pp_ring_init(struct pp_ring *r, uint64_t min_entries, uint64_t words);
void pp_ring_free(struct pp_ring *r);

static inline uint64_t *pp_ring_entry(const struct pp_ring *r, uint64_t n)
{
    return r->data + (n & (r->capacity - 1)) * r->words;
}

/* Producer: returns the entry to fill, invisible until the push. NULL: the ring is full. */
static inline uint64_t *pp_ring_reserve(struct pp_ring *r)
{
    uint64_t head = pp_read_once(&r->head); /* only the producer writes `head` */

    /* Pairs with pp_ring_pop: the consumer no longer reads the entry that is overwritten. */
    if (head - pp_load_acquire(&r->tail) == r->capacity)
        return NULL;
    return pp_ring_entry(r, head);
}

/* Producer: makes the reserved entry visible. */
static inline void pp_ring_push(struct pp_ring *r)
{
    /* The release makes the words of the entry visible before the new head. */
    pp_store_release(&r->head, pp_read_once(&r->head) + 1);
}

/* Consumer: returns the oldest entry, or NULL. The entry stays valid until the pop. */
static inline const uint64_t *pp_ring_peek(struct pp_ring *r)
{
    uint64_t tail = pp_read_once(&r->tail); /* only the consumer writes `tail` */

    /* Pairs with pp_ring_push: all words of the entry are visible. */
    if (pp_load_acquire(&r->head) == tail)
        return NULL;
    return pp_ring_entry(r, tail);
}

/* Consumer: frees the oldest entry. */
static inline void pp_ring_pop(struct pp_ring *r)
{
    /* The release orders the consumer's reads of the entry before the new tail. */
    pp_store_release(&r->tail, pp_read_once(&r->tail) + 1);
}

/* Consumer: returns the number of entries; exact only while the producer is not running. */
static inline uint64_t pp_ring_fill(struct pp_ring *r)
{
    return pp_load_acquire(&r->head) - pp_read_once(&r->tail);
}

#endif

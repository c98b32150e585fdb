/*
 * A ring of equal entries of u64 words, with one producer (the lane) and one consumer (who drains).
 *
 * A full ring refuses the new entry. Only the consumer may move `tail`: a producer that took the
 * oldest entry away could overwrite it while the consumer copies it.
 */
#ifndef PP_RING_H
#define PP_RING_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "barrier.h"

enum { PP_CACHE_LINE = 64 };

struct pp_ring {
    /* Count up without end; the difference is the fill. Apart, so that writing one does not take
     * the other's cache line away. */
    _Alignas(PP_CACHE_LINE) _Atomic uint64_t head; /* written by the producer */
    _Alignas(PP_CACHE_LINE) _Atomic uint64_t tail; /* written by the consumer */
    _Alignas(PP_CACHE_LINE) uint64_t *data;        /* this line is constant */
    uint64_t capacity;                             /* entries, a power of two */
    uint64_t words;                                /* in an entry */
};

static inline int pp_ring_init(struct pp_ring *r, uint64_t at_least, uint64_t words)
{
    uint64_t capacity = 1;

    while (capacity < at_least)
        capacity *= 2;
    r->data = calloc(capacity * words, sizeof *r->data);
    if (r->data == NULL)
        return -ENOMEM;
    r->capacity = capacity;
    r->words = words;
    atomic_init(&r->head, 0);
    atomic_init(&r->tail, 0);
    return 0;
}

static inline void pp_ring_free(struct pp_ring *r)
{
    free(r->data);
    r->data = NULL;
}

static inline uint64_t *pp_ring_entry(const struct pp_ring *r, uint64_t n)
{
    return r->data + (n & (r->capacity - 1)) * r->words;
}

/* Producer: the entry to fill, or NULL if the ring is full. Nothing is visible before the push. */
static inline uint64_t *pp_ring_reserve(struct pp_ring *r)
{
    uint64_t head = pp_read_once(&r->head); /* our own */

    /* Pairs with the pop: the consumer has finished reading the entry we are about to overwrite. */
    if (head - pp_load_acquire(&r->tail) == r->capacity)
        return NULL;
    return pp_ring_entry(r, head);
}

/* Producer: hands the reserved entry over. */
static inline void pp_ring_push(struct pp_ring *r)
{
    /* The words of the entry must be seen before the head that covers them. */
    pp_store_release(&r->head, pp_read_once(&r->head) + 1);
}

/* Consumer: the oldest entry, or NULL. It stays valid until the pop. */
static inline const uint64_t *pp_ring_peek(struct pp_ring *r)
{
    uint64_t tail = pp_read_once(&r->tail); /* our own */

    /* Pairs with the push: the words of the entry are all there. */
    if (pp_load_acquire(&r->head) == tail)
        return NULL;
    return pp_ring_entry(r, tail);
}

/* Consumer: gives the oldest entry back. */
static inline void pp_ring_pop(struct pp_ring *r)
{
    /* Our reads of the entry must be done before the producer sees that it is free. */
    pp_store_release(&r->tail, pp_read_once(&r->tail) + 1);
}

/* Entries not popped; exact only when the producer stands still. */
static inline uint64_t pp_ring_fill(struct pp_ring *r)
{
    return pp_load_acquire(&r->head) - pp_read_once(&r->tail);
}

#endif

#include "ring.h"

#include <errno.h>
#include <stdlib.h>

int pp_ring_init(struct pp_ring *r, uint64_t min_entries, uint64_t words)
{
    uint64_t capacity = 1;

    while (capacity < min_entries)
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

void pp_ring_free(struct pp_ring *r)
{
    free(r->data);
    r->data = NULL;
}

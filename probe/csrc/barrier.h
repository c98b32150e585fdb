/*
 * The few memory orderings used here, named as in liburing; other code never spells an order
 * itself. Macros and one inline function: this header has no source.
 *
 * store_release: whoever sees the stored value by load_acquire sees all that this thread wrote
 *                before it.
 * load_acquire:  the other half of the pair.
 * read_once, write_once: the value is not torn. They order no other memory.
 */
#ifndef PP_BARRIER_H
#define PP_BARRIER_H

#include <stdatomic.h>
#include <stdint.h>

#define pp_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define pp_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define pp_write_once(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define pp_read_once(p) atomic_load_explicit((p), memory_order_relaxed)

/* A counter with one writer needs no locked instruction. Its readers see no torn value. */
static inline void pp_count(_Atomic uint64_t *counter, uint64_t n)
{
    pp_write_once(counter, pp_read_once(counter) + n);
}

#endif

/*
 * The few memory orderings used here, named as in liburing; other code never names an order
 * itself. This header has only macros and one inline function, and no source file.
 *
 * store_release: a thread that sees the stored value by load_acquire sees everything that this
 *                thread wrote before.
 * load_acquire:  the other half of the pair.
 * read_once, write_once: the value is not torn; other accesses are not ordered.
 */
#ifndef PP_BARRIER_H
#define PP_BARRIER_H

#include <stdatomic.h>
#include <stdint.h>

#define pp_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define pp_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define pp_write_once(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define pp_read_once(p) atomic_load_explicit((p), memory_order_relaxed)

/* Adds to a counter with one writer, which needs no locked instruction. Readers see no torn
 * value. */
static inline void pp_count(_Atomic uint64_t *counter, uint64_t n)
{
    pp_write_once(counter, pp_read_once(counter) + n);
}

#endif

/*
 * Atomic loads and stores, named as in liburing. Other files use only these.
 *
 * store_release, load_acquire: a thread that loads the stored value also sees everything that the
 *                              storing thread wrote before.
 * read_once, write_once: the value is read or written as a whole; other accesses are not ordered.
 */
#ifndef PP_BARRIER_H
#define PP_BARRIER_H

#include <stdatomic.h>
#include <stdint.h>

#define pp_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define pp_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define pp_write_once(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define pp_read_once(p) atomic_load_explicit((p), memory_order_relaxed)

/* Adds to a counter that only one thread writes, so that no locked instruction is needed. */
static inline void pp_count(_Atomic uint64_t *counter, uint64_t n)
{
    pp_write_once(counter, pp_read_once(counter) + n);
}

#endif

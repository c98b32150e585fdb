/*
 * The few memory orderings used here, named as in liburing: logic never spells an order itself.
 *
 * store_release: what this thread wrote before is seen by whoever sees the stored value ...
 * load_acquire:  ... and reads it by this.
 * read_once, write_once: a value of its own, not torn; says nothing about other memory.
 */
#ifndef PP_BARRIER_H
#define PP_BARRIER_H

#include <stdatomic.h>
#include <stdint.h>

#define pp_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define pp_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define pp_write_once(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define pp_read_once(p) atomic_load_explicit((p), memory_order_relaxed)

/* A counter with one writer needs no locked instruction, only that readers see no torn value. */
static inline void pp_count(_Atomic uint64_t *counter, uint64_t n)
{
    pp_write_once(counter, pp_read_once(counter) + n);
}

#endif

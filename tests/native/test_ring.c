/*
 * A full ring refuses new entries; the reader gets every entry once, whole and in order.
 */
#define _GNU_SOURCE
#include "ring.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "check.h"
#include "cpus.h"

enum { WORDS = 5, ENTRIES = 10000 };

static int cpus[2], n_cpus;

/* On a busy machine the threads must not share a CPU: each hand-over would cost a time slice of
 * another program. On two CPUs they only wait until both run at once. */
static void take_cpu(int i)
{
    if (n_cpus == 2)
        pin(cpus[i]);
}

static void wait_a_little(void)
{
    if (n_cpus < 2)
        sched_yield();
}

static bool no_memory;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    return no_memory ? NULL : __real_calloc(n, size);
}

static void test_full_ring_refuses_new_entries(void)
{
    static struct pp_ring ring;
    uint64_t *entry;

    for (uint64_t entries = 1; entries <= 4; entries++) {
        CHECK(pp_ring_init(&ring, entries, WORDS) == 0);
        CHECK(ring.capacity == (entries == 3 ? 4 : entries));
        CHECK(pp_ring_fill(&ring) == 0 && pp_ring_peek(&ring) == NULL);
        pp_ring_push(&ring); /* the next ring begins empty, whatever this one had */
        pp_ring_pop(&ring);
        pp_ring_push(&ring);
        pp_ring_free(&ring);
    }
    no_memory = true;
    CHECK(pp_ring_init(&ring, 4, WORDS) == -ENOMEM);
    no_memory = false;
    CHECK(pp_ring_init(&ring, 4, WORDS) == 0);
    CHECK(pp_ring_fill(&ring) == 0);
    for (uint64_t n = 0; n < 4; n++) {
        entry = pp_ring_reserve(&ring);
        CHECK(entry != NULL);
        entry[0] = n;
        CHECK(pp_ring_fill(&ring) == n); /* reserved is not pushed */
        pp_ring_push(&ring);
    }
    CHECK(pp_ring_reserve(&ring) == NULL);
    CHECK(pp_ring_peek(&ring)[0] == 0);
    pp_ring_pop(&ring);
    entry = pp_ring_reserve(&ring);
    CHECK(entry != NULL);
    entry[0] = 4;
    pp_ring_push(&ring);
    for (uint64_t n = 1; n < 5; n++) {
        CHECK(pp_ring_peek(&ring)[0] == n);
        pp_ring_pop(&ring);
    }
    CHECK(pp_ring_peek(&ring) == NULL);
    pp_ring_free(&ring);
}

static void *produce(void *arg)
{
    struct pp_ring *ring = arg;

    take_cpu(1);
    for (uint64_t n = 1; n <= ENTRIES; n++) {
        uint64_t *entry;

        while ((entry = pp_ring_reserve(ring)) == NULL)
            wait_a_little();
        for (int i = 0; i < WORDS; i++)
            entry[i] = n * (uint64_t)(i + 1);
        pp_ring_push(ring);
    }
    return NULL;
}

static void test_entries_are_whole_and_in_order(void)
{
    static struct pp_ring ring;
    pthread_t producer;

    CHECK(pp_ring_init(&ring, 8, WORDS) == 0);
    n_cpus = own_cpus(cpus);
    take_cpu(0);
    CHECK(pthread_create(&producer, NULL, produce, &ring) == 0);
    for (uint64_t n = 1; n <= ENTRIES; n++) {
        const uint64_t *entry;

        while ((entry = pp_ring_peek(&ring)) == NULL)
            wait_a_little();
        for (int i = 0; i < WORDS; i++)
            CHECK(entry[i] == n * (uint64_t)(i + 1));
        pp_ring_pop(&ring);
    }
    CHECK(pthread_join(producer, NULL) == 0);
    CHECK(pp_ring_fill(&ring) == 0);
    pp_ring_free(&ring);
}

int main(void)
{
    test_full_ring_refuses_new_entries();
    test_entries_are_whole_and_in_order();
    return 0;
}

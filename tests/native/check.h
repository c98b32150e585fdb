/* Macros and helpers of all test programs. Exit: 0 passed, 1 failed, 77 skipped. */
#ifndef PP_CHECK_H
#define PP_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SKIPPED = 77 };

#define CHECK(what)                                                         \
    do {                                                                    \
        if (!(what)) {                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);      \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

static inline void nap_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

/* Waits for a condition, and fails after 20 s; no working machine is that slow. */
#define WAIT_FOR(what)                          \
    for (int ms_ = 0; !(what); ms_++, nap_ms(1)) \
        CHECK(ms_ < 20000 && #what)

#endif

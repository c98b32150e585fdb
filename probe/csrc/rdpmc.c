#define _GNU_SOURCE
#include "rdpmc.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <ucontext.h>

/*
 * int pp_rdpmc(uint32_t counter, uint64_t *count). It is assembly because the handler has to know
 * the one instruction that may fault and where to go on; a label within C may be copied.
 */
__asm__(".pushsection .text\n"
        ".globl pp_rdpmc, pp_rdpmc_faulting, pp_rdpmc_refused\n"
        ".hidden pp_rdpmc, pp_rdpmc_faulting, pp_rdpmc_refused\n"
        ".type pp_rdpmc, @function\n"
        "pp_rdpmc:\n"
        "    movl %edi, %ecx\n"
        "pp_rdpmc_faulting:\n"
        "    rdpmc\n"
        "    movl %eax, (%rsi)\n"
        "    movl %edx, 4(%rsi)\n"
        "    xorl %eax, %eax\n"
        "    ret\n"
        "pp_rdpmc_refused:\n"
        "    movl $1, %eax\n"
        "    ret\n"
        ".size pp_rdpmc, . - pp_rdpmc\n"
        ".popsection\n");

extern const char pp_rdpmc_faulting[], pp_rdpmc_refused[];

static struct sigaction before;

/* Returning to another instruction is all that it does, so it may run at any moment. The handler
 * before ours sees the fault again, as if it came first. */
static void handle(int number, siginfo_t *info, void *context)
{
    greg_t *at = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

    (void)info;
    if (*at == (greg_t)(uintptr_t)pp_rdpmc_faulting)
        *at = (greg_t)(uintptr_t)pp_rdpmc_refused;
    else
        sigaction(number, &before, NULL);
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &before);
}

void pp_rdpmc_guard(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, install);
}

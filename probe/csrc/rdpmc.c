#define _GNU_SOURCE
#include "rdpmc.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <ucontext.h>

/* 
 * int pp_rdpmc(uint32_t counter, uint64_t *count), in assembly, because the signal handler needs
 * the addresses of the instruction that may fault and of the one at which to continue; a compiler
 * may duplicate labels in C code. */
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

static struct sigaction previous;

/* Handles SIGSEGV. After a refused RDPMC, execution continues at pp_rdpmc_refused. Any other signal
 * is passed to the previous handler; this handler stays installed, so that a later refused RDPMC
 * does not kill the process. */
static void handle_segv(int number, siginfo_t *info, void *context)
{
    greg_t *at = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    int sent = info->si_code <= 0; /* the signal was sent by a process, not by a fault */

    if (!sent && *at == (greg_t)(uintptr_t)pp_rdpmc_faulting) {
        *at = (greg_t)(uintptr_t)pp_rdpmc_refused;
    } else if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(number, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(number);
    } else if (previous.sa_handler == SIG_DFL || !sent) {
        signal(number, SIG_DFL); /* the fault is repeated, and ends the process */
        if (sent)
            raise(number);
    }
}

static void install_handler(void)
{
    struct sigaction action = {.sa_sigaction = handle_segv, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous);
}

void pp_rdpmc_guard(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, install_handler);
}

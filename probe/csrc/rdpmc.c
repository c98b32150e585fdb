#define _GNU_SOURCE
#include "rdpmc.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <ucontext.h>

/*
 * int pp_rdpmc(uint32_t counter, uint64_t *count). This is assembly because the handler needs the
 * address of the one instruction that may fault and the address at which to continue; a compiler
 * may duplicate a label within C.
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

/* After a refused RDPMC, execution continues at another instruction, which is safe at any moment.
 * Any other signal goes to the previous handler, and this handler stays installed: after a SIGSEGV
 * that another process sent, the next refused RDPMC must not kill the process. */
static void handle(int number, siginfo_t *info, void *context)
{
    greg_t *at = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    int sent = info->si_code <= 0; /* the signal was sent by a process, not by a fault */

    if (!sent && *at == (greg_t)(uintptr_t)pp_rdpmc_faulting) {
        *at = (greg_t)(uintptr_t)pp_rdpmc_refused;
    } else if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else if (before.sa_handler == SIG_DFL || !sent) {
        signal(number, SIG_DFL); /* the fault is repeated, and ends the process */
        if (sent)
            raise(number);
    }
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

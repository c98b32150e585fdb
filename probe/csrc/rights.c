#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "perfprobe.h"

enum { CAPABILITIES = 64 }; /* maximum number of capabilities of a kernel */

/* Keeps a program that this thread executes from getting more rights than the thread, by a
 * set-user-ID file or because it runs as root. Errors are ignored, because old kernels lack these
 * calls, and capset suffices for the thread itself. */
static void prevent_regaining(uint64_t keep)
{
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    for (unsigned long i = 0; i < CAPABILITIES; i++) /* this call fails without CAP_SETPCAP */
        if (!(keep >> i & 1))
            prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
}

/* Uses the system call: the C library has no function for capabilities, and its set*id functions
 * would change all threads. */
int pp_keep_capabilities(uint64_t keep)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];

    prevent_regaining(keep);
    if (syscall(SYS_capget, &header, sets))
        return -errno;
    for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
        sets[i].permitted &= (uint32_t)(keep >> 32 * i);
        sets[i].effective &= sets[i].permitted;
        sets[i].inheritable = 0;
    }
    return syscall(SYS_capset, &header, sets) ? -errno : 0;
}

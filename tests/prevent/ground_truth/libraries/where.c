/* Preloaded: says which library an illegal instruction was in and what it was, and ends as the signal would. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>
/* qemu-user 7.2 enters handlers with a stack that is not aligned as the ABI has it. */
__attribute__((force_align_arg_pointer)) static void on_illegal(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    char line[4200];
    Dl_info found;
    const unsigned char *at = (const unsigned char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    memset(&found, 0, sizeof found);
    dladdr(at, &found);
    int length = snprintf(line, sizeof line, "\nSIGILL at ");
    for (int i = 0; i < 15; i++) length += snprintf(line + length, 3, "%02x", at[i]);
    length += snprintf(line + length, sizeof line - length, " in %s\n", found.dli_fname ? found.dli_fname : "generated code");
    if (write(2, line, length) < 0) _exit(3);
    _exit(132);
}
__attribute__((constructor)) static void begin(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_illegal;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, 0);
}

/* One way to die per name; each through a few frames that gdb can name. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include <alloca.h>

#define NOINLINE __attribute__((noinline, noclone))

volatile int sink;
void *volatile nowhere;

NOINLINE static int null_read(int *p) { sink += 1; return *p + sink; }
NOINLINE static void null_call(void) { void (*f)(void) = nowhere; f(); sink += 1; }
NOINLINE static void data_call(void) { static char data[64]; ((void (*)(void))(uintptr_t)data)(); sink += 1; }
NOINLINE static void trap(void) { sink += 1; __builtin_trap(); }
#ifdef __x86_64__
/* vfmaddps xmm0, xmm0, xmm0, xmm0: AMD's FMA4, which no Intel CPU has. */
NOINLINE static void fma4(void) { __asm__ volatile(".byte 0xc4, 0xe3, 0x79, 0x68, 0xc0, 0x00"); sink += 1; }
#else
NOINLINE static void fma4(void) { sink += 1; }
#endif
/* Hand-written assembly: no size, no unwind table, and a neighbour that is not it. */
#ifdef __x86_64__
__asm__(".text\n.globl sizeless\nsizeless:\n nop\n ud2\n"
        ".globl neighbour\n.type neighbour, @function\nneighbour:\n ret\n.size neighbour, .-neighbour\n");
void sizeless(void);
#else
static void sizeless(void) {}
#endif
NOINLINE static int divide(int a, int b) { return a / b; }
NOINLINE static void non_canonical(void) { sink += *(volatile int *)(uintptr_t)0xdead000000000010ull; }
NOINLINE static int recurse(int n) { volatile char pad[256]; pad[n & 255] = 1; return recurse(n + 1) + pad[n & 255]; }
NOINLINE static void in_handler(int signal) { (void)signal; sink = null_read(nowhere); }
NOINLINE static void from_handler(void) { struct sigaction action; memset(&action, 0, sizeof action); action.sa_handler = in_handler; sigaction(SIGUSR1, &action, NULL); raise(SIGUSR1); sink += 1; }
/* alloca moves the stack pointer, so the table needs another register; -O2 picks rbp itself here. */
NOINLINE static void dynamic_frame(int n) { char *p = alloca(n); memset(p, 1, n); sink = p[n / 2]; null_call(); sink += p[0]; }
/* An over-aligned local gives the r10 prologue and the CFA expression of vectorised kernels. */
NOINLINE static void aligned_frame(int n) { __attribute__((aligned(64))) volatile char b[256]; char *p = alloca(n); b[n & 255] = 1; p[0] = 1; sink = b[3] + p[0]; null_call(); sink += b[n & 255]; }
/* The kernel's own code in the process: no file, only memory. */
NOINLINE static void in_vdso(void) { clock_gettime(CLOCK_MONOTONIC, (struct timespec *)(uintptr_t)(8 + sink)); sink += 1; }
static void *in_thread(void *p) { sink = null_read(p); return NULL; }
NOINLINE static void thread(void) { pthread_t t; pthread_create(&t, NULL, in_thread, NULL); pthread_join(t, NULL); sink += 1; }

NOINLINE static void die(const char *how) {
    if (!strcmp(how, "null-read")) sink = null_read(nowhere);
    if (!strcmp(how, "null-call")) null_call();
    if (!strcmp(how, "data-call")) data_call();
    if (!strcmp(how, "trap")) trap();
    if (!strcmp(how, "fma4")) fma4();
    if (!strcmp(how, "divide")) sink = divide(sink + 100, sink);
    if (!strcmp(how, "non-canonical")) non_canonical();
    if (!strcmp(how, "recursion")) sink = recurse(1);
    if (!strcmp(how, "handler")) from_handler();
    if (!strcmp(how, "dynamic-frame")) dynamic_frame(100 + sink);
    if (!strcmp(how, "aligned-frame")) aligned_frame(100 + sink);
    if (!strcmp(how, "thread")) thread();
    if (!strcmp(how, "sizeless")) sizeless();
    if (!strcmp(how, "vdso")) in_vdso();
    if (!strcmp(how, "abort")) abort();
    sink += 1;
}

int main(int argc, char **argv) { die(argc > 1 ? argv[1] : "abort"); return sink; }

/* One library for each extension of aarch64 that kills: WHAT says which. */
#include <stddef.h>
#include <sys/auxv.h>
#if WHAT == 2 || WHAT == 4
#include <arm_neon.h>
#endif
int data[64], counter;
#define KERNEL(name, expression) \
    __attribute__((noinline)) void name(int *a, const int *b, size_t n) { for (size_t i = 0; i < n; i++) a[i] = (expression); }
#if WHAT == 0 /* what every CPU has; with SVE, whatever the compiler makes of it */
KERNEL(k0, a[i] + b[i]) KERNEL(k1, a[i] * b[i]) KERNEL(k2, a[i] - b[i]) KERNEL(k3, a[i] & b[i]) KERNEL(k4, a[i] | b[i])
KERNEL(k5, a[i] ^ b[i]) KERNEL(k6, a[i] + 3 * b[i]) KERNEL(k7, b[i] > 3 ? a[i] : b[i]) KERNEL(k8, a[i] * 7) KERNEL(k9, -a[i])
int work(void) {
    k0(data, data, 64); k1(data, data, 64); k2(data, data, 64); k3(data, data, 64); k4(data, data, 64);
    k5(data, data, 64); k6(data, data, 64); k7(data, data, 64); k8(data, data, 64); k9(data, data, 64);
    return 1;
}
#elif WHAT == 1 /* an atomic addition: with +lse in one instruction, else in a loop, or by a function that asks */
int work(void) { return __atomic_add_fetch(&counter, 1, __ATOMIC_SEQ_CST); }
#elif WHAT == 2 /* a dot product */
int work(void) {
    int8x16_t a = vld1q_s8((const signed char *)data);
    return vgetq_lane_s32(vdotq_s32(vdupq_n_s32(0), a, a), 0) + 1;
}
#else /* SVE or a dot product, behind a question to the kernel */
#if WHAT == 3
#include <arm_sve.h>
__attribute__((noinline, target("+sve"))) static int wide(void) { return (int)svcntb(); }
#define ASKED (1 << 22)
#else
__attribute__((noinline, target("+dotprod"))) static int wide(void) {
    int8x16_t a = vld1q_s8((const signed char *)data);
    return vgetq_lane_s32(vdotq_s32(vdupq_n_s32(0), a, a), 0) + 1;
}
#define ASKED (1 << 20)
#endif
int work(void) { return getauxval(AT_HWCAP) & ASKED ? wide() : 2; }
#endif

/* Asks for one extension and runs another: dies only on the CPUs between the two. HOW says how it asks. */
#include <cpuid.h>
#include <immintrin.h>
#include <stddef.h>
int data[64];
__attribute__((target("avx2"), noinline)) static int wide(const int *a, size_t n) {
    __m256i total = _mm256_setzero_si256();
    for (size_t i = 0; i + 8 <= n; i += 8) total = _mm256_add_epi32(total, _mm256_loadu_si256((const __m256i *)(a + i)));
    return _mm256_extract_epi32(total, 0);
}
__attribute__((noinline)) static int narrow(const int *a, size_t n) {
    int total = 0;
    for (size_t i = 0; i < n; i++) total += a[i];
    return total;
}
#if HOW == 1 /* the compiler's own guard */
int work(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx") ? wide(data, 64) : narrow(data, 64);
}
#elif HOW == 2 /* cpuid on the spot, with the check of the operating system */
int work(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (bit_AVX | bit_OSXSAVE)) != (bit_AVX | bit_OSXSAVE)) return narrow(data, 64);
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 6) == 6 ? wide(data, 64) : narrow(data, 64);
}
#elif HOW == 3 /* two answers, kept side by side; the wrong one is looked at */
static int has_avx, has_avx2;
__attribute__((constructor)) static void ask(void) {
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) has_avx = c >> 28 & 1;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) has_avx2 = b >> 5 & 1;
}
int other(void) { return has_avx2 ? wide(data, 32) : narrow(data, 32); }
int work(void) { return has_avx ? wide(data, 64) : narrow(data, 64); }
#elif HOW == 4 /* a small function that hands on the answer */
__attribute__((noinline)) static int can(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_AVX;
}
int work(void) { return can() ? wide(data, 64) : narrow(data, 64); }
#elif HOW == 5 /* a pointer that is chosen once */
static int (*chosen)(const int *, size_t) = narrow;
__attribute__((constructor)) static void choose(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx")) chosen = wide;
}
int work(void) { return chosen(data, 64); }
#elif HOW == 6 /* the loader is told */
static int (*pick(void))(const int *, size_t) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx") ? wide : narrow;
}
int sum(const int *, size_t) __attribute__((ifunc("pick")));
int work(void) { return sum(data, 64); }
#elif HOW == 7 /* AVX2 is asked for, and FMA comes with it */
float more[64];
__attribute__((target("avx2,fma"), noinline)) static float fused(const float *a) {
    __m256 v = _mm256_loadu_ps(a);
    return _mm256_cvtss_f32(_mm256_fmadd_ps(v, v, v));
}
int work(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") ? (int)fused(more) + wide(data, 64) : narrow(data, 64);
}
#else /* as HOW 3, and right */
static int has_avx, has_avx2;
__attribute__((constructor)) static void ask(void) {
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) has_avx = c >> 28 & 1;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) has_avx2 = b >> 5 & 1;
}
__attribute__((target("avx"), noinline)) static float middle(void) { return _mm256_cvtss_f32(_mm256_set1_ps(1)); }
int work(void) { return has_avx2 ? wide(data, 64) : has_avx ? (int)middle() : narrow(data, 64); }
#endif

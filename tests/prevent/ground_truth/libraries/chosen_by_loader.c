/* IFUNC: the loader asks. */
#include <immintrin.h>
#include <stddef.h>
static void plain(float *a, size_t n) { for (size_t i = 0; i < n; i++) a[i] += 1; }
__attribute__((target("avx2"))) static void wide(float *a, size_t n) {
    for (size_t i = 0; i + 8 <= n; i += 8) _mm256_storeu_ps(a + i, _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_set1_ps(1)));
}
static void (*pick(void))(float *, size_t) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") ? wide : plain;
}
void bump(float *, size_t) __attribute__((ifunc("pick")));
float data[64];
int work(void) { bump(data, 64); return data[2] == 1; }

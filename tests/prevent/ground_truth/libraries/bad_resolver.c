/* The resolver itself was compiled for AVX: it dies while the loader relocates. */
#include <immintrin.h>
#include <stddef.h>
static void plain(float *a, size_t n) { for (size_t i = 0; i < n; i++) a[i] += 1; }
static volatile float seen[8];
__attribute__((target("avx"))) static void (*pick(void))(float *, size_t) {
    _mm256_storeu_ps((float *)seen, _mm256_set1_ps(1));
    return plain;
}
void bump(float *, size_t) __attribute__((ifunc("pick")));
float data[64];
int work(void) { bump(data, 64); return 1; }

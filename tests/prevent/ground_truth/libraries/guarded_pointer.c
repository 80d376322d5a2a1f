/* Asks once while it is loaded, keeps a pointer, calls through it. */
#include <cpuid.h>
#include <immintrin.h>
#include <stddef.h>
typedef void kernel(float *, const float *, size_t);
static void plain(float *a, const float *b, size_t n) { for (size_t i = 0; i < n; i++) a[i] += b[i]; }
__attribute__((target("avx2"))) static void wide(float *a, const float *b, size_t n) {
    for (size_t i = 0; i + 8 <= n; i += 8) _mm256_storeu_ps(a + i, _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
    __m256i x = _mm256_set1_epi32((int)n);
    a[0] = (float)_mm256_extract_epi32(_mm256_add_epi32(x, x), 0);
}
static kernel *chosen = plain;
__attribute__((constructor)) static void choose(void) {
    unsigned a, b, c, d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 5 & 1) chosen = wide;
}
float data[64], more[64];
int work(void) { chosen(data, more, 64); return 1; }

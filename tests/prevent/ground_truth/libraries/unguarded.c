/* A guard for one kernel, none for the other. */
#include <immintrin.h>
#include <stddef.h>
__attribute__((target("avx2"), noinline)) static int wide(const int *a, size_t n) {
    __m256i total = _mm256_setzero_si256();
    for (size_t i = 0; i + 8 <= n; i += 8) total = _mm256_add_epi32(total, _mm256_loadu_si256((const __m256i *)(a + i)));
    return _mm256_extract_epi32(total, 0);
}
__attribute__((target("fma"), noinline)) static float fused(float a) { return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(a), _mm_set_ss(a))); }
int data[64];
int other(void) { __builtin_cpu_init(); return __builtin_cpu_supports("fma") ? (int)fused(2) : 6; }
int work(void) { return wide(data, 64) + 1; }

/* The compiler's own guard. */
#include <immintrin.h>
#include <stddef.h>
__attribute__((target("avx2,fma"))) void sum_avx2(float *a, const float *b, size_t n) {
    for (size_t i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(a + i, _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), _mm256_set1_ps(1)));
}
void sum_plain(float *a, const float *b, size_t n) { for (size_t i = 0; i < n; i++) a[i] = a[i] * b[i] + 1; }
float data[64], more[64];
int work(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sum_avx2(data, more, 64);
    else sum_plain(data, more, 64);
    return data[5] == 1;
}

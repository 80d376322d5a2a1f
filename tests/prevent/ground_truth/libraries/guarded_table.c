/* A table of kernels by level, as image libraries have them. */
#include <immintrin.h>
#include <stddef.h>
typedef void kernel(int *, size_t);
static void plain(int *a, size_t n) { for (size_t i = 0; i < n; i++) a[i] += 3; }
__attribute__((target("avx2"))) static void wide(int *a, size_t n) {
    for (size_t i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_si256((__m256i *)(a + i), _mm256_add_epi32(_mm256_loadu_si256((__m256i *)(a + i)), _mm256_set1_epi32(3)));
}
__attribute__((target("avx512f"))) static void widest(int *a, size_t n) {
    for (size_t i = 0; i + 16 <= n; i += 16)
        _mm512_storeu_si512(a + i, _mm512_add_epi32(_mm512_loadu_si512(a + i), _mm512_set1_epi32(3)));
}
static kernel *const kernels[] = {plain, wide, widest};
static int level = -1;
static int detect(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") ? 2 : __builtin_cpu_supports("avx2") ? 1 : 0;
}
int data[64];
int work(void) {
    if (level < 0) level = detect();
    kernels[level](data, 64);
    return data[4] == 3;
}

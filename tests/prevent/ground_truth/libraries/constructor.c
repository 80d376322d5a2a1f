/* A guarded kernel, whose file has a constructor that was compiled for AVX2 as well. */
#include <immintrin.h>
#include <stddef.h>
int table[64];
__attribute__((target("avx2"), constructor)) static void fill(void) {
    for (int i = 0; i < 64; i += 8) _mm256_storeu_si256((__m256i *)(table + i), _mm256_add_epi32(_mm256_set1_epi32(i), _mm256_set1_epi32(1)));
}
__attribute__((target("avx2"))) static int wide(void) { return _mm256_extract_epi32(_mm256_loadu_si256((__m256i *)table), 2); }
int work(void) { __builtin_cpu_init(); return __builtin_cpu_supports("avx2") ? wide() : table[0]; }

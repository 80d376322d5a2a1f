/* AVX2 that nothing leads to. */
#include <immintrin.h>
__attribute__((target("avx2"), used, noinline)) static int forgotten(int a) { return _mm256_extract_epi32(_mm256_add_epi32(_mm256_set1_epi32(a), _mm256_set1_epi32(1)), 3); }
int work(void) { return 1; }

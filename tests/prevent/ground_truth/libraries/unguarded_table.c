/* A table of pointers, and nobody asks. */
#include <immintrin.h>
#include <stddef.h>
typedef int kernel(const int *, size_t);
__attribute__((target("avx2"))) static int wide(const int *a, size_t n) {
    __m256i total = _mm256_setzero_si256();
    for (size_t i = 0; i + 8 <= n; i += 8) total = _mm256_add_epi32(total, _mm256_loadu_si256((const __m256i *)(a + i)));
    return _mm256_extract_epi32(total, 0);
}
static int plain(const int *a, size_t n) { return a[0] + (int)n; }
struct operations { const char *name; kernel *first, *second; };
const struct operations table = {"sums", plain, wide};
int data[64];
int work(void) { const struct operations *volatile all = &table; return all->first(data, 64) + all->second(data, 64); }

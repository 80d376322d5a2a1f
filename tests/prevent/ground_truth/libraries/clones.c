/* The same, as gcc writes it. */
#include <stddef.h>
__attribute__((target_clones("avx512f", "avx2", "default"))) void scale(float *a, size_t n) {
    for (size_t i = 0; i < n; i++) a[i] = a[i] * 3 + 1;
}
float data[256];
int work(void) { scale(data, 256); return data[9] == 1; }

/* FMA without AVX2: what a host that masks FMA dies of. */
#include <immintrin.h>
__attribute__((target("fma"))) float fused(float a) { return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(a), _mm_set_ss(a))); }
volatile float value = 2;
int work(void) { return fused(value) == 6; }

/* Below AVX: pinsrq and roundps are as deadly on a CPU without SSE4.1. */
#include <smmintrin.h>
__attribute__((constructor, target("sse4.1"))) static void start(void) {
    static volatile long kept[2];
    _mm_storeu_si128((__m128i *)kept, _mm_insert_epi64(_mm_setzero_si128(), kept[1], 1));
}
__attribute__((target("sse4.1"))) int work(void) { return _mm_cvtss_si32(_mm_round_ps(_mm_set1_ps(1.2f), 0)); }

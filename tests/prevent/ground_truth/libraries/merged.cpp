// One inline function in two objects, the linker keeps that of the object compiled for AVX2 (see merged_wide.cpp).
#include "merged.h"
extern "C" int guarded_kernel(const std::vector<int> &);
extern "C" int work() {
    std::vector<int> values(64, 3);
    __builtin_cpu_init();
    int total = sum(values);
    return total + (__builtin_cpu_supports("avx2") ? guarded_kernel(values) : 0);
}

#include <cstddef>
#include <vector>
template <typename T> __attribute__((noinline)) T sum(const std::vector<T> &values) {
    T total = 0;
    for (std::size_t i = 0; i < values.size(); i++) total += values[i] * 3;
    return total;
}

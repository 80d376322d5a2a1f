// Templates and inlining: what one physical frame hides.
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

volatile int sink;

namespace shop {
template <typename T> struct Shelf {
    T *items;
    inline __attribute__((always_inline)) T take(int index) { return items[index]; }
};

template <typename T>
__attribute__((noinline)) T sell(Shelf<T> &shelf, int index) {
    T item = shelf.take(index);
    sink += 1;
    return item;
}
}  // namespace shop

__attribute__((noinline)) static void unwind_me(std::vector<std::string> &names) {
    if (names.size() > 1) throw std::runtime_error("too many");
    sink += 1;
}

int main(int argc, char **) {
    if (argc > 1) {
        std::vector<std::string> names(argc, "x");
        unwind_me(names);
    }
    shop::Shelf<double> shelf{nullptr};
    sink = static_cast<int>(shop::sell<double>(shelf, 3));
    return sink;
}

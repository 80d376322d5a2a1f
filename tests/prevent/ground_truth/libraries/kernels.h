/* Enough work for a compiler to vectorise, in as many functions as a small library has. */
#include <stddef.h>
#define KERNEL(name, type, expression)                                                        \
    __attribute__((noinline, visibility("default"))) void name(type *a, const type *b, size_t n) { \
        for (size_t i = 0; i < n; i++) a[i] = (type)(expression);                             \
    }

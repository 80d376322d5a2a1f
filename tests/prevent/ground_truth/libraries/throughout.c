/* Compiled with -march for a newer CPU, all of it, as a build on the developer's own machine is. */
#include "kernels.h"
KERNEL(k0, float, a[i] + b[i])
KERNEL(k1, float, a[i] * b[i] + 1)
KERNEL(k2, double, a[i] + b[i])
KERNEL(k3, double, a[i] * b[i] + 1)
KERNEL(k4, int, a[i] + b[i])
KERNEL(k5, int, (a[i] << (b[i] & 7)) + 1)
KERNEL(k6, unsigned, a[i] ^ (b[i] * 3))
KERNEL(k7, short, a[i] + b[i])
KERNEL(k8, long, a[i] + b[i])
KERNEL(k9, float, a[i] - b[i] * 3)
KERNEL(k10, double, a[i] / (b[i] + 1))
KERNEL(k11, int, a[i] - b[i] * 5)
float f[64], g[64];
double d[64], e[64];
int p[64], q[64];
int work(void) { k1(f, g, 64); k3(d, e, 64); k5(p, q, 64); return f[1] == 1; }

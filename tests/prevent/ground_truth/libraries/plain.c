/* Baseline code, and nothing to ask for. */
#include "kernels.h"
KERNEL(add, float, a[i] + b[i])
KERNEL(scale, double, a[i] * 2 + b[i])
KERNEL(mix, int, (a[i] ^ b[i]) + 7)
float data[64], more[64];
double wide[64], wider[64];
int whole[64], wholes[64];
int work(void) { add(data, more, 64); scale(wide, wider, 64); mix(whole, wholes, 64); return whole[3] == 7; }

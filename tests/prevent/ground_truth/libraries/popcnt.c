__attribute__((target("popcnt"), noinline)) int bits(unsigned long x) { return __builtin_popcountl(x); }
volatile unsigned long value = 77;
int work(void) { return bits(value); }

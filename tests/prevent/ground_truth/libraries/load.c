/* Loads a library and calls its work(): what an import and a first call do, in a process that starts quickly. */
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
    void *library = count > 1 ? dlopen(words[1], RTLD_NOW) : 0;
    int (*work)(void) = library ? (int (*)(void))dlsym(library, "work") : 0;
    if (!work) { fprintf(stderr, "%s\n", dlerror()); return 3; }
    return work() ? 0 : 0;
}

/* Native deaths for the zoo. Built without frame pointers, as most wheels are, so that only real unwinding
 * finds the way back to Python. Every step on the way is its own function: they must all be named. */
#define PY_SSIZE_T_CLEAN
#undef NDEBUG /* Python's own flags switch assertions off */
#include <Python.h>
#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#define STEP __attribute__((noinline, noclone))

struct record {
    int64_t id;
    int64_t length;
    double *values;
};

/* Three frames deep, each with work after its call, so that none is a tail call. */
STEP static double sum_values(const struct record *record) {
    double total = 0;
    for (int64_t i = 0; i < record->length; i++)
        total += record->values[i];
    return total;
}

STEP static double mean_of_record(const struct record *record) {
    double total = sum_values(record);
    return total / 3.0 + 1.0;
}

STEP static double decode_record(const struct record *record) {
    double mean = mean_of_record(record);
    return mean * 2.0 + 1.0;
}

/* Followed through `volatile`: a compiler that sees a constant null makes it a trap of its own. */
static PyObject *null_dereference(PyObject *self, PyObject *args) {
    struct record *volatile record = NULL;
    return PyFloat_FromDouble(decode_record(record));
}

STEP static void fma4(void) { /* vfmaddps xmm0, xmm0, xmm0, xmm0: AMD before Zen only */
    __asm__ volatile(".byte 0xc4, 0xe3, 0xf9, 0x68, 0xc0, 0x00");
}

STEP static void amx(void) { /* tilerelease: Intel from Sapphire Rapids on */
    __asm__ volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0xc0");
}

static PyObject *illegal_instruction(PyObject *self, PyObject *args) {
    const char *extension;
    if (!PyArg_ParseTuple(args, "s", &extension))
        return NULL;
    if (strcmp(extension, "fma4") == 0)
        fma4();
    else
        amx();
    Py_RETURN_NONE;
}

STEP static void unreachable_state(void) { __builtin_trap(); }

static PyObject *trap(PyObject *self, PyObject *args) {
    unreachable_state();
    Py_RETURN_NONE;
}

STEP static double follow(const double *volatile values) { return values[0] + 1.0; }

static PyObject *wild_pointer(PyObject *self, PyObject *args) {
    return PyFloat_FromDouble(follow((const double *)0x5a5a5a5a5a58));
}

/* Bit 47 and above are no copies of each other: the CPU refuses it before any page table is asked, and the
 * kernel reports neither the address nor a fault code. */
static PyObject *impossible_address(PyObject *self, PyObject *args) {
    return PyFloat_FromDouble(follow((const double *)0x00dead0000000000));
}

/* One bit of a good pointer, as memory without error correction now and then changes it. */
static PyObject *flipped_bit(PyObject *self, PyObject *args) {
    static const double value = 1.5;
    return PyFloat_FromDouble(follow((const double *)((uintptr_t)&value ^ (uintptr_t)1 << 44)));
}

STEP static int divide(volatile int number, volatile int by) { return number / by + 1; }

static PyObject *integer_division(PyObject *self, PyObject *args) { return PyLong_FromLong(divide(7, 0)); }

/* The one quotient that an int cannot hold. */
static PyObject *division_overflow(PyObject *self, PyObject *args) {
    return PyLong_FromLong(divide(INT_MIN, -1));
}

/* What a compiler makes of a loop over floats that it was told are aligned. */
STEP static void add_aligned(const char *values) {
#ifdef __x86_64__
    __asm__ volatile("movaps (%0), %%xmm0" : : "r"(values) : "xmm0");
#endif
}

static PyObject *misaligned_vector(PyObject *self, PyObject *args) {
    static char values[64] __attribute__((aligned(16)));
    add_aligned(values + 4);
    Py_RETURN_NONE;
}

STEP static void breakpoint_left_in(void) { __asm__ volatile("int3"); }

static PyObject *breakpoint(PyObject *self, PyObject *args) {
    breakpoint_left_in();
    Py_RETURN_NONE;
}

STEP static void check_invariant(void) { abort(); }

static PyObject *native_abort(PyObject *self, PyObject *args) {
    check_invariant();
    Py_RETURN_NONE;
}

STEP static void release_record(volatile long references) {
    if (references < 0) Py_FatalError("the reference count of a record is negative");
}

static PyObject *fatal_record(PyObject *self, PyObject *args) {
    release_record(-1);
    Py_RETURN_NONE;
}

STEP static void check_rows(volatile long rows) { assert(rows > 0); }

static PyObject *failed_assertion(PyObject *self, PyObject *args) {
    check_rows(-1);
    Py_RETURN_NONE;
}

static const char version[64] = "1.0";

STEP static void set_version(const char *text) { ((volatile char *)text)[0] = '2'; }

static PyObject *write_to_readonly(PyObject *self, PyObject *args) {
    set_version(version);
    Py_RETURN_NONE;
}

/* Deep C recursion: 512 bytes a frame at least, and no way out. */
STEP static long descend(volatile long depth) {
    volatile char room[512];
    room[depth % 512] = (char)depth;
    return descend(depth + 1) + room[0];
}

static PyObject *stack_overflow(PyObject *self, PyObject *args) { return PyLong_FromLong(descend(0)); }

static void *descend_on_thread(void *unused) {
    (void)unused;
    return (void *)descend(0);
}

static void *follow_null_on_thread(void *unused) {
    struct record *volatile record = NULL;
    volatile double sink = decode_record(record); /* else the call is optimised away */
    return sink > 0 ? unused : NULL;
}

/* A thousand rounds of 2 KiB: nothing for a stack of the usual size. */
STEP static long walk_tree(volatile long depth) {
    volatile char room[2 << 10];
    room[depth % sizeof room] = (char)depth;
    return depth < 1000 ? walk_tree(depth + 1) + room[0] : 0;
}

static PyObject *deep_tree(PyObject *self, PyObject *args) { return PyLong_FromLong(walk_tree(0)); }

/* Threads that Python knows nothing of. */
static PyObject *on_c_threads(void *(*body)(void *), int count) {
    pthread_t threads[16];
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, body, NULL) != 0)
            return PyErr_SetFromErrno(PyExc_OSError);
    Py_BEGIN_ALLOW_THREADS;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *stack_overflow_on_c_thread(PyObject *self, PyObject *args) {
    return on_c_threads(descend_on_thread, 1);
}

static PyObject *crash_on_many_threads(PyObject *self, PyObject *args) {
    return on_c_threads(follow_null_on_thread, 16);
}

static void *nothing(void *unused) { return unused; }

static PyObject *start_c_threads(PyObject *self, PyObject *args) { return on_c_threads(nothing, 16); }

static PyMethodDef methods[] = {
    {"null_dereference", null_dereference, METH_NOARGS, "Follows a null pointer, three frames deep."},
    {"illegal_instruction", illegal_instruction, METH_VARARGS, "Runs an instruction of the named extension."},
    {"trap", trap, METH_NOARGS, "Reaches what the compiler was told is unreachable."},
    {"wild_pointer", wild_pointer, METH_NOARGS, "Follows a pointer that points nowhere."},
    {"impossible_address", impossible_address, METH_NOARGS, "Follows a pointer that no memory can have."},
    {"flipped_bit", flipped_bit, METH_NOARGS, "Follows a pointer of which one bit has changed."},
    {"integer_division", integer_division, METH_NOARGS, "Divides an integer by zero."},
    {"division_overflow", division_overflow, METH_NOARGS, "Divides the smallest integer by -1."},
    {"breakpoint", breakpoint, METH_NOARGS, "Runs into a breakpoint without a debugger."},
    {"failed_assertion", failed_assertion, METH_NOARGS, "Fails an assert()."},
    {"write_to_readonly", write_to_readonly, METH_NOARGS, "Writes into a constant."},
    {"deep_tree", deep_tree, METH_NOARGS, "Needs two megabytes of stack."},
    {"misaligned_vector", misaligned_vector, METH_NOARGS, "Loads a vector from an address that is not aligned."},
    {"native_abort", native_abort, METH_NOARGS, "Gives up, as an assertion does."},
    {"fatal_record", fatal_record, METH_NOARGS, "Tells Python that its state is beyond repair."},
    {"stack_overflow", stack_overflow, METH_NOARGS, "Recurses in C until the stack ends."},
    {"stack_overflow_on_c_thread", stack_overflow_on_c_thread, METH_NOARGS, "The same on a thread of its own."},
    {"crash_on_many_threads", crash_on_many_threads, METH_NOARGS, "Sixteen threads follow a null pointer."},
    {"start_c_threads", start_c_threads, METH_NOARGS, "Starts and ends sixteen threads that do nothing."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "zoonative", NULL, -1, methods};

PyMODINIT_FUNC PyInit_zoonative(void) { return PyModule_Create(&module); }

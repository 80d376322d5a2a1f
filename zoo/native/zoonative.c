/* Native deaths for the zoo. Built without frame pointers, as most wheels are, so that only real unwinding
 * finds the way back to Python. Every step on the way is its own function: they must all be named. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
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

STEP static int divide(volatile int by) { return 7 / by + 1; }

static PyObject *integer_division(PyObject *self, PyObject *args) { return PyLong_FromLong(divide(0)); }

STEP static void check_invariant(void) { abort(); }

static PyObject *native_abort(PyObject *self, PyObject *args) {
    check_invariant();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"null_dereference", null_dereference, METH_NOARGS, "Follows a null pointer, three frames deep."},
    {"illegal_instruction", illegal_instruction, METH_VARARGS, "Runs an instruction of the named extension."},
    {"trap", trap, METH_NOARGS, "Reaches what the compiler was told is unreachable."},
    {"wild_pointer", wild_pointer, METH_NOARGS, "Follows a pointer that points nowhere."},
    {"impossible_address", impossible_address, METH_NOARGS, "Follows a pointer that no memory can have."},
    {"integer_division", integer_division, METH_NOARGS, "Divides an integer by zero."},
    {"native_abort", native_abort, METH_NOARGS, "Gives up, as an assertion does."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "zoonative", NULL, -1, methods};

PyMODINIT_FUNC PyInit_zoonative(void) { return PyModule_Create(&module); }

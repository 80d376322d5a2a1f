/* Memory that is used wrongly: overrun, freed and used again, called although it is data. What is broken here
 * is broken for real; each death happens at once, on its first wrong step or in the C library's next check. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define STEP __attribute__((noinline, noclone))
#define GUARDED __attribute__((noinline, noclone, optimize("stack-protector-strong")))
#define UNGUARDED __attribute__((noinline, noclone, no_stack_protector))

/* Through `volatile`, else the compiler sees what we are up to and removes it. */
static void *volatile block;
static char *volatile line;
static volatile size_t line_length;

GUARDED static int copy_name(void) {
    char name[16];
    memcpy(name, line, line_length);
    return name[3];
}

static PyObject *longer_than(size_t length) {
    static char text[256];
    memset(text, 'A', sizeof text);
    line = text, line_length = length;
    return Py_None;
}

static PyObject *stack_smashing(PyObject *self, PyObject *args) {
    longer_than(64);
    return PyLong_FromLong(copy_name());
}

/* Without a guard the overrun reaches the return address: this function returns to "AAAAAAAA". */
UNGUARDED static int copy_title(void) {
    char title[16];
    memcpy(title, line, line_length);
    return title[3];
}

static PyObject *overwritten_return(PyObject *self, PyObject *args) {
    longer_than(128);
    return PyLong_FromLong(copy_title() + 1);
}

STEP static void release(void) { free(block); }

static PyObject *double_free(PyObject *self, PyObject *args) {
    block = malloc(48);
    release();
    release();
    Py_RETURN_NONE;
}

/* 16 bytes too many: the head of the next block is overwritten, and free() finds it. Larger than what glibc
 * keeps in its thread caches, which are not checked. */
STEP static void fill_row(size_t length) { memset(block, 'A', length); }

static PyObject *heap_overrun(PyObject *self, PyObject *args) {
    block = malloc(2008);
    void *volatile next = malloc(2008);
    fill_row(2008 + 16);
    release();
    free(next);
    Py_RETURN_NONE;
}

struct decoder {
    double (*decode)(struct decoder *);
    double *values;
    long length;
};

STEP static double sum_decoder(struct decoder *decoder) {
    double total = 0;
    for (long i = 0; i < decoder->length; i++)
        total += decoder->values[i];
    return total;
}

STEP static double run_decoder(struct decoder *decoder) { return decoder->decode(decoder) + 1.0; }

static double numbers[3] = {1, 2, 3};

STEP static void new_decoder(void) {
    struct decoder *decoder = calloc(1, sizeof *decoder);
    decoder->decode = sum_decoder;
    decoder->values = numbers;
    decoder->length = 3;
    block = decoder;
}

static PyObject *use_after_free(PyObject *self, PyObject *args) {
    new_decoder();
    double before = run_decoder(block);
    release();
    return PyFloat_FromDouble(run_decoder(block) + before);
}

/* A debug allocator fills what is given back with 0xdd, as PYTHONMALLOC=debug does. */
STEP static void release_poisoned(void) { memset(block, 0xdd, sizeof(struct decoder)); }

STEP static double first_value(struct decoder *decoder) { return decoder->values[0] + 1.0; }

static PyObject *use_after_free_poisoned(PyObject *self, PyObject *args) {
    new_decoder();
    release_poisoned();
    return PyFloat_FromDouble(first_value(block));
}

/* A block too large for the thread cache: freed, its first words point into the C library's own arena, where
 * nothing is executable. */
struct large_decoder {
    double (*decode)(struct decoder *);
    double values[512];
};

STEP static double run_large(struct large_decoder *decoder) { return decoder->decode(NULL) + 1.0; }

static PyObject *use_after_free_large(PyObject *self, PyObject *args) {
    block = calloc(1, sizeof(struct large_decoder));
    void *volatile after = malloc(4096); /* else the freed block melts into the rest of the heap */
    release();
    double result = run_large(block);
    free(after);
    return PyFloat_FromDouble(result);
}

static uint64_t table[8] = {0x1111, 0x2222};

STEP static long call(long (*function)(void)) { return function() + 1; }

static PyObject *jump_to_null(PyObject *self, PyObject *args) {
    block = NULL;
    return PyLong_FromLong(call((long (*)(void))(uintptr_t)block));
}

static PyObject *jump_into_data(PyObject *self, PyObject *args) {
    block = table;
    return PyLong_FromLong(call((long (*)(void))(uintptr_t)block));
}

/* `push es`: gone in 64-bit mode. What a jump into the middle of an instruction or a table meets. */
STEP static long no_instruction(void) {
    __asm__ volatile(".byte 0x06, 0x06, 0x06, 0x06");
    return 1;
}

static PyObject *invalid_opcode(PyObject *self, PyObject *args) {
    return PyLong_FromLong(no_instruction() + 1);
}

static PyMethodDef methods[] = {
    {"stack_smashing", stack_smashing, METH_NOARGS, "Writes past an array on a guarded stack."},
    {"overwritten_return", overwritten_return, METH_NOARGS, "The same without a guard."},
    {"double_free", double_free, METH_NOARGS, "Frees a block twice."},
    {"heap_overrun", heap_overrun, METH_NOARGS, "Writes past a block, and frees it."},
    {"use_after_free", use_after_free, METH_NOARGS, "Calls a function that a freed block names."},
    {"use_after_free_poisoned", use_after_free_poisoned, METH_NOARGS, "Follows a pointer of a filled block."},
    {"use_after_free_large", use_after_free_large, METH_NOARGS, "The same with a large block."},
    {"jump_to_null", jump_to_null, METH_NOARGS, "Calls a null pointer."},
    {"jump_into_data", jump_into_data, METH_NOARGS, "Calls a table."},
    {"invalid_opcode", invalid_opcode, METH_NOARGS, "Runs bytes that are no instruction."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "zoomemory", NULL, -1, methods};

PyMODINIT_FUNC PyInit_zoomemory(void) { return PyModule_Create(&module); }

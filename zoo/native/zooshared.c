/* What threads and processes share and should not: a mutex that a forked child finds locked, a table that one thread takes
 * away while another reads it, a record that one process replaces meanwhile. Every wait is for an event of the other, so
 * that the race is lost every time. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <unistd.h>

#define STEP __attribute__((noinline, noclone))

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t is_held;

static void *hold(void *unused) {
    (void)unused;
    pthread_mutex_lock(&mutex);
    sem_post(&is_held);
    for (;;)
        pause();
    return NULL;
}

static PyObject *hold_mutex(PyObject *self, PyObject *args) {
    pthread_t thread;
    sem_init(&is_held, 0, 0);
    if (pthread_create(&thread, NULL, hold, NULL) != 0)
        return PyErr_Format(PyExc_RuntimeError, "no thread");
    sem_wait(&is_held);
    Py_RETURN_NONE;
}

STEP static void count_in_cache(void) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

static PyObject *take_mutex(PyObject *self, PyObject *args) {
    Py_BEGIN_ALLOW_THREADS
    count_in_cache();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* A library that keeps its table in a global, and was not written for two threads. */
static double rows[64];
static double *volatile table = rows;
static sem_t is_reading, is_gone;

STEP static double sum_table(void) {
    double total = 0;
    if (table == NULL)
        return total;
    sem_post(&is_reading);
    sem_wait(&is_gone);
    for (int i = 0; i < 64; i++)
        total += table[i];
    return total;
}

STEP static void replace_rows(void) {
    sem_wait(&is_reading);
    table = NULL;
    sem_post(&is_gone);
    for (;;)
        pause();
}

static PyObject *read_table(PyObject *self, PyObject *args) {
    double total;
    Py_BEGIN_ALLOW_THREADS
    total = sum_table();
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(total);
}

static PyObject *replace_table(PyObject *self, PyObject *args) {
    Py_BEGIN_ALLOW_THREADS
    replace_rows();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* A record in memory that processes share, without a lock: who reads it while it is replaced takes a pointer that is not
 * set yet. The reader dies only when the record is whole again, so that nobody meets the gap a second time. */
struct record {
    sem_t is_begun, is_read, is_whole;
    volatile int was_replaced;
    double *volatile rows;
    double room[8];
};

STEP static double sum_record(struct record *record) {
    double total = 0;
    double *rows = record->rows;
    if (!record->was_replaced) {
        sem_post(&record->is_read);
        sem_wait(&record->is_whole);
    }
    for (int i = 0; i < 8; i++)
        total += rows[i] + record->room[i];
    return total;
}

static struct record *in_buffer(PyObject *args, const char *format, Py_buffer *view, int *is_filled) {
    if (!PyArg_ParseTuple(args, format, view, is_filled))
        return NULL;
    if ((size_t)view->len >= sizeof(struct record))
        return view->buf;
    PyErr_SetString(PyExc_ValueError, "too small for a record");
    return NULL;
}

static PyObject *make_record(PyObject *self, PyObject *args) {
    Py_buffer view;
    struct record *record = in_buffer(args, "w*", &view, NULL);
    if (record == NULL)
        return NULL;
    memset(record, 0, sizeof *record);
    sem_init(&record->is_begun, 1, 0);
    sem_init(&record->is_read, 1, 0);
    sem_init(&record->is_whole, 1, 0);
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static PyObject *read_record(PyObject *self, PyObject *args) {
    Py_buffer view;
    double total;
    struct record *record = in_buffer(args, "w*", &view, NULL);
    if (record == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    if (!record->was_replaced)
        sem_wait(&record->is_begun);
    total = sum_record(record);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return PyFloat_FromDouble(total);
}

static PyObject *replace_record(PyObject *self, PyObject *args) {
    Py_buffer view;
    int is_filled;
    struct record *record = in_buffer(args, "w*p", &view, &is_filled);
    if (record == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    record->rows = NULL;
    sem_post(&record->is_begun);
    sem_wait(&record->is_read);
    record->rows = is_filled ? record->room : NULL;
    record->was_replaced = 1;
    sem_post(&record->is_whole);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"hold_mutex", hold_mutex, METH_NOARGS, "A thread takes the mutex and keeps it."},
    {"take_mutex", take_mutex, METH_NOARGS, "Waits for the mutex."},
    {"read_table", read_table, METH_NOARGS, "Reads a table while another thread takes it away."},
    {"replace_table", replace_table, METH_NOARGS, "Takes the table away while it is read."},
    {"make_record", make_record, METH_VARARGS, "A record in shared memory, for the next two."},
    {"read_record", read_record, METH_VARARGS, "Reads it while another process replaces it."},
    {"replace_record", replace_record, METH_VARARGS, "Replaces it while it is read; False: and leaves its pointer null."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "zooshared", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_zooshared(void) {
    sem_init(&is_reading, 0, 0);
    sem_init(&is_gone, 0, 0);
    return PyModule_Create(&module);
}

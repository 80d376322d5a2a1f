/* What threads share and should not: a mutex that a forked child finds locked, a table that one thread takes away while
 * another reads it. Every wait is for an event of the other thread, so that the race is lost every time. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <semaphore.h>
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

static PyMethodDef methods[] = {
    {"hold_mutex", hold_mutex, METH_NOARGS, "A thread takes the mutex and keeps it."},
    {"take_mutex", take_mutex, METH_NOARGS, "Waits for the mutex."},
    {"read_table", read_table, METH_NOARGS, "Reads a table while another thread takes it away."},
    {"replace_table", replace_table, METH_NOARGS, "Takes the table away while it is read."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "zooshared", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_zooshared(void) {
    sem_init(&is_reading, 0, 0);
    sem_init(&is_gone, 0, 0);
    return PyModule_Create(&module);
}

// An extension whose library has moved on: the function that it was built to call is not there any more.
#include <Python.h>

void decoder_set_threads(int count);

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "zooorphan", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_zooorphan(void) {
    decoder_set_threads(1);
    return PyModule_Create(&module);
}

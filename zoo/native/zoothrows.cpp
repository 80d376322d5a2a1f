// A C++ exception that nothing catches, thrown below Python: std::terminate calls abort().
#include <Python.h>
#include <stdexcept>
#include <string>

#define STEP __attribute__((noinline))

namespace decoder {
struct corrupt_header : std::runtime_error {
    using std::runtime_error::runtime_error;
};
STEP void parse(int version) {
    if (version > 3) throw corrupt_header("version " + std::to_string(version) + " is not known");
}
}  // namespace decoder

// noexcept: the exception cannot travel through CPython's frames, as in any extension that forgets to catch.
extern "C" STEP PyObject *throw_uncaught(PyObject *, PyObject *) noexcept {
    decoder::parse(9);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"throw_uncaught", throw_uncaught, METH_NOARGS, "Throws what nothing catches."},
    {nullptr, nullptr, 0, nullptr},
};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "zoothrows", nullptr, -1, methods,
                             nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit_zoothrows(void) { return PyModule_Create(&module); }

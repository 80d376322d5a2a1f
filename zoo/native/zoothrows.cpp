// C++ that ends in std::terminate, below Python: it calls abort().
#include <Python.h>
#include <cstdint>
#include <new>
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

namespace decoder {
// More than any machine has: operator new throws, whatever the limits are.
STEP char *make_buffer(volatile std::size_t size) { return new char[size]; }

struct base {
    virtual ~base() = default;
    virtual int width() const = 0;
    STEP int area() const { return width() * 2; }
    // Called while the derived part does not exist yet: its functions are not there either.
    base() : known(area()) {}
    int known;
};
struct image : base {
    int width() const override { return 3; }
};
STEP int measure() {
    image made;
    return made.known;
}
}  // namespace decoder

extern "C" STEP PyObject *ask_too_much(PyObject *, PyObject *) noexcept {
    char *buffer = decoder::make_buffer(PTRDIFF_MAX / 2);
    return PyLong_FromVoidPtr(buffer);
}

extern "C" STEP PyObject *call_pure_virtual(PyObject *, PyObject *) noexcept {
    return PyLong_FromLong(decoder::measure());
}

static PyMethodDef methods[] = {
    {"ask_too_much", ask_too_much, METH_NOARGS, "Asks operator new for more than there is."},
    {"call_pure_virtual", call_pure_virtual, METH_NOARGS, "Calls a function that only a derived class has."},
    {"throw_uncaught", throw_uncaught, METH_NOARGS, "Throws what nothing catches."},
    {nullptr, nullptr, 0, nullptr},
};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "zoothrows", nullptr, -1, methods,
                             nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit_zoothrows(void) { return PyModule_Create(&module); }

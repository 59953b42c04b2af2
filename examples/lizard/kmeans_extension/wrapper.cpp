#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "program.h"

static void unpin_capsule(PyObject *capsule) {
    Py_buffer *view = (Py_buffer *)PyCapsule_GetPointer(capsule, "pinned");
    if (view == nullptr) return;
    unpin((double *)view->buf);
    PyBuffer_Release(view);
    PyMem_Free(view);
}

static PyObject *pin_gpu_memory(PyObject *, PyObject *args) {
    PyObject *array;
    if (!PyArg_ParseTuple(args, "O", &array)) return nullptr;
    Py_buffer *view = (Py_buffer *)PyMem_Malloc(sizeof(Py_buffer));
    if (PyObject_GetBuffer(array, view, PyBUF_SIMPLE) != 0) {
        PyMem_Free(view);
        return nullptr;
    }
    pin((double *)view->buf, (long)view->len);
    return PyCapsule_New(view, "pinned", nullptr);
}

static PyObject *unpin_gpu_memory(PyObject *, PyObject *args) {
    PyObject *capsule;
    if (!PyArg_ParseTuple(args, "O", &capsule)) return nullptr;
    unpin_capsule(capsule);
    Py_RETURN_NONE;
}

static PyObject *kmeans_iteration(PyObject *, PyObject *args) {
    Py_buffer centres, points, sums, counts;
    int num_points, k, dims;
    if (!PyArg_ParseTuple(args, "y*y*w*w*iii", &centres, &points, &sums, &counts, &num_points, &k, &dims))
        return nullptr;
    const char *error = assign_points((const double *)centres.buf, (const double *)points.buf,
                                      (double *)sums.buf, (int *)counts.buf, num_points, k, dims);
    PyBuffer_Release(&centres);
    PyBuffer_Release(&points);
    PyBuffer_Release(&sums);
    PyBuffer_Release(&counts);
    if (error != nullptr) return PyErr_Format(PyExc_RuntimeError, "CUDA: %s", error);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"pin_gpu_memory", pin_gpu_memory, METH_VARARGS, "Pin the memory of an array."},
    {"unpin_gpu_memory", unpin_gpu_memory, METH_VARARGS, "Unpin what was pinned."},
    {"kmeans_iteration", kmeans_iteration, METH_VARARGS, "Add points to their nearest centres."},
    {nullptr, nullptr, 0, nullptr},
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "user_program", nullptr, -1, methods};

PyMODINIT_FUNC PyInit_user_program(void) { return PyModule_Create(&module); }

import ctypes
class Vec3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_float), ("y", ctypes.c_float), ("z", ctypes.c_float)]
    def tuple(self): return [self.x, self.y, self.z]
class Body(ctypes.Structure):
    _fields_ = [("at", Vec3), ("v", Vec3), ("mass", ctypes.c_double), ("kind", ctypes.c_char)]
CUBE = ctypes.POINTER(ctypes.POINTER(ctypes.POINTER(ctypes.c_float)))
def empty(): return [[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]
def read(c): return [[[c[i][j][k] for k in (0, 1)] for j in (0, 1)] for i in (0, 1)]
def write(c, v):
    for i in (0, 1):
        for j in (0, 1):
            for k in (0, 1): c[i][j][k] = v[i][j][k]

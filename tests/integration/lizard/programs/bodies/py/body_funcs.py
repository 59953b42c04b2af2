import ctypes
import lizard.user_prog_resources as res
import layout
from layout import Vec3, Body, CUBE

class GlobalParams(res.EncodableStructure):
    _fields_ = [("steps", ctypes.c_int), ("dt", ctypes.c_float), ("pull", Vec3), ("heavy", ctypes.c_uint)]
    def encode(self, global_params):
        return res.b64_json_enc([self.steps, self.dt, self.pull.tuple(), self.heavy])
    def decode(self, data, global_params=None, decode_aux=True):
        self.steps, self.dt, pull, self.heavy = res.b64_json_dec(data)
        self.pull = Vec3(*pull)

class Dataset(res.EncodableStructure):
    _fields_ = [("num_points", ctypes.c_int), ("bodies", ctypes.POINTER(Body))]
    aux_field_names = ("bodies",)
    def __len__(self): return self.num_points
    def init_aux_structures(self, gp): self.bodies_aux = [None] * self.num_points
    def encode_dynamic(self, gp):
        return res.b64_json_enc([[b.at.tuple(), b.v.tuple(), b.mass, b.kind[0]] for b in self.get_ref("bodies")[:self.num_points]])
    def decode_dynamic(self, data, gp):
        got = [Body(Vec3(*at), Vec3(*v), m, bytes([k])) for at, v, m, k in res.b64_json_dec(data)]
        if self.bodies:
            for i, b in enumerate(got): self.bodies[i] = b
        else: self.bodies_aux = got

class GlobalState(res.EncodableStructure):
    _fields_ = [("centre", Vec3), ("time", ctypes.c_double), ("done", ctypes.c_int), ("cube", CUBE)]
    aux_field_names = ("cube",)
    def encode(self, gp):
        return res.b64_json_enc({"c": self.centre.tuple(), "t": self.time, "d": self.done, "dynamic": self.encode_dynamic(gp)})
    def decode(self, data, gp, decode_aux=True):
        data = res.b64_json_dec(data)
        self.centre, self.time, self.done = Vec3(*data["c"]), data["t"], data["d"]
        if decode_aux: self.decode_dynamic(data["dynamic"], gp)
    def init_aux_structures(self, gp): self.cube_aux = layout.empty()
    def encode_dynamic(self, gp): return res.b64_json_enc(layout.read(self.get_ref("cube")))
    def decode_dynamic(self, data, gp):
        if self.cube: layout.write(self.cube, res.b64_json_dec(data))
        else: self.cube_aux = res.b64_json_dec(data)

class AggregationResult(res.EncodableStructure):
    _fields_ = [("moment", ctypes.POINTER(Vec3)), ("mass", ctypes.c_double * 2), ("n", ctypes.c_long), ("cube", CUBE)]
    aux_field_names = ("moment", "cube")
    def encode(self, gp):
        return res.b64_json_enc({"mass": list(self.mass), "n": self.n, "dynamic": self.encode_dynamic(gp)})
    def decode(self, data, gp, decode_aux=True):
        data = res.b64_json_dec(data)
        self.mass[:] = data["mass"]; self.n = data["n"]
        if decode_aux: self.decode_dynamic(data["dynamic"], gp)
    def init_aux_structures(self, gp): self.moment_aux = [Vec3()]; self.cube_aux = layout.empty()
    def encode_dynamic(self, gp): return res.b64_json_enc([self.get_ref("moment")[0].tuple(), layout.read(self.get_ref("cube"))])
    def decode_dynamic(self, data, gp):
        m, c = res.b64_json_dec(data)
        if not self.moment: self.init_aux_structures(gp)
        self.get_ref("moment")[0] = Vec3(*m); layout.write(self.get_ref("cube"), c)

def init_aggregation_result(gp, aggregation_result=None):
    r = aggregation_result
    if r is None: r = AggregationResult(); r.init_aux_structures(gp)
    r.get_ref("moment")[0] = Vec3(0, 0, 0); layout.write(r.get_ref("cube"), layout.empty()); r.mass[:] = [0, 0]; r.n = 0
    return r
def aggregate(gp, running_aggregate, aggregation_result):
    a, b = running_aggregate, aggregation_result
    m, o = a.get_ref("moment")[0], b.get_ref("moment")[0]
    a.get_ref("moment")[0] = Vec3(m.x + o.x, m.y + o.y, m.z + o.z)
    for i in (0, 1): a.mass[i] += b.mass[i]
    a.n += b.n
    x, y = layout.read(a.get_ref("cube")), layout.read(b.get_ref("cube"))
    layout.write(a.get_ref("cube"), [[[p + q for p, q in zip(r, s)] for r, s in zip(t, u)] for t, u in zip(x, y)])
def init_global_state(gp, global_state=None):
    s = GlobalState(); s.init_aux_structures(gp); return s
def update_global_state(gp, aggregation_result, global_state):
    r, s = aggregation_result, global_state
    total = sum(r.mass); m = r.get_ref("moment")[0]
    s.centre = Vec3(m.x / total, m.y / total, m.z / total)
    s.cube_aux = layout.read(r.get_ref("cube"))
    s.time += gp.dt
    s.done = int(s.time >= gp.steps * gp.dt - 1e-9)
    return s
def get_dataset_slice(gp, full_dataset, start_idx, size, dataset=None):
    if size <= 0 or start_idx + size > len(full_dataset): raise IndexError()
    d = Dataset(); d.num_points = size; d.bodies_aux = full_dataset.bodies_aux[start_idx:start_idx + size]; return d

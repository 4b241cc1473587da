"""The workloads as kernels of Taichi. (Its annotations are read when they run, so they cannot be strings.)"""

import numpy as np
import taichi as ti

from peers import Peer, Runs

_DTYPES = {"uint32": ti.u32, "uint8": ti.u8, "float32": ti.f32}
U8, U32, F32 = (ti.types.ndarray(dtype=dtype, ndim=1) for dtype in (ti.u8, ti.u32, ti.f32))


@ti.kernel
def _collatz(out: U32):
    for i in out:
        n, steps = ti.cast(i + 1, ti.u32), ti.u32(0)
        while n != ti.u32(1):
            if n & ti.u32(1):  # noqa: SIM108
                n = n * ti.u32(3) + ti.u32(1)
            else:
                n = ti.bit_shr(n, ti.u32(1))
            steps += ti.u32(1)
        out[i] = steps


@ti.kernel
def _mandelbrot(out: U32):
    for i in out:
        x0 = ti.cast(i % 2048, ti.f32) * 0.00146484375 - 2.0
        y0 = ti.cast(i // 2048, ti.f32) * 0.00146484375 - 1.5
        x, y, k = 0.0, 0.0, 0
        while k < 100 and x * x + y * y <= 4.0:
            t = x * x - y * y + x0
            y = 2.0 * x * y + y0
            x = t
            k += 1
        out[i] = ti.cast(k, ti.u32)


@ti.kernel
def _count_primes(limit: U32, out: U32):
    out[0] = ti.u32(0)
    for i in range(ti.cast(limit[0], ti.i32)):
        n, d = ti.cast(i, ti.u32), ti.u32(2)
        prime = n > ti.u32(1)
        while prime and d * d <= n:
            if n % d == ti.u32(0):
                prime = False
            d += ti.u32(1)
        out[0] += ti.cast(prime, ti.u32)


@ti.kernel
def _nbody(px: F32, py: F32, pz: F32, out: F32):
    for i in out:
        x, y, z, force = px[i], py[i], pz[i], 0.0
        for j in range(px.shape[0]):
            dx, dy, dz = px[j] - x, py[j] - y, pz[j] - z
            d = dx * dx + dy * dy + dz * dz + 0.01
            force += dx / (d * ti.sqrt(d))
        out[i] = force


@ti.kernel
def _lcs_diagonal(a: U8, b: U8, table: U32, k: ti.i32):
    n, m = a.shape[0], b.shape[0]
    now, before, older = k % 3 * (n + 1), (k + 2) % 3 * (n + 1), (k + 1) % 3 * (n + 1)
    for i in range(ti.max(0, k - m + 1), ti.min(n, k + 1)):
        left = table[before + i + 1] if k > i else ti.u32(0)
        corner = table[older + i] if k > i else ti.u32(0)
        found = ti.max(left, table[before + i])
        if a[i] == b[m - 1 - k + i]:
            found = corner + ti.u32(1)
        table[now + i + 1] = found


def _lcs(a, b, out):
    n, m = a.shape[0], b.shape[0]
    table = ti.ndarray(ti.u32, 3 * (n + 1))
    for k in range(n + m - 1):
        _lcs_diagonal(a, b, table, k)
    out[0] = table[(n + m - 2) % 3 * (n + 1) + n]


@ti.kernel
def _saxpy(x: F32, y: F32, out: F32):
    for i in out:
        out[i] = x[i] * 2.5 + y[i]


@ti.kernel
def _stencil(now: F32, out: F32):
    for y, x in ti.ndrange(4096, 4096):
        at = y * 4096 + x
        here = now[at]
        if 0 < x < 4095 and 0 < y < 4095:
            here += 0.1 * (now[at - 1] + now[at + 1] + now[at - 4096] + now[at + 4096] - 4.0 * here)
        out[at] = here


@ti.kernel
def _transpose(given: F32, out: F32):
    for ty, tx in ti.ndrange(128, 128):
        for y in range(ty * 32, ty * 32 + 32):
            for x in range(tx * 32, tx * 32 + 32):
                out[y * 4096 + x] = given[x * 4096 + y]


@ti.kernel
def _histogram(data: U8, out: U32):
    for k in range(256):
        out[k] = ti.u32(0)
    for i in data:
        out[ti.cast(data[i], ti.i32)] += ti.u32(1)


@ti.kernel
def _empty(x: U32):
    for i in x:
        x[i] += ti.u32(1)


@ti.kernel
def _mix(x: U32):
    for i in x:
        x[i] *= ti.u32(3)


def _field(values):
    array = ti.ndarray(_DTYPES[values.dtype.name], values.shape)
    array.from_numpy(values)
    return array


def _runs(function):
    def make(inputs, output):
        fields, out = [_field(values) for values in inputs], _field(output)

        def end_to_end():
            fresh = np.empty_like(output)
            function(*inputs, fresh)
            return fresh

        def resident():
            function(*fields, out)
            ti.sync()

        return Runs(end_to_end, resident, out.to_numpy)

    return make


def load(threads):
    # Contracted products would give other numbers of passes; equal results come first.
    ti.init(arch=ti.cpu, cpu_max_num_threads=threads, fast_math=False, log_level=ti.ERROR, offline_cache=False)
    functions = {
        "collatz": _collatz, "mandelbrot": _mandelbrot, "count_primes": _count_primes, "nbody": _nbody, "lcs": _lcs,
        "saxpy": _saxpy, "stencil": _stencil, "transpose": _transpose, "histogram": _histogram,
    }  # fmt: skip
    small, state = (_field(np.zeros(size, np.uint32)) for size in (16, 1024))

    def launch():
        _empty(small)
        ti.sync()

    def sequence(times):
        for _ in range(times):
            _empty(state)
            _mix(state)
        ti.sync()

    rows = {name: _runs(function) for name, function in functions.items()}
    return Peer("taichi", ".".join(map(str, ti.__version__)), rows, launch, sequence)

"""The workloads as kernels of Warp, which runs them on one thread of the processor."""

import numpy as np
import warp as wp

from peers import Peer, Runs

U8, U32, F32 = wp.array(dtype=wp.uint8), wp.array(dtype=wp.uint32), wp.array(dtype=wp.float32)


@wp.kernel
def _collatz(out: U32):
    i = wp.tid()
    n, steps = wp.uint32(i + 1), wp.uint32(0)
    while n != wp.uint32(1):
        if (n & wp.uint32(1)) == wp.uint32(1):  # noqa: SIM108
            n = n * wp.uint32(3) + wp.uint32(1)
        else:
            n = n >> wp.uint32(1)
        steps = steps + wp.uint32(1)
    out[i] = steps


@wp.kernel
def _mandelbrot(out: U32):
    i = wp.tid()
    x0 = wp.float32(i % 2048) * 0.00146484375 - 2.0
    y0 = wp.float32(i / 2048) * 0.00146484375 - 1.5
    x, y, k = wp.float32(0.0), wp.float32(0.0), wp.int32(0)
    while k < 100 and x * x + y * y <= 4.0:
        t = x * x - y * y + x0
        y = 2.0 * x * y + y0
        x = t
        k = k + 1
    out[i] = wp.uint32(k)


@wp.kernel
def _count_primes(limit: U32, out: U32):  # noqa: ARG001
    n, d = wp.uint32(wp.tid()), wp.uint32(2)
    prime = n > wp.uint32(1)
    while prime and d * d <= n:
        if n % d == wp.uint32(0):
            prime = False
        d = d + wp.uint32(1)
    if prime:
        wp.atomic_add(out, 0, wp.uint32(1))


@wp.kernel
def _nbody(px: F32, py: F32, pz: F32, out: F32):
    i = wp.tid()
    x, y, z, force = px[i], py[i], pz[i], wp.float32(0.0)
    for j in range(px.shape[0]):
        dx, dy, dz = px[j] - x, py[j] - y, pz[j] - z
        d = dx * dx + dy * dy + dz * dz + 0.01
        force = force + dx / (d * wp.sqrt(d))
    out[i] = force


@wp.kernel
def _lcs_diagonal(a: U8, b: U8, table: U32, k: wp.int32, first: wp.int32):
    i = first + wp.tid()
    n, m = a.shape[0], b.shape[0]
    before, older = (k + 2) % 3 * (n + 1), (k + 1) % 3 * (n + 1)
    left, corner = wp.uint32(0), wp.uint32(0)
    if k > i:
        left = table[before + i + 1]
        corner = table[older + i]
    found = wp.max(left, table[before + i])
    if a[i] == b[m - 1 - k + i]:
        found = corner + wp.uint32(1)
    table[k % 3 * (n + 1) + i + 1] = found


@wp.kernel
def _take(table: U32, at: wp.int32, out: U32):
    out[0] = table[at]


@wp.kernel
def _saxpy(x: F32, y: F32, out: F32):
    i = wp.tid()
    out[i] = x[i] * 2.5 + y[i]


@wp.kernel
def _stencil(now: F32, out: F32):
    y, x = wp.tid()
    at = y * 4096 + x
    here = now[at]
    if x > 0 and x < 4095 and y > 0 and y < 4095:
        here = here + 0.1 * (now[at - 1] + now[at + 1] + now[at - 4096] + now[at + 4096] - 4.0 * here)
    out[at] = here


@wp.kernel
def _transpose(given: F32, out: F32):
    tile_y, tile_x, y, x = wp.tid()
    out[(tile_y * 32 + y) * 4096 + tile_x * 32 + x] = given[(tile_x * 32 + x) * 4096 + tile_y * 32 + y]


@wp.kernel
def _histogram(data: U8, out: U32):
    wp.atomic_add(out, wp.int32(data[wp.tid()]), wp.uint32(1))


@wp.kernel
def _empty(x: U32):
    i = wp.tid()
    x[i] = x[i] + wp.uint32(1)


@wp.kernel
def _mix(x: U32):
    i = wp.tid()
    x[i] = x[i] * wp.uint32(3)


def _lcs(inputs, out):
    a, b = inputs
    n, m = a.shape[0], b.shape[0]
    table = wp.zeros(3 * (n + 1), dtype=wp.uint32)
    for k in range(n + m - 1):
        first, last = max(0, k - m + 1), min(n, k + 1)
        wp.launch(_lcs_diagonal, dim=last - first, inputs=[a, b, table, k, first])
    wp.launch(_take, dim=1, inputs=[table, (n + m - 2) % 3 * (n + 1) + n, out])


def _launcher(kernel, dim=None):
    def run(inputs, out):
        if kernel in (_histogram, _count_primes):
            out.zero_()
        size = inputs[0].shape[0] if kernel is _histogram else out.shape[0]
        size = int(inputs[0].numpy()[0]) if kernel is _count_primes else size
        wp.launch(kernel, dim=dim or size, inputs=inputs, outputs=[out])

    return run


def _runs(run):
    def make(inputs, output):
        given, out = [wp.from_numpy(values) for values in inputs], wp.from_numpy(output)

        def end_to_end():
            fresh = wp.from_numpy(np.empty_like(output))
            run([wp.from_numpy(values) for values in inputs], fresh)
            return fresh.numpy()

        return Runs(end_to_end, lambda: run(given, out), out.numpy)

    return make


def load(threads):
    wp.config.quiet = True
    wp.config.enable_backward = False
    wp.init()
    wp.set_device("cpu")
    square = (4096, 4096)
    runs = {
        "collatz": _launcher(_collatz), "mandelbrot": _launcher(_mandelbrot), "nbody": _launcher(_nbody),
        "count_primes": _launcher(_count_primes), "lcs": _lcs, "saxpy": _launcher(_saxpy),
        "stencil": _launcher(_stencil, square), "transpose": _launcher(_transpose, (128, 128, 32, 32)),
        "histogram": _launcher(_histogram),
    }  # fmt: skip
    small, state = (wp.zeros(size, dtype=wp.uint32) for size in (16, 1024))

    def sequence(times):
        for _ in range(times):
            wp.launch(_empty, dim=1024, inputs=[state])
            wp.launch(_mix, dim=1024, inputs=[state])

    rows = {name: _runs(run) for name, run in runs.items()}
    note = "" if threads == 1 else " (one thread)"
    return Peer("warp", wp.__version__ + note, rows, lambda: wp.launch(_empty, dim=16, inputs=[small]), sequence)

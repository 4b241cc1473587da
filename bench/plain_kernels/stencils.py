"""Stencils on one, two and three axes. The last axis is contiguous, and ``gid(0)`` goes along it."""

# No `from __future__ import annotations`: it hides the element type, a local name, from a kernel's annotations.
from functools import cache
from typing import Any

import vyre
from comparison import Contender
from plain_kernels import (
    SHAPES_2,
    SHAPES_3,
    Setting,
    Shape,
    by_shape,
    numba,
    on_numba,
    on_vyre,
    parallel,
    prange,
    serial,
    side_by_side,
)

_BLOCK = 4096


@cache
def _jacobi_1d(real: Any) -> Any:
    @vyre.kernel
    def jacobi_1d(third: real, a: vyre.In[real], out: vyre.Out[real]):
        i = vyre.gid()
        if 0 < i < len(a) - 1:
            out[i] = third * (a[i - 1] + a[i] + a[i + 1])

    return jacobi_1d


@parallel
def _numba_jacobi_1d(third, a, out):
    """By blocks, each a view: with neighbours, a loop over ``prange`` itself does not go in vectors."""
    inner = len(a) - 2
    for block in prange((inner + _BLOCK - 1) // _BLOCK):
        start = block * _BLOCK
        stop = min(start + _BLOCK, inner) + 2
        row, to = a[start:stop], out[start:stop]
        for i in range(1, len(row) - 1):
            to[i] = third * (row[i - 1] + row[i] + row[i + 1])


def jacobi_1d(setting: Setting) -> dict[str, Contender]:
    a = setting.floats(setting.size)
    arguments = setting.number(1 / 3), a, setting.zeros(*a.shape)
    return side_by_side(setting, {"vyre": _jacobi_1d(setting.real)[a.size]}, _numba_jacobi_1d, arguments, 2)


@cache
def _jacobi_2d(real: Any, shape: Shape) -> Any:
    @vyre.kernel(workgroup=shape)
    def jacobi_2d(fifth: real, a: vyre.In[real, 2], out: vyre.Out[real, 2]):
        x, y = vyre.gid(0), vyre.gid(1)
        height, width = a.shape
        if 0 < y < height - 1 and 0 < x < width - 1:
            out[y, x] = fifth * (a[y, x] + a[y, x - 1] + a[y, x + 1] + a[y + 1, x] + a[y - 1, x])

    return jacobi_2d


@parallel
def _numba_jacobi_2d(fifth, a, out):
    height, width = a.shape
    for y in prange(1, height - 1):
        for x in range(1, width - 1):
            out[y, x] = fifth * (a[y, x] + a[y, x - 1] + a[y, x + 1] + a[y + 1, x] + a[y - 1, x])


def jacobi_2d(setting: Setting) -> dict[str, Contender]:
    size = setting.size
    arguments = setting.number(0.2), setting.floats(size, size), setting.zeros(size, size)
    return side_by_side(setting, by_shape(_jacobi_2d, setting, SHAPES_2, (size, size)), _numba_jacobi_2d, arguments, 2)


@cache
def _jacobi_3d(real: Any, shape: Shape) -> Any:
    @vyre.kernel(workgroup=shape)
    def jacobi_3d(seventh: real, a: vyre.In[real, 3], out: vyre.Out[real, 3]):
        x, y, z = vyre.gid(0), vyre.gid(1), vyre.gid(2)
        depth, height, width = a.shape
        if 0 < z < depth - 1 and 0 < y < height - 1 and 0 < x < width - 1:
            total = a[z, y, x] + a[z, y, x - 1] + a[z, y, x + 1]
            total += a[z, y - 1, x] + a[z, y + 1, x]
            total += a[z - 1, y, x] + a[z + 1, y, x]
            out[z, y, x] = seventh * total

    return jacobi_3d


@parallel
def _numba_jacobi_3d(seventh, a, out):
    depth, height, width = a.shape
    for z in prange(1, depth - 1):
        for y in range(1, height - 1):
            for x in range(1, width - 1):
                total = a[z, y, x] + a[z, y, x - 1] + a[z, y, x + 1]
                total += a[z, y - 1, x] + a[z, y + 1, x]
                total += a[z - 1, y, x] + a[z + 1, y, x]
                out[z, y, x] = seventh * total


def jacobi_3d(setting: Setting) -> dict[str, Contender]:
    cube = (setting.size,) * 3
    arguments = setting.number(1 / 7), setting.floats(*cube), setting.zeros(*cube)
    return side_by_side(setting, by_shape(_jacobi_3d, setting, SHAPES_3, cube), _numba_jacobi_3d, arguments, 2)


@cache
def _heat_3d(real: Any, shape: Shape) -> Any:
    @vyre.kernel(workgroup=shape)
    def heat_3d(rate: real, two: real, a: vyre.In[real, 3], out: vyre.Out[real, 3]):
        x, y, z = vyre.gid(0), vyre.gid(1), vyre.gid(2)
        depth, height, width = a.shape
        if 0 < z < depth - 1 and 0 < y < height - 1 and 0 < x < width - 1:
            along_z = rate * (a[z + 1, y, x] - two * a[z, y, x] + a[z - 1, y, x])
            along_y = rate * (a[z, y + 1, x] - two * a[z, y, x] + a[z, y - 1, x])
            along_x = rate * (a[z, y, x + 1] - two * a[z, y, x] + a[z, y, x - 1])
            out[z, y, x] = along_z + along_y + along_x + a[z, y, x]

    return heat_3d


@parallel
def _numba_heat_3d(rate, two, a, out):
    depth, height, width = a.shape
    for z in prange(1, depth - 1):
        for y in range(1, height - 1):
            for x in range(1, width - 1):
                along_z = rate * (a[z + 1, y, x] - two * a[z, y, x] + a[z - 1, y, x])
                along_y = rate * (a[z, y + 1, x] - two * a[z, y, x] + a[z, y - 1, x])
                along_x = rate * (a[z, y, x + 1] - two * a[z, y, x] + a[z, y, x - 1])
                out[z, y, x] = along_z + along_y + along_x + a[z, y, x]


def heat_3d(setting: Setting) -> dict[str, Contender]:
    cube = (setting.size,) * 3
    arguments = setting.number(0.125), setting.number(2), setting.floats(*cube), setting.zeros(*cube)
    return side_by_side(setting, by_shape(_heat_3d, setting, SHAPES_3, cube), _numba_heat_3d, arguments, 3)


@cache
def _fdtd_2d(real: Any, shape: Shape) -> tuple[Any, Any, Any]:
    @vyre.kernel(workgroup=shape)
    def fdtd_ey(half: real, ey: vyre.InOut[real, 2], hz: vyre.In[real, 2]):
        x, y = vyre.gid(0), vyre.gid(1)
        height, width = hz.shape
        if 0 < y < height and x < width:
            ey[y, x] -= half * (hz[y, x] - hz[y - 1, x])

    @vyre.kernel(workgroup=shape)
    def fdtd_ex(half: real, ex: vyre.InOut[real, 2], hz: vyre.In[real, 2]):
        x, y = vyre.gid(0), vyre.gid(1)
        height, width = hz.shape
        if y < height and 0 < x < width:
            ex[y, x] -= half * (hz[y, x] - hz[y, x - 1])

    @vyre.kernel(workgroup=shape)
    def fdtd_hz(rate: real, ex: vyre.In[real, 2], ey: vyre.In[real, 2], hz: vyre.InOut[real, 2]):
        x, y = vyre.gid(0), vyre.gid(1)
        height, width = hz.shape
        if y < height - 1 and x < width - 1:
            hz[y, x] -= rate * (ex[y, x + 1] - ex[y, x] + ey[y + 1, x] - ey[y, x])

    return fdtd_ey, fdtd_ex, fdtd_hz


@parallel
def _numba_fdtd_2d(half, rate, ex, ey, hz):
    height, width = hz.shape
    for y in prange(1, height):
        for x in range(width):
            ey[y, x] -= half * (hz[y, x] - hz[y - 1, x])
    for y in prange(height):
        for x in range(1, width):
            ex[y, x] -= half * (hz[y, x] - hz[y, x - 1])
    for y in prange(height - 1):
        for x in range(width - 1):
            hz[y, x] -= rate * (ex[y, x + 1] - ex[y, x] + ey[y + 1, x] - ey[y, x])


def fdtd_2d(setting: Setting) -> dict[str, Contender]:
    size = setting.size
    fields = [setting.floats(size, size, seed=seed) for seed in (1, 2, 3)]
    arguments = setting.number(0.5), setting.number(0.7), *fields

    def stepping(shape: Shape) -> Any:
        update_ey, update_ex, update_hz = (kernel[size, size] for kernel in _fdtd_2d(setting.real, shape))

        def step(half: Any, rate: Any, ex: Any, ey: Any, hz: Any) -> None:
            update_ey(half, ey, hz)
            update_ex(half, ex, hz)
            update_hz(rate, ex, ey, hz)

        return step

    launches = {f"vyre {shape}": stepping(shape) for shape in SHAPES_2}
    return side_by_side(setting, launches, _numba_fdtd_2d, arguments, 2, 3, 4)


@vyre.function
def laplacian(a, z, y, x):
    return 4.0 * a[z, y, x] - (a[z, y, x + 1] + a[z, y, x - 1] + a[z, y + 1, x] + a[z, y - 1, x])


@vyre.function
def limited(flux, slope):
    """A flux that would steepen the field is none."""
    return 0.0 if flux * slope > 0.0 else flux


@cache
def _diffusion(real: Any, shape: Shape) -> Any:
    @vyre.kernel(workgroup=shape)
    def diffusion(a: vyre.In[real, 3], rate: vyre.In[real, 3], out: vyre.Out[real, 3]):
        x, y, z = vyre.gid(0), vyre.gid(1), vyre.gid(2)
        depth, height, width = a.shape
        if z < depth and 2 <= y < height - 2 and 2 <= x < width - 2:
            here = laplacian(a, z, y, x)
            east = limited(laplacian(a, z, y, x + 1) - here, a[z, y, x + 1] - a[z, y, x])
            west = limited(here - laplacian(a, z, y, x - 1), a[z, y, x] - a[z, y, x - 1])
            south = limited(laplacian(a, z, y + 1, x) - here, a[z, y + 1, x] - a[z, y, x])
            north = limited(here - laplacian(a, z, y - 1, x), a[z, y, x] - a[z, y - 1, x])
            out[z, y, x] = a[z, y, x] - rate[z, y, x] * (east - west + south - north)

    return diffusion


@serial
def _numba_laplacian(four, above, here, below, out):
    for x in range(1, len(here) - 1):
        out[x] = four * here[x] - (here[x + 1] + here[x - 1] + below[x] + above[x])


@serial
def _numba_flux_along(laplacians, a, out, zero):
    for x in range(len(a) - 1):
        flux = laplacians[x + 1] - laplacians[x]
        out[x] = zero if flux * (a[x + 1] - a[x]) > zero else flux


@serial
def _numba_flux_across(above, below, a_above, a_below, out, zero):
    for x in range(len(out)):
        flux = below[x] - above[x]
        out[x] = zero if flux * (a_below[x] - a_above[x]) > zero else flux


@parallel
def _numba_diffusion(a, rate, out, rows, four, zero):
    """Rows of Laplacians and of fluxes are kept until the next row has used them; ``rows`` has six for each level."""
    depth, height, width = a.shape
    for z in prange(depth):
        laplacians, across, along = rows[z, :3], rows[z, 3:5], rows[z, 5]
        for y in range(1, 3):
            _numba_laplacian(four, a[z, y - 1], a[z, y], a[z, y + 1], laplacians[y])
        _numba_flux_across(laplacians[1], laplacians[2], a[z, 1], a[z, 2], across[1], zero)
        for y in range(2, height - 2):
            here, following = laplacians[y % 3], laplacians[(y + 1) % 3]
            north, south = across[(y + 1) % 2], across[y % 2]
            _numba_laplacian(four, a[z, y], a[z, y + 1], a[z, y + 2], following)
            _numba_flux_along(here, a[z, y], along, zero)
            _numba_flux_across(here, following, a[z, y], a[z, y + 1], south, zero)
            row, rates, to = a[z, y], rate[z, y], out[z, y]
            for x in range(2, width - 2):
                to[x] = row[x] - rates[x] * (along[x] - along[x - 1] + south[x] - north[x])


def diffusion(setting: Setting) -> dict[str, Contender]:
    size, levels = setting.size, max(2, setting.size // 4)
    fields = [setting.floats(levels, size, size, seed=seed) for seed in (1, 2)]
    arguments = [*fields, setting.zeros(levels, size, size)]
    found = {
        name: on_vyre(setting, launch, arguments, [2])
        for name, launch in by_shape(_diffusion, setting, SHAPES_3, (size, size, levels)).items()
    }
    if numba:
        rows = setting.zeros(levels, 6, size)
        found["numba"] = on_numba(_numba_diffusion, [*arguments, rows, setting.number(4), setting.number(0)], [2])
    return found


@cache
def _advection(real: Any, shape: Shape) -> Any:
    @vyre.kernel(workgroup=shape)
    def advection(
        w: vyre.In[real, 3], u: vyre.In[real, 3], c: vyre.InOut[real, 3], d: vyre.InOut[real, 3],
        out: vyre.Out[real, 3], one: real, quarter: real,
    ):  # fmt: skip
        x, y = vyre.gid(0), vyre.gid(1)
        depth, height, width = u.shape
        if y < height and x < width:
            upper = quarter * w[1, y, x]
            c[0, y, x] = upper / (one - upper)
            d[0, y, x] = u[0, y, x] / (one - upper)
            for z in range(1, depth):
                lower = -quarter * w[z, y, x]
                upper = quarter * w[z + 1, y, x]
                scale = one / (one - lower - upper - lower * c[z - 1, y, x])
                c[z, y, x] = upper * scale
                d[z, y, x] = (u[z, y, x] - lower * d[z - 1, y, x]) * scale
            value = d[depth - 1, y, x]
            out[depth - 1, y, x] = value
            for step in range(1, depth):
                z = depth - 1 - step
                value = d[z, y, x] - c[z, y, x] * value
                out[z, y, x] = value

    return advection


@parallel
def _numba_advection(w, u, c, d, out, one, quarter):
    depth, height, width = u.shape
    for y in prange(height):
        for x in range(width):
            upper = quarter * w[1, y, x]
            c[0, y, x] = upper / (one - upper)
            d[0, y, x] = u[0, y, x] / (one - upper)
        for z in range(1, depth):
            for x in range(width):
                lower = -quarter * w[z, y, x]
                upper = quarter * w[z + 1, y, x]
                scale = one / (one - lower - upper - lower * c[z - 1, y, x])
                c[z, y, x] = upper * scale
                d[z, y, x] = (u[z, y, x] - lower * d[z - 1, y, x]) * scale
        for x in range(width):
            out[depth - 1, y, x] = d[depth - 1, y, x]
        for z in range(depth - 2, -1, -1):
            for x in range(width):
                out[z, y, x] = d[z, y, x] - c[z, y, x] * out[z + 1, y, x]


def advection(setting: Setting) -> dict[str, Contender]:
    """A tridiagonal system for each column: a sweep down and one up."""
    size, levels = setting.size, max(2, setting.size // 4)
    fields = setting.floats(levels + 1, size, size), setting.floats(levels, size, size, seed=2)
    scratch = [setting.zeros(levels, size, size) for _ in range(3)]
    arguments = *fields, *scratch, setting.number(1), setting.number(0.25)
    return side_by_side(setting, by_shape(_advection, setting, SHAPES_2, (size, size)), _numba_advection, arguments, 4)


@cache
def _blur(real: Any, shape: Shape) -> Any:
    @vyre.kernel(workgroup=shape)
    def blur(ninth: real, a: vyre.In[real, 2], out: vyre.Out[real, 2]):
        x, y = vyre.gid(0), vyre.gid(1)
        height, width = a.shape
        if y < height and x < width:
            above, below = max(y, 1) - 1, min(y + 1, height - 1)
            left, right = max(x, 1) - 1, min(x + 1, width - 1)
            total = a[above, left] + a[above, x] + a[above, right]
            total += a[y, left] + a[y, x] + a[y, right]
            total += a[below, left] + a[below, x] + a[below, right]
            out[y, x] = ninth * total

    return blur


@serial
def _numba_box(above, here, below, left, x, right):
    total = above[left] + above[x] + above[right]
    total += here[left] + here[x] + here[right]
    total += below[left] + below[x] + below[right]
    return total


@serial
def _numba_blur_row(ninth, above, here, below, out):
    last = len(out) - 1
    out[0] = ninth * _numba_box(above, here, below, 0, 0, min(1, last))
    for x in range(1, last):
        out[x] = ninth * _numba_box(above, here, below, x - 1, x, x + 1)
    out[last] = ninth * _numba_box(above, here, below, max(last - 1, 0), last, last)


@parallel
def _numba_blur(ninth, a, out):
    for y in prange(len(a)):
        _numba_blur_row(ninth, a[max(y - 1, 0)], a[y], a[min(y + 1, len(a) - 1)], out[y])


def blur(setting: Setting) -> dict[str, Contender]:
    """A box of nine; beyond an edge its own elements are taken."""
    size = setting.size
    arguments = setting.number(1 / 9), setting.floats(size, size), setting.zeros(size, size)
    return side_by_side(setting, by_shape(_blur, setting, SHAPES_2, (size, size)), _numba_blur, arguments, 2)


@cache
def _convolution(real: Any, shape: Shape) -> Any:
    @vyre.kernel(workgroup=shape)
    def convolution(weights: vyre.In[real, (5, 5)], a: vyre.In[real, 2], out: vyre.Out[real, 2]):
        x, y = vyre.gid(0), vyre.gid(1)
        height, width = out.shape
        if y < height and x < width:
            total: real = 0
            for row in range(5):
                for column in range(5):
                    total += weights[row, column] * a[y + row, x + column]
            out[y, x] = total

    return convolution


@parallel
def _numba_convolution(w, a, out, zero):
    height, width = out.shape
    for y in prange(height):
        # One row of the weights at a time: a row of the result stays in the cache, and the loops go in vectors.
        for x in range(width):
            out[y, x] = zero
        for row in range(5):
            w0, w1, w2, w3, w4 = w[row, 0], w[row, 1], w[row, 2], w[row, 3], w[row, 4]
            for x in range(width):
                total = out[y, x] + w0 * a[y + row, x]
                total += w1 * a[y + row, x + 1]
                total += w2 * a[y + row, x + 2]
                total += w3 * a[y + row, x + 3]
                total += w4 * a[y + row, x + 4]
                out[y, x] = total


def convolution(setting: Setting) -> dict[str, Contender]:
    """Where the whole window of 5x5 lies in the image."""
    size = setting.size
    arguments = setting.floats(5, 5), setting.floats(size + 4, size + 4, seed=2), setting.zeros(size, size)
    found = {
        name: on_vyre(setting, launch, arguments, [2])
        for name, launch in by_shape(_convolution, setting, SHAPES_2, (size, size)).items()
    }
    if numba:
        found["numba"] = on_numba(_numba_convolution, [*arguments, setting.number(0)], [2])
    return found

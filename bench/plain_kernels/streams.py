"""Kernels that go once through their arrays: copies, transposition, sums, histograms, compaction, k-means."""

# No `from __future__ import annotations`: it hides the element type, a local name, from a kernel's annotations.
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

import vyre
from comparison import Contender
from plain_kernels import (
    SHAPES_2,
    Setting,
    Shape,
    by_shape,
    numba,
    on_numba,
    on_vyre,
    parallel,
    prange,
    side_by_side,
)
from vyre import u8, u32

_BINS = 256
_CLUSTERS, _AXES = 16, 4


@cache
def _scaled_copy(real: Any) -> Any:
    @vyre.kernel
    def scaled_copy(scale: real, x: vyre.In[real], out: vyre.Out[real]):
        i = vyre.gid()
        if i < len(out):
            out[i] = scale * x[i]

    return scaled_copy


@parallel
def _numba_scaled_copy(scale, x, out):
    for i in prange(len(out)):
        out[i] = scale * x[i]


def _called_and_bound(
    setting: Setting, launch: Any, function: Any, arguments: Sequence[Any], output: int
) -> dict[str, Contender]:
    """The call, which checks its arguments each time, and the prepared call: small arrays tell them apart."""
    own = setting.resident(arguments)
    bound = launch.bind(*own)
    return {
        **side_by_side(setting, {"vyre": launch}, function, arguments, output),
        "vyre, bound": Contender(bound, lambda _: own[output].numpy()),
    }


def scaled_copy(setting: Setting) -> dict[str, Contender]:
    """``size`` counts the bytes of one array."""
    x = setting.floats(setting.size // np.dtype(setting.dtype).itemsize)
    arguments = setting.number(1.5), x, setting.zeros(x.size)
    return _called_and_bound(setting, _scaled_copy(setting.real)[x.size], _numba_scaled_copy, arguments, 2)


@cache
def _saxpy(real: Any) -> Any:
    @vyre.kernel
    def saxpy(a: real, x: vyre.In[real], y: vyre.InOut[real]):
        i = vyre.gid()
        if i < len(y):
            y[i] = a * x[i] + y[i]

    return saxpy


@parallel
def _numba_saxpy(a, x, y):
    for i in prange(len(y)):
        y[i] = a * x[i] + y[i]


def saxpy(setting: Setting) -> dict[str, Contender]:
    """``size`` counts the bytes of one array."""
    count = setting.size // np.dtype(setting.dtype).itemsize
    arguments = setting.number(1e-3), setting.floats(count), setting.floats(count, seed=2)
    return _called_and_bound(setting, _saxpy(setting.real)[count], _numba_saxpy, arguments, 2)


@cache
def _transpose(real: Any, shape: Shape) -> Any:
    @vyre.kernel(workgroup=shape)
    def transpose(a: vyre.In[real, 2], out: vyre.Out[real, 2]):
        x, y = vyre.gid(0), vyre.gid(1)
        height, width = a.shape
        if y < height and x < width:
            out[x, y] = a[y, x]

    return transpose


@parallel
def _numba_transpose(a, out):
    height, width = a.shape
    rows, columns = (height + 31) // 32, (width + 31) // 32
    for row in prange(rows):
        for column in range(columns):
            for x in range(32 * column, min(width, 32 * column + 32)):
                for y in range(32 * row, min(height, 32 * row + 32)):
                    out[x, y] = a[y, x]


def transpose(setting: Setting) -> dict[str, Contender]:
    size = setting.size
    arguments = setting.floats(size, size), setting.zeros(size, size)
    return side_by_side(setting, by_shape(_transpose, setting, SHAPES_2, (size, size)), _numba_transpose, arguments, 1)


@cache
def _chunk_sums(real: Any) -> tuple[Any, Any]:
    @vyre.kernel
    def chunk_sums(x: vyre.In[real], sums: vyre.Out[real]):
        chunk = vyre.gid()
        if chunk < len(sums):
            size = (len(x) + len(sums) - 1) // len(sums)
            total: real = 0
            for i in range(chunk * size, min((chunk + 1) * size, len(x))):
                total += x[i]
            sums[chunk] = total

    @vyre.kernel
    def sum_of_sums(sums: vyre.In[real], total: vyre.Out[real]):
        if vyre.gid() == 0:
            found: real = 0
            for chunk in range(len(sums)):
                found += sums[chunk]
            total[0] = found

    return chunk_sums, sum_of_sums


@parallel
def _numba_chunk_sums(x, sums, total):
    chunks = len(sums)
    size = (len(x) + chunks - 1) // chunks
    for chunk in prange(chunks):
        a = b = c = d = x.dtype.type(0)
        start, stop = chunk * size, min((chunk + 1) * size, len(x))
        fours = (stop - start) // 4
        # Four sums: an addition does not wait for the last one.
        for k in range(fours):
            i = start + 4 * k
            a += x[i]
            b += x[i + 1]
            c += x[i + 2]
            d += x[i + 3]
        for i in range(start + 4 * fours, stop):
            a += x[i]
        sums[chunk] = (a + b) + (c + d)
    found = x.dtype.type(0)
    for chunk in range(chunks):
        found += sums[chunk]
    total[0] = found


def reduction(setting: Setting) -> dict[str, Contender]:
    x, total = setting.floats(setting.size), setting.zeros(1)

    def summing(chunks: int) -> Any:
        first, second = (kernel[chunks] for kernel in _chunk_sums(setting.real))

        def run(x: Any, sums: Any, total: Any) -> None:
            first(x, sums)
            second(sums, total)

        return run

    found = {
        f"vyre, {chunks} chunks": on_vyre(setting, summing(chunks), [x, setting.zeros(chunks), total], [2])
        for chunks in setting.finer_chunks
    }
    if numba:
        found["numba"] = on_numba(_numba_chunk_sums, [x, setting.zeros(setting.threads), total], [2])
    return found


@vyre.kernel
def chunk_counts(data: vyre.In[u8], partial: vyre.InOut[u32, (None, _BINS)]):
    chunk = vyre.gid()
    chunks, bins = partial.shape
    if chunk < chunks:
        size = (len(data) + chunks - 1) // chunks
        for value in range(bins):
            partial[chunk, value] = 0
        for i in range(chunk * size, min((chunk + 1) * size, len(data))):
            partial[chunk, u32(data[i])] += 1


@vyre.kernel
def merge_counts(partial: vyre.In[u32, (None, _BINS)], counts: vyre.Out[u32]):
    value = vyre.gid()
    chunks, bins = partial.shape
    if value < bins:
        total = 0
        for chunk in range(chunks):
            total += partial[chunk, value]
        counts[value] = total


@parallel
def _numba_histogram(data, partial, counts):
    chunks, bins = partial.shape
    size = (len(data) + chunks - 1) // chunks
    for chunk in prange(chunks):
        own = np.zeros(bins, np.uint32)
        for i in range(chunk * size, min((chunk + 1) * size, len(data))):
            own[data[i]] += np.uint32(1)
        for value in range(bins):
            partial[chunk, value] = own[value]
    for value in range(bins):
        found = np.uint32(0)
        for chunk in range(chunks):
            found += partial[chunk, value]
        counts[value] = found


def histogram(setting: Setting) -> dict[str, Contender]:
    data = np.random.default_rng(1).integers(0, _BINS, setting.size, np.uint8)
    counts = np.zeros(_BINS, np.uint32)

    def run(data: Any, partial: Any, counts: Any) -> None:
        chunk_counts[len(partial)](data, partial)
        merge_counts[_BINS](partial, counts)

    def arguments(chunks: int) -> list[Any]:
        return [data, np.zeros((chunks, _BINS), np.uint32), counts]

    found = {f"vyre, {chunks} chunks": on_vyre(setting, run, arguments(chunks), [2]) for chunks in setting.chunks}
    if numba:
        found["numba"] = on_numba(_numba_histogram, arguments(setting.threads), [2])
    return found


@cache
def _compact(real: Any) -> Any:
    @vyre.kernel
    def compact(least: real, x: vyre.In[real], counts: vyre.InOut[u32], out: vyre.Out[real]):
        """Keep the elements from ``least`` on, in their order; ``counts`` ends with how many there are."""
        chunk = vyre.gid()
        chunks = len(counts) - 1
        size = (len(x) + chunks - 1) // chunks
        start, stop = chunk * size, min((chunk + 1) * size, len(x))
        if chunk < chunks:
            count = 0
            for i in range(start, stop):
                if x[i] >= least:
                    count += 1
            counts[chunk] = count
        vyre.grid_sync()
        if chunk == 0:
            before = 0
            for k in range(chunks):
                count = counts[k]
                counts[k] = before
                before += count
            counts[chunks] = before
        vyre.grid_sync()
        if chunk < chunks:
            place = counts[chunk]
            for i in range(start, stop):
                if x[i] >= least:
                    out[place] = x[i]
                    place += 1

    return compact


@parallel
def _numba_compact(least, x, counts, out):
    chunks = len(counts) - 1
    size = (len(x) + chunks - 1) // chunks
    for chunk in prange(chunks):
        count = 0
        for i in range(chunk * size, min((chunk + 1) * size, len(x))):
            count += x[i] >= least
        counts[chunk] = count
    before = 0
    for chunk in range(chunks):
        count = counts[chunk]
        counts[chunk] = before
        before += count
    counts[chunks] = before
    for chunk in prange(chunks):
        place = np.uint64(counts[chunk])
        start, stop = chunk * size, min((chunk + 1) * size, len(x))
        while stop > start and x[stop - 1] < least:
            stop -= 1
        # Without a branch: what is not kept is written over by the next that is, and the last one is.
        for i in range(start, stop):
            out[place] = x[i]
            place += np.uint64(x[i] >= least)


def compaction(setting: Setting) -> dict[str, Contender]:
    x = setting.floats(setting.size)

    def arguments(chunks: int) -> list[Any]:
        return [setting.number(0.5), x, np.zeros(chunks + 1, np.uint32), setting.zeros(x.size)]

    found = {
        f"vyre, {chunks} chunks": on_vyre(setting, _compact(setting.real)[chunks], arguments(chunks), [3])
        for chunks in setting.finer_chunks
    }
    if numba:
        found["numba"] = on_numba(_numba_compact, arguments(setting.threads), [3])
    return found


@cache
def _kmeans(real: Any) -> tuple[Any, Any, Any]:
    @vyre.kernel
    def assign(points: vyre.In[real, (None, _AXES)], centres: vyre.In[real, (None, _AXES)], labels: vyre.Out[u32]):
        i = vyre.gid()
        clusters, axes = centres.shape
        if i < len(labels):
            best = 0
            least: real = 1e30
            for cluster in range(clusters):
                distance: real = 0
                for axis in range(axes):
                    difference = points[i, axis] - centres[cluster, axis]
                    distance += difference * difference
                if distance < least:
                    least = distance
                    best = cluster
            labels[i] = best

    @vyre.kernel
    def partial_sums(
        points: vyre.In[real, (None, _AXES)], labels: vyre.In[u32], sums: vyre.InOut[real, (None, _CLUSTERS, _AXES)],
        counts: vyre.InOut[u32, (None, _CLUSTERS)],
    ):  # fmt: skip
        chunk = vyre.gid()
        chunks, clusters, axes = sums.shape
        if chunk < chunks:
            for cluster in range(clusters):
                counts[chunk, cluster] = 0
                for axis in range(axes):
                    sums[chunk, cluster, axis] = 0
            size = (len(labels) + chunks - 1) // chunks
            for i in range(chunk * size, min((chunk + 1) * size, len(labels))):
                label = labels[i]
                counts[chunk, label] += 1
                for axis in range(axes):
                    sums[chunk, label, axis] += points[i, axis]

    @vyre.kernel
    def means(
        sums: vyre.In[real, (None, _CLUSTERS, _AXES)], counts: vyre.In[u32, (None, _CLUSTERS)],
        out: vyre.Out[real, (None, _AXES)],
    ):  # fmt: skip
        cluster = vyre.gid()
        chunks, clusters, axes = sums.shape
        if cluster < clusters:
            count = 0
            for chunk in range(chunks):
                count += counts[chunk, cluster]
            for axis in range(axes):
                total: real = 0
                for chunk in range(chunks):
                    total += sums[chunk, cluster, axis]
                out[cluster, axis] = total / real(max(count, 1))

    return assign, partial_sums, means


@parallel
def _numba_kmeans(points, centres, labels, sums, counts, out):
    clusters, axes = centres.shape
    chunks = len(sums)
    size = (len(points) + chunks - 1) // chunks
    for i in prange(len(points)):
        best = 0
        least = points.dtype.type(1e30)
        for cluster in range(clusters):
            distance = points.dtype.type(0)
            for axis in range(_AXES):
                difference = points[i, axis] - centres[cluster, axis]
                distance += difference * difference
            if distance < least:
                least = distance
                best = cluster
        labels[i] = best
    for chunk in prange(chunks):
        own, own_counts = np.zeros((_CLUSTERS, _AXES), points.dtype), np.zeros(_CLUSTERS, np.uint32)
        for i in range(chunk * size, min((chunk + 1) * size, len(points))):
            label = labels[i]
            own_counts[label] += np.uint32(1)
            for axis in range(_AXES):
                own[label, axis] += points[i, axis]
        for cluster in range(clusters):
            counts[chunk, cluster] = own_counts[cluster]
            for axis in range(axes):
                sums[chunk, cluster, axis] = own[cluster, axis]
    for cluster in range(clusters):
        count = 0
        for chunk in range(chunks):
            count += counts[chunk, cluster]
        for axis in range(axes):
            found = points.dtype.type(0)
            for chunk in range(chunks):
                found += sums[chunk, cluster, axis]
            out[cluster, axis] = found / max(count, 1)


def kmeans(setting: Setting) -> dict[str, Contender]:
    """One round: labels, sums by chunks, and the new centres. Labels and centres are compared."""
    count = setting.size
    points = setting.floats(count, _AXES)

    def arguments(chunks: int) -> list[Any]:
        sums, counts = setting.zeros(chunks, _CLUSTERS, _AXES), np.zeros((chunks, _CLUSTERS), np.uint32)
        centres = setting.floats(_CLUSTERS, _AXES, seed=2)
        return [points, centres, np.zeros(count, np.uint32), sums, counts, setting.zeros(_CLUSTERS, _AXES)]

    def rounds(chunks: int) -> Any:
        assign, partial_sums, means = _kmeans(setting.real)

        def run(points: Any, centres: Any, labels: Any, sums: Any, counts: Any, out: Any) -> None:
            assign[count](points, centres, labels)
            partial_sums[chunks](points, labels, sums, counts)
            means[_CLUSTERS](sums, counts, out)

        return run

    found = {
        f"vyre, {chunks} chunks": on_vyre(setting, rounds(chunks), arguments(chunks), [2, 5])
        for chunks in setting.chunks
    }
    if numba:
        found["numba"] = on_numba(_numba_kmeans, arguments(setting.threads), [2, 5])
    return found

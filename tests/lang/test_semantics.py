"""What a kernel computes is what Python computes from the same text, on numbers that have types."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_support import module_of, sample
from python_model import ModelArray, run
from random_kernels import ARRAYS, HEADER, kernel_text

import cpu_support
from vyre.backends.reference import ReferenceBackend
from vyre.lang import Kernel
from vyre.semantics import DType

OWN, INVOCATIONS = 5, 8
REFERENCE = ReferenceBackend()


def arrays_for(seed: int) -> dict[str, np.ndarray]:
    made = {}
    for number, name in enumerate(ARRAYS):
        dtype = DType(name.split("_")[-1].removesuffix("s"))
        shape = (OWN, 3) if name.startswith("grid") else (OWN,)
        made[name] = sample(dtype, shape, 100 * seed + number)
    return made


def expected(text: str, seed: int) -> dict[str, np.ndarray]:
    data = arrays_for(seed)
    dtypes = [DType(name.split("_")[-1].removesuffix("s")) for name in data]
    run(
        text.removeprefix(HEADER),
        "k",
        [ModelArray(array, dtype) for array, dtype in zip(data.values(), dtypes, strict=True)],
        INVOCATIONS,
    )
    return data


def compare(seed: int, directory: Path) -> None:
    text = kernel_text(seed)
    wanted = expected(text, seed)
    kernel: Kernel = module_of(text, directory).k
    for backend in (REFERENCE, cpu_support.backend(None, 1)):
        data = arrays_for(seed)
        # A few arrays are views whose elements lie apart, and backwards, or in rows that do.
        given = {
            name: apart(array, by_rows=at % 3 == 0) if (seed + at) % 4 == 0 else array
            for at, (name, array) in enumerate(data.items())
        }
        kernel.on(backend).grid(INVOCATIONS // 8)(*given.values())
        for name, array in given.items():
            assert array.tobytes() == wanted[name].tobytes(), f"seed {seed}, {backend.id}, {name}\n{text}"
    # Debug runs evaluate strictly what Python does; they find no race, for no invocation touches another's.
    report = kernel.grid(INVOCATIONS // 8).debug(*arrays_for(seed).values(), schedules=1)
    assert report.races == ()
    for name, array in report.outputs.items():
        assert array.tobytes() == wanted[name].tobytes(), f"seed {seed}, debug, {name}\n{text}"


def apart(array: np.ndarray, by_rows: bool) -> np.ndarray:
    room = np.zeros([2 * size + 1 for size in array.shape], array.dtype)
    backwards, forwards = [slice(2 * size - 1, None, -2) for size in array.shape], slice(1, array.shape[-1] + 1)
    view = room[tuple([*backwards[:-1], forwards] if by_rows else backwards)]
    view[...] = array
    return view


@pytest.mark.parametrize("seed", range(40))
def test_random_kernels_compute_what_python_does(seed: int, tmp_path: Path) -> None:
    compare(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_many_random_kernels_compute_what_python_does(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 100):
        compare(seed, tmp_path)

"""Plain kernels, written the obvious way from ``docs/kernels.md``, each beside a Numba function of the same arithmetic.

One module for each domain. A maker takes a ``Setting`` and returns the contenders of one case: variants of vyre, whose
names begin with "vyre", and those of Numba. Inputs depend on the setting alone, each contender has arrays of its own,
and vyre's arrays are resident. Kernels come from functions of their element type and workgroup shape. Numba's functions
state no types: they are compiled for those they are called with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

import vyre
from comparison import Array, Contender
from vyre import f32
from vyre.driver import Backend

# An expert's settings: IEEE floats as they are, and no tests for a division by zero.
_NUMBA: Final = {"fastmath": False, "error_model": "numpy", "cache": False}

try:
    import numba
    from numba import prange

    NUMBA_VERSION = numba.__version__
except ImportError:
    numba = None
    prange = range
    NUMBA_VERSION = ""

Shape = tuple[int, ...]
SHAPES_2: Final[tuple[Shape, ...]] = ((64, 1), (16, 4), (8, 8))
SHAPES_3: Final[tuple[Shape, ...]] = (*SHAPES_2, (4, 4, 4))


def parallel(function: Callable[..., Any]) -> Any:
    """A Numba function whose ``prange`` loops are shared between threads; without Numba it stays Python's."""
    return numba.njit(parallel=True, **_NUMBA)(function) if numba else function


def serial(function: Callable[..., Any]) -> Any:
    """A Numba function that others call, or that runs on one thread."""
    return numba.njit(**_NUMBA)(function) if numba else function


class Setting(msgspec.Struct, frozen=True):
    """The size and the element type of a case, the threads of all contenders, and where vyre's arrays lie.

    ``chunks`` are the numbers of invocations that share work of which each takes a long piece: one for each thread, as
    an expert has it, and as many as a device with many lanes wants.
    """

    size: int
    real: vyre.semantics.types.DType = f32
    threads: int = 2
    backend: str | Backend = "cpu"
    chunks: tuple[int, int] = (2, 64)

    @property
    def dtype(self) -> Any:
        return np.float32 if self.real is f32 else np.float64

    @property
    def finer_chunks(self) -> tuple[int, ...]:
        """``chunks``, and very many for work that keeps little for each."""
        return *self.chunks, 64 * self.chunks[-1]

    def floats(self, *shape: int, seed: int = 1) -> Array:
        """Numbers from 0 to 1."""
        return np.random.default_rng(seed).random(shape, self.dtype)

    def zeros(self, *shape: int) -> Array:
        return np.zeros(shape, self.dtype)

    def number(self, value: float) -> Any:
        """A number of the case's type, for both sides."""
        return self.dtype(value)

    def resident(self, arguments: Sequence[Any]) -> list[Any]:
        """The arguments, with arrays of their own on the backend."""
        return [vyre.array(one, backend=self.backend) if isinstance(one, np.ndarray) else one for one in arguments]


def on_vyre(
    setting: Setting, launch: Callable[..., object], arguments: Sequence[Any], outputs: Sequence[int]
) -> Contender:
    """What ``launch`` does with the arguments on the backend; ``outputs`` are the places of those that are compared."""
    resident = setting.resident(arguments)
    return Contender(lambda: launch(*resident), lambda _: joined([resident[place].numpy() for place in outputs]))


def on_numba(function: Callable[..., object], arguments: Sequence[Any], outputs: Sequence[int]) -> Contender:
    own = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
    return Contender(lambda: function(*own), lambda _: joined([own[place] for place in outputs]))


def joined(arrays: Sequence[Array]) -> Array:
    return np.concatenate([array.ravel() for array in arrays])


def side_by_side(
    setting: Setting,
    launches: Mapping[str, Callable[..., object]],
    function: Callable[..., object],
    arguments: Sequence[Any],
    *outputs: int,
) -> dict[str, Contender]:
    """Variants of vyre and one function of Numba that take the same arguments and write the same outputs."""
    found = {name: on_vyre(setting, launch, arguments, outputs) for name, launch in launches.items()}
    if numba:
        found["numba"] = on_numba(function, arguments, outputs)
    return found


def by_shape(
    make: Callable[[Any, Shape], Any], setting: Setting, shapes: Sequence[Shape], grid: tuple[int, ...]
) -> dict[str, Any]:
    """A launch for each workgroup shape."""
    return {f"vyre {shape}": make(setting.real, shape)[grid] for shape in shapes}

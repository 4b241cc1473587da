"""The workloads that SciPy has a function for."""

from __future__ import annotations

import numpy as np
import scipy
from scipy import ndimage

from peers import Array, Peer, on_arrays

_WEIGHTS = np.array([[0, 0.1, 0], [0.1, 0.6, 0.1], [0, 0.1, 0]], np.float32)


def _stencil(now: Array, out: Array) -> None:
    a, b = now.reshape(4096, 4096), out.reshape(4096, 4096)
    ndimage.correlate(a, _WEIGHTS, output=b)
    for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        b[edge] = a[edge]


def load(_: int) -> Peer:
    return Peer("scipy", scipy.__version__, {"stencil": on_arrays(_stencil)})

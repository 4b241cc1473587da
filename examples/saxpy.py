"""y = a * x + y: a first kernel, on NumPy arrays, in place."""

import numpy as np

import vyre
from vyre import f32


@vyre.kernel
def saxpy(a: f32, x: vyre.In[f32], y: vyre.InOut[f32]):
    i = vyre.gid()
    if i < len(y):
        y[i] = a * x[i] + y[i]


def main(n: int = 1_000_000) -> None:
    x = np.linspace(0, 1, n, dtype=np.float32)
    y = np.ones(n, np.float32)
    expected = np.float32(2) * x + y

    saxpy[n](2.0, x, y)

    print(f"saxpy of {n:,} elements: {y[:3]} ... {y[-1]}")
    print("the same as NumPy, to the bit:", np.array_equal(y, expected))
    print()
    print(saxpy.program)


if __name__ == "__main__":
    main()

"""The sum of an array: a tree in workgroup memory, then one atomic for each workgroup."""

import numpy as np

import vyre
from vyre import u32

WORKGROUP = 256


@vyre.kernel(workgroup=WORKGROUP)
def total(values: vyre.In[u32], result: vyre.InOut[u32]):
    tile = vyre.shared(u32, WORKGROUP)
    i, here = vyre.gid(), vyre.lid()
    tile[here] = values[i]  # an element that is not there is zero
    vyre.barrier()
    half = WORKGROUP // 2
    while half > 0:
        if here < half:
            tile[here] += tile[here + half]
        vyre.barrier()
        half //= 2
    if here == 0:
        vyre.atomic_add(result, 0, tile[0])


def main(n: int = 1_000_000) -> None:
    values = np.random.default_rng(1).integers(0, 1000, n, np.uint32)
    result = np.zeros(1, np.uint32)
    total[n](values, result)
    print(f"the sum of {n:,} numbers is {result[0]}; NumPy says {values.sum()}")
    few = total[1000].debug(values[:1000], np.zeros(1, np.uint32))
    print("races on the first thousand:", len(few.races), "- depends on the order:", few.order_dependent)


if __name__ == "__main__":
    main()

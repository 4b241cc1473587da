"""The longest common subsequence of two texts: a wavefront over the table, a grid barrier between diagonals."""

import numpy as np

import vyre
from vyre import u8, u32


@vyre.kernel
def lcs(a: vyre.In[u8], b: vyre.In[u8], table: vyre.InOut[u32, 2]):
    """``table[i, j]`` is the length for the first i of ``a`` and the first j of ``b``; row and column 0 are zero."""
    i = vyre.gid() + 1
    for diagonal in range(2, len(a) + len(b) + 1):
        j = diagonal - i
        if i < diagonal and i <= len(a) and j <= len(b):
            if a[i - 1] == b[j - 1]:
                table[i, j] = table[i - 1, j - 1] + 1
            else:
                table[i, j] = max(table[i - 1, j], table[i, j - 1])
        vyre.grid_sync()


def subsequence(a: bytes, b: bytes, table: np.ndarray) -> bytes:
    """One of the longest common subsequences, read back from the table."""
    i, j, found = len(a), len(b), []
    while i and j:
        if a[i - 1] == b[j - 1]:
            found.append(a[i - 1])
            i, j = i - 1, j - 1
        elif table[i - 1, j] >= table[i, j - 1]:
            i -= 1
        else:
            j -= 1
    return bytes(reversed(found))


def main(
    a: bytes = b"the quick brown fox jumps over the lazy dog", b: bytes = b"a lazy dog trots over the hill"
) -> None:
    table = np.zeros((len(a) + 1, len(b) + 1), np.uint32)
    lcs[len(a)](a, b, table)
    print(f"{a.decode()!r} and {b.decode()!r} share {table[-1, -1]} letters in order:")
    print(subsequence(a, b, table).decode())


if __name__ == "__main__":
    main()

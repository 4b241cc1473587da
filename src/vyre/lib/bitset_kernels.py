"""Kernels of bitsets: mostly one invocation for each word."""

# Annotations of kernels name types that a factory was given: they are evaluated where they stand.
from functools import cache
from typing import Any, Final

import vyre
from vyre import u32
from vyre.lang.kernel import Kernel, kernel
from vyre.lib.scan_kernels import NO_POSITION

WORD: Final = 32
# How many words a workgroup makes from bools, or bools from.
WORDS_PER_WORKGROUP: Final = 64
_WORKGROUP: Final = 64


@cache
def pack_kernel(flag: Any) -> Kernel:
    @kernel(workgroup=WORD, subgroup=WORD)
    def pack(bools: vyre.In[flag], words: vyre.Out[u32]) -> None:
        first = vyre.wg() * WORDS_PER_WORKGROUP
        for word in range(first, vyre.min(first + WORDS_PER_WORKGROUP, len(words))):
            words[word] = vyre.subgroup_ballot(vyre.bool_(bools[word * WORD + vyre.lid()]))

    return pack


@kernel(workgroup=WORD)
def unpack(words: vyre.In[u32], bools: vyre.Out[vyre.bool_]) -> None:
    first = vyre.wg() * WORDS_PER_WORKGROUP
    for word in range(first, vyre.min(first + WORDS_PER_WORKGROUP, len(words))):
        bools[word * WORD + vyre.lid()] = words[word] >> vyre.lid() & 1 == 1


@kernel(workgroup=_WORKGROUP)
def and_words(a: vyre.In[u32], b: vyre.In[u32], out: vyre.Out[u32]) -> None:
    i = vyre.gid()
    if i < len(out):
        out[i] = a[i] & b[i]


@kernel(workgroup=_WORKGROUP)
def or_words(a: vyre.In[u32], b: vyre.In[u32], out: vyre.Out[u32]) -> None:
    i = vyre.gid()
    if i < len(out):
        out[i] = a[i] | b[i]


@kernel(workgroup=_WORKGROUP)
def xor_words(a: vyre.In[u32], b: vyre.In[u32], out: vyre.Out[u32]) -> None:
    i = vyre.gid()
    if i < len(out):
        out[i] = a[i] ^ b[i]


@kernel(workgroup=_WORKGROUP)
def and_not_words(a: vyre.In[u32], b: vyre.In[u32], out: vyre.Out[u32]) -> None:
    i = vyre.gid()
    if i < len(out):
        out[i] = a[i] & ~b[i]


@kernel(workgroup=_WORKGROUP)
def and_in_place(words: vyre.InOut[u32], other: vyre.In[u32]) -> None:
    i = vyre.gid()
    if i < len(words):
        words[i] &= other[i]


@kernel(workgroup=_WORKGROUP)
def or_in_place(words: vyre.InOut[u32], other: vyre.In[u32]) -> None:
    i = vyre.gid()
    if i < len(words):
        words[i] |= other[i]


@kernel(workgroup=_WORKGROUP)
def xor_in_place(words: vyre.InOut[u32], other: vyre.In[u32]) -> None:
    i = vyre.gid()
    if i < len(words):
        words[i] ^= other[i]


@kernel(workgroup=_WORKGROUP)
def remove_in_place(words: vyre.InOut[u32], other: vyre.In[u32]) -> None:
    i = vyre.gid()
    if i < len(words):
        words[i] &= ~other[i]


@kernel(workgroup=_WORKGROUP)
def remove_from_in_place(words: vyre.InOut[u32], other: vyre.In[u32]) -> None:
    i = vyre.gid()
    if i < len(words):
        words[i] = other[i] & ~words[i]


# How two sets are combined into a third, into the first and into the second.
APART: Final = {"and": and_words, "or": or_words, "xor": xor_words, "and_not": and_not_words}
INTO_LEFT: Final = {"and": and_in_place, "or": or_in_place, "xor": xor_in_place, "and_not": remove_in_place}
INTO_RIGHT: Final = {**INTO_LEFT, "and_not": remove_from_in_place}


@kernel(workgroup=_WORKGROUP)
def invert(words: vyre.In[u32], out: vyre.Out[u32], count: u32) -> None:
    """The last word keeps zeros behind the end: as many ones are shifted out as there are such bits."""
    i = vyre.gid()
    if i < len(out):
        unused = WORD - 1 - (count - 1) % WORD if i == len(out) - 1 else 0
        out[i] = ~words[i] << unused >> unused


@kernel(workgroup=_WORKGROUP)
def invert_in_place(words: vyre.InOut[u32], count: u32) -> None:
    i = vyre.gid()
    if i < len(words):
        unused = WORD - 1 - (count - 1) % WORD if i == len(words) - 1 else 0
        words[i] = ~words[i] << unused >> unused


@kernel(workgroup=_WORKGROUP)
def copy_words(words: vyre.In[u32], out: vyre.Out[u32]) -> None:
    i = vyre.gid()
    if i < len(out):
        out[i] = words[i]


@kernel(workgroup=_WORKGROUP)
def set_each(indices: vyre.In[u32], words: vyre.InOut[u32]) -> None:
    i = vyre.gid()
    if i < len(indices):
        vyre.atomic_or(words, indices[i] // WORD, 1 << indices[i] % WORD)


@kernel(workgroup=_WORKGROUP)
def clear_each(indices: vyre.In[u32], words: vyre.InOut[u32]) -> None:
    i = vyre.gid()
    if i < len(indices):
        vyre.atomic_and(words, indices[i] // WORD, ~(1 << indices[i] % WORD))


@kernel(workgroup=_WORKGROUP)
def test_each(words: vyre.In[u32], indices: vyre.In[u32], out: vyre.Out[vyre.bool_]) -> None:
    i = vyre.gid()
    if i < len(indices):
        out[i] = words[indices[i] // WORD] >> indices[i] % WORD & 1 == 1


@kernel(workgroup=_WORKGROUP)
def find_outside(indices: vyre.In[u32], count: u32, fault: vyre.InOut[u32]) -> None:
    i = vyre.gid()
    if i < len(indices) and indices[i] >= count:
        vyre.atomic_min(fault, 0, i)


@kernel(workgroup=_WORKGROUP)
def find_bit(words: vyre.In[u32], found: vyre.Out[u32]) -> None:
    i = vyre.gid()
    if i < len(words) and words[i] != 0:
        found[0] = 1


@kernel(workgroup=_WORKGROUP)
def find_difference(a: vyre.In[u32], b: vyre.In[u32], found: vyre.Out[u32]) -> None:
    i = vyre.gid()
    if i < len(a) and a[i] != b[i]:
        found[0] = 1


@kernel(workgroup=_WORKGROUP)
def find_extra(a: vyre.In[u32], b: vyre.In[u32], found: vyre.Out[u32]) -> None:
    i = vyre.gid()
    if i < len(a) and a[i] & ~b[i] != 0:
        found[0] = 1


@kernel(workgroup=_WORKGROUP)
def count_bits(words: vyre.In[u32], counts: vyre.Out[u32]) -> None:
    i = vyre.gid()
    if i < len(words):
        counts[i] = vyre.popcount(words[i])


@kernel(workgroup=_WORKGROUP)
def list_bits(words: vyre.In[u32], before: vyre.In[u32], out: vyre.Out[u32]) -> None:
    i = vyre.gid()
    if i < len(words):
        left = words[i]
        position = before[i]
        while left != 0:
            out[position] = i * WORD + vyre.ctz(left)
            position += 1
            left &= left - 1


@kernel(workgroup=_WORKGROUP)
def select_bits(words: vyre.In[u32], before: vyre.In[u32], ranks: vyre.In[u32], total: u32, out: vyre.Out[u32]) -> None:
    """The word is the last one with no more bits before it than the rank; half by half, the bit is found in it."""
    i = vyre.gid()
    if i < len(ranks):
        found = NO_POSITION
        if ranks[i] < total:
            low, high = 0, len(words)
            while high - low > 1:
                middle = low + (high - low) // 2
                if before[middle] <= ranks[i]:
                    low = middle
                else:
                    high = middle
            rank = ranks[i] - before[low]
            bit = 0
            half = WORD // 2
            while half > 0:
                lower = vyre.popcount(words[low] >> bit & ((1 << half) - 1))
                if rank >= lower:
                    rank -= lower
                    bit += half
                half //= 2
            found = low * WORD + bit
        out[i] = found

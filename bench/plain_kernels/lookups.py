"""Kernels with divergent loops over bytes and keys: trees, text, automata, and alignment."""

from __future__ import annotations

from typing import Any

import numpy as np

import vyre
from comparison import Array, Contender
from plain_kernels import Setting, numba, on_numba, on_vyre, parallel, prange, side_by_side
from vyre import i32, u8, u16, u32

_FANOUT = 16
_PATTERN = 8
_RECORD = 256
_ALPHABET = 4
_NOT_FOUND = 0xFFFFFFFF


@vyre.kernel
def tree_lookup(tree: vyre.In[u32], starts: vyre.In[u32], queries: vyre.In[u32], found: vyre.Out[u32]):
    """A B+-tree in one array: node ``n`` of a level has the keys from ``start + 16 * n`` on."""
    i = vyre.gid()
    if i < len(queries):
        query = queries[i]
        node, place = 0, 0
        for level in range(len(starts)):
            place = 0
            while place < _FANOUT - 1 and tree[starts[level] + node * _FANOUT + place] < query:
                place += 1
            node = node * _FANOUT + place
        last = starts[len(starts) - 1]
        found[i] = node if tree[last + node] == query else _NOT_FOUND


@parallel
def _numba_tree_lookup(tree, starts, queries, found):
    for i in prange(len(queries)):
        query = queries[i]
        node = 0
        for level in range(len(starts)):
            start = starts[level] + node * _FANOUT
            place = 0
            while place < _FANOUT - 1 and tree[start + place] < query:
                place += 1
            node = node * _FANOUT + place
        found[i] = node if tree[starts[-1] + node] == query else _NOT_FOUND


def _tree_of(keys: Array) -> tuple[Array, Array]:
    """The levels from the root, and where each begins; an inner key is the largest of its child."""
    levels = [np.pad(keys, (0, -len(keys) % _FANOUT), constant_values=_NOT_FOUND)]
    while len(levels[0]) > _FANOUT:
        largest = levels[0][_FANOUT - 1 :: _FANOUT]
        levels.insert(0, np.pad(largest, (0, -len(largest) % _FANOUT), constant_values=_NOT_FOUND))
    starts = np.cumsum([0, *(len(level) for level in levels[:-1])])
    return np.concatenate(levels), starts.astype(np.uint32)


def btree(setting: Setting) -> dict[str, Contender]:
    """As many queries as keys, half of them found."""
    random = np.random.default_rng(5)
    keys = np.unique(random.integers(0, 1 << 31, setting.size, np.uint32))
    tree, starts = _tree_of(keys)
    queries = np.where(random.random(len(keys)) < 0.5, random.permutation(keys), keys[::-1] ^ np.uint32(1))
    found = np.zeros(len(keys), np.uint32)
    contenders = {"vyre": on_vyre(setting, tree_lookup[len(keys)], [tree, starts, queries, found], [3])}
    if numba:
        # Indices of 64 bits spare Numba conversions.
        contenders["numba"] = on_numba(_numba_tree_lookup, [tree, starts.astype(np.int64), queries, found], [3])
    return contenders


@vyre.kernel
def search_text(text: vyre.In[u8], pattern: vyre.In[u8], found: vyre.Out[u8]):
    i = vyre.gid()
    if i + len(pattern) <= len(text):
        same = 0
        while same < len(pattern) and text[i + same] == pattern[same]:
            same += 1
        found[i] = 1 if same == len(pattern) else 0


@parallel
def _numba_search_text(text, pattern, found):
    length = len(pattern)
    for i in prange(len(text) - length + 1):
        same = 0
        while same < length and text[i + same] == pattern[same]:
            same += 1
        found[i] = same == length


def search(setting: Setting) -> dict[str, Contender]:
    """A pattern of 8 in a text of four letters: of each place a letter or two are compared, seldom more."""
    random = np.random.default_rng(6)
    text = random.integers(0, _ALPHABET, setting.size, np.uint8)
    pattern = text[setting.size // 2 :][:_PATTERN]
    arguments = text, pattern, np.zeros(setting.size, np.uint8)
    return side_by_side(setting, {"vyre": search_text[setting.size]}, _numba_search_text, arguments, 2)


@vyre.kernel
def run_automaton(
    table: vyre.In[u16, (None, 256)], text: vyre.In[u8, (None, _RECORD)], accepting: u32, hits: vyre.Out[u32]
):
    record = vyre.gid()
    records, length = text.shape
    if record < records:
        state, count = 0, 0
        for i in range(length):
            state = u32(table[state, u32(text[record, i])])
            if state >= accepting:
                count += 1
        hits[record] = count


@parallel
def _numba_run_automaton(table, text, accepting, hits):
    records, length = text.shape
    for record in prange(records):
        state, count = np.uint64(0), 0
        for i in range(length):
            state = np.uint64(table[state, text[record, i]])
            count += state >= accepting
        hits[record] = count


@parallel
def _numba_run_automaton_by_four(table, text, accepting, hits):
    """Four records side by side: a step does not wait for the one before. For a multiple of four records."""
    records, length = text.shape
    for four in prange(records // 4):
        first = 4 * four
        a = b = c = d = np.uint64(0)
        in_a = in_b = in_c = in_d = 0
        for i in range(length):
            a = np.uint64(table[a, text[first, i]])
            b = np.uint64(table[b, text[first + 1, i]])
            c = np.uint64(table[c, text[first + 2, i]])
            d = np.uint64(table[d, text[first + 3, i]])
            in_a += a >= accepting
            in_b += b >= accepting
            in_c += c >= accepting
            in_d += d >= accepting
        hits[first], hits[first + 1], hits[first + 2], hits[first + 3] = in_a, in_b, in_c, in_d


def _automaton(setting: Setting, states: int) -> dict[str, Contender]:
    """``size`` counts the bytes of the text, in records of 256."""
    random = np.random.default_rng(7)
    records = -(-setting.size // _RECORD) + 3 & ~3
    table = random.integers(0, states, (states, 256), np.uint16)
    text = random.integers(97, 123, (records, _RECORD), np.uint8)
    accepting = states - max(1, states // 50)
    arguments = table, text, accepting, np.zeros(records, np.uint32)
    found = side_by_side(setting, {"vyre": run_automaton[records]}, _numba_run_automaton, arguments, 3)
    if numba:
        found["numba, by four"] = on_numba(_numba_run_automaton_by_four, arguments, [3])
    return found


def automaton_small(setting: Setting) -> dict[str, Contender]:
    return _automaton(setting, 50)


def automaton_large(setting: Setting) -> dict[str, Contender]:
    return _automaton(setting, 2000)


@vyre.kernel
def align(a: vyre.In[u8], b: vyre.In[u8], gap: i32, score: vyre.InOut[i32, 2]):
    """Needleman and Wunsch's scores, one diagonal after the other; invocation ``i`` has row ``i``."""
    i = vyre.gid()
    rows, columns = score.shape
    for diagonal in range(rows + columns - 1):
        if i < rows and i <= diagonal and diagonal - i < columns:
            j = diagonal - i
            if i == 0:
                score[i, j] = gap * i32(j)
            elif j == 0:
                score[i, j] = gap * i32(i)
            else:
                same: i32 = 1 if a[i - 1] == b[j - 1] else -1
                either = max(score[i - 1, j], score[i, j - 1]) + gap
                score[i, j] = max(score[i - 1, j - 1] + same, either)
        vyre.grid_sync()


@parallel
def _numba_align_diagonals(a, b, gap, score):
    rows, columns = score.shape
    for i in range(rows):
        score[i, 0] = gap * i
    for j in range(columns):
        score[0, j] = gap * j
    for diagonal in range(2, rows + columns - 1):
        for i in prange(max(1, diagonal - columns + 1), min(rows, diagonal)):
            j = diagonal - i
            same = np.int32(1) if a[i - 1] == b[j - 1] else np.int32(-1)
            either = max(score[i - 1, j], score[i, j - 1]) + gap
            score[i, j] = max(score[i - 1, j - 1] + same, either)


_TILE = 128


@parallel
def _numba_align_tiles(a, b, gap, score):
    """Diagonals of tiles, a tile row by row."""
    rows, columns = score.shape
    for i in range(rows):
        score[i, 0] = gap * i
    for j in range(columns):
        score[0, j] = gap * j
    down, across = (rows + _TILE - 2) // _TILE, (columns + _TILE - 2) // _TILE
    for diagonal in range(down + across - 1):
        for row in prange(max(0, diagonal - across + 1), min(down, diagonal + 1)):
            column = diagonal - row
            for i in range(1 + row * _TILE, min(rows, 1 + (row + 1) * _TILE)):
                left = score[i, column * _TILE]
                for j in range(1 + column * _TILE, min(columns, 1 + (column + 1) * _TILE)):
                    same = np.int32(1) if a[i - 1] == b[j - 1] else np.int32(-1)
                    left = max(max(score[i - 1, j], left) + gap, score[i - 1, j - 1] + same)
                    score[i, j] = left


def needle(setting: Setting) -> dict[str, Contender]:
    size, random = setting.size, np.random.default_rng(8)
    a, b = (random.integers(0, _ALPHABET, size, np.uint8) for _ in range(2))
    arguments: list[Any] = [a, b, np.int32(-1), np.zeros((size + 1, size + 1), np.int32)]
    found = side_by_side(setting, {"vyre": align[size + 1]}, _numba_align_diagonals, arguments, 3)
    if numba:
        found["numba, tiles"] = on_numba(_numba_align_tiles, arguments, [3])
    return found

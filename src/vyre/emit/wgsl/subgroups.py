"""Subgroup operations and votes in WGSL, through workgroup memory and barriers.

All invocations of a workgroup call these functions together, including inactive ones. Where the device's subgroups
match the program's, the ``native`` variants need no memory. They use only ballots and shuffles of the device, because
the order in which a device reduction combines floats is unspecified.
"""

from __future__ import annotations

from vyre.emit.wgsl import operators as o
from vyre.emit.wgsl.text import REGISTER, Lines, literal
from vyre.semantics.reductions import reduction_identity
from vyre.semantics.scalars import to_bits
from vyre.semantics.types import DType


def vote_function(name: str, votes: str) -> str:
    """Return a function that tells whether the flag of any invocation is set.

    Three cells alternate, so that one barrier is enough: when a cell is cleared, all invocations have read it.
    """
    lines = Lines()
    lines.add(f"var<private> {name}_turn: u32;")
    lines.add("")
    with lines.block(f"fn {name}(flag: bool, lane: u32) -> bool"):
        lines.add(f"let cell = {name}_turn;")
        lines.add(f"{name}_turn = (cell + 1u) % 3u;")
        with lines.block("if (lane == 0u)"):
            lines.add(f"atomicStore(&{votes}[{name}_turn], 0u);")
        with lines.block("if (flag)"):
            lines.add(f"atomicStore(&{votes}[cell], 1u);")
        lines.add("workgroupBarrier();")
        lines.add(f"return atomicLoad(&{votes}[cell]) != 0u;")
    return lines.text


def ballot_function(name: str, board: str, lanes: int, size: int) -> str:
    """Return a function that gives the flags of a subgroup's lanes as bits."""
    lines = Lines()
    with lines.block(f"fn {name}(flag: bool, lane: u32) -> u32"):
        lines.add(f"{board}[lane] = u32(flag);")
        lines.add("workgroupBarrier();")
        lines.add(f"let first = lane - lane % {lanes}u;")
        lines.add(f"let count = min({lanes}u, {size}u - first);")
        lines.add("var bits = 0u;")
        lines.add("var k = 0u;")
        with lines.block("while (k < count)"):
            lines.add(f"bits |= {board}[first + k] << k;")
            lines.add("k += 1u;")
        lines.add("overrun(k < count);")
        lines.add("workgroupBarrier();")
        lines.add("return bits;")
    return lines.text


def shuffle_function(name: str, dtype: DType, board: str, high: str, present: str, lanes: int, size: int) -> str:
    """Return a function that gives the value of another lane; zero if that lane is inactive or does not exist."""
    lines = Lines()
    boards = [board, high] if high else [board]
    with lines.block(f"fn {name}(on: bool, value: {REGISTER[dtype]}, wanted: u32, lane: u32) -> {REGISTER[dtype]}"):
        for one, word in zip(boards, o.register_words(dtype, "value"), strict=True):
            lines.add(f"{one}[lane] = {word};")
        lines.add(f"{present}[lane] = u32(on);")
        lines.add("workgroupBarrier();")
        lines.add(f"let from_lane = lane - lane % {lanes}u + wanted % {lanes}u;")
        lines.add(f"let is_there = wanted < {lanes}u && from_lane < {size}u && {present}[from_lane] != 0u;")
        words = [f"{one}[from_lane]" for one in boards]
        lines.add(f"let found = select({literal(0, dtype)}, {o.register_value(dtype, words)}, is_there);")
        lines.add("workgroupBarrier();")
        lines.add("return found;")
    return lines.text


def reduce_function(name: str, op: str, dtype: DType, board: str, high: str, lanes: int, size: int, use: o.Use) -> str:
    """Return a reduction of a subgroup: lane i takes lane i + n/2, and so on, as in ``vyre.semantics.reductions``."""
    lines = Lines()
    boards = [board, high] if high else [board]
    nothing = literal(to_bits(reduction_identity(op, dtype), dtype), dtype)

    def put() -> None:
        for one, word in zip(boards, o.register_words(dtype, "total"), strict=True):
            lines.add(f"{one}[lane] = {word};")

    def get(at: str) -> str:
        return o.register_value(dtype, [f"{one}[{at}]" for one in boards])

    with lines.block(f"fn {name}(on: bool, value: {REGISTER[dtype]}, lane: u32) -> {REGISTER[dtype]}"):
        lines.add(f"let nothing = {nothing};")
        lines.add("var total = select(nothing, value, on);")
        lines.add(f"let place = lane % {lanes}u;")
        put()
        lines.add("workgroupBarrier();")
        half = lanes // 2
        while half:
            with lines.block(f"if (place < {half}u && lane + {half}u < {size}u)"):
                lines.add(f"let other = {get(f'lane + {half}u')};")
                lines.add(f"total = {o.binary(op, dtype, 'total', 'other', use)};")
                put()
            lines.add("workgroupBarrier();")
            half //= 2
        lines.add(f"let result = {get('lane - place')};")
        lines.add("workgroupBarrier();")
        lines.add("return result;")
    return lines.text


def native_ballot_function(name: str) -> str:
    lines = Lines()
    with lines.block(f"fn {name}(flag: bool, lane: u32) -> u32"):
        lines.add("return subgroupBallot(flag).x;")
    return lines.text


def native_shuffle_function(name: str, dtype: DType, lanes: int) -> str:
    lines = Lines()
    with lines.block(f"fn {name}(on: bool, value: {REGISTER[dtype]}, wanted: u32, lane: u32) -> {REGISTER[dtype]}"):
        lines.add("let present = subgroupBallot(on).x;")
        lines.add(f"let from_lane = wanted % {lanes}u;")
        lines.add(f"let found = {_from_lane(dtype, 'value', 'from_lane')};")
        lines.add(f"let is_there = wanted < {lanes}u && ((present >> from_lane) & 1u) != 0u;")
        lines.add(f"return select({literal(0, dtype)}, found, is_there);")
    return lines.text


def native_reduce_function(name: str, op: str, dtype: DType, lanes: int, use: o.Use) -> str:
    """Return a reduction in the same order, by shuffles; partial results in the upper half are ignored."""
    lines = Lines()
    nothing = literal(to_bits(reduction_identity(op, dtype), dtype), dtype)
    with lines.block(f"fn {name}(on: bool, value: {REGISTER[dtype]}, lane: u32) -> {REGISTER[dtype]}"):
        lines.add(f"let nothing = {nothing};")
        lines.add("var total = select(nothing, value, on);")
        lines.add("var other = total;")
        half = lanes // 2
        while half:
            lines.add(f"other = {_from_lane(dtype, 'total', f'(lane + {half}u) % {lanes}u')};")
            lines.add(f"total = {o.binary(op, dtype, 'total', 'other', use)};")
            half //= 2
        lines.add(f"return {_from_lane(dtype, 'total', '0u')};")
    return lines.text


def _from_lane(dtype: DType, value: str, lane: str) -> str:
    """Return the value of another lane."""
    return o.register_value(dtype, [f"subgroupShuffle({word}, {lane})" for word in o.register_words(dtype, value)])

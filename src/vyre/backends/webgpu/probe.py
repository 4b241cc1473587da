"""Probes: programs that test whether a device's floats are exact, its subgroups right and its loops complete.

WGSL promises less than IEEE: contraction, division to 2.5 ULP, subnormals that may be flushed. Many devices give more.
Probes try the operations that are left to the device on edge cases and at random, with the code that every program
gets.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from vyre.backends.webgpu.gpu import Gpu
from vyre.backends.webgpu.work import Work, encode
from vyre.emit.wgsl import emit_wgsl
from vyre.errors import KernelCompileFailed
from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir import parse
from vyre.ir.binding import Array
from vyre.ir.buffers import BufferDecl
from vyre.ir.limits import MAX_SUBGROUP_SIZE
from vyre.ir.program import Program
from vyre.semantics.arrays import array_bitcast, array_cast, array_meaning
from vyre.semantics.types import DType

_RANDOM: Final = 1 << 12
_GROUP: Final = 64
_EDGES: Final = (
    0x00000000, 0x00000001, 0x00000002, 0x007FFFFF, 0x00800000, 0x00800001, 0x3F7FFFFF, 0x3F800000, 0x3F800001,
    0x3F000000, 0x40000000, 0x40200000, 0x4B000000, 0x4B7FFFFF, 0x4B800000, 0x4F000000, 0x4EFFFFFF, 0x7F7FFFFF,
    0x7F800000, 0x7FC00000, 0x0CA00000, 0x1FB504F3, 0x5F3504F3, 0x33800000,
)  # fmt: skip
_BINARY: Final = ("add", "sub", "mul", "div", "min", "max")
_UNARY: Final = ("sqrt", "recip", "floor", "ceil", "round", "trunc")
_CASTS: Final = (DType.U32, DType.I32)
# Enough passes, squared, for a driver that counts them.
_PASSES: Final = 300
_COLUMNS: Final = len(_BINARY) + len(_UNARY) + len(_CASTS) + 1


@cache
def probe_program() -> Program:
    """Every operation on each pair of words, and a product with a sum behind it that must not become one."""
    x, y = b.var("x"), b.var("y")
    found: list[n.Expr] = [n.BinOp(op, x, y) for op in _BINARY]
    found += [n.UnOp(op, x) for op in _UNARY]
    found += [n.Cast(DType.F32, n.Bitcast(dtype, b.load("left", b.gid()))) for dtype in _CASTS]
    found.append(x * y + x)
    stores = [b.store("out", b.gid() * _COLUMNS + column, value) for column, value in enumerate(found)]
    body = [b.let("x", n.Bitcast(DType.F32, b.load("left", b.gid()))), b.let("y", b.load("right", b.gid())), *stores]
    buffers = [
        BufferDecl.read("left", 0, DType.U32),
        BufferDecl.read("right", 1, DType.F32),
        BufferDecl.output("out", 2, DType.F32),
    ]
    return Program.new(buffers, _GROUP, body, name="probe")


def samples() -> tuple[Array, Array]:
    """The bits of the operands: every pair of edges of both signs, then anything."""
    edges = np.array([*_EDGES, *(bits | 0x80000000 for bits in _EDGES)], "<u4")
    random = np.random.default_rng(7).integers(0, 1 << 32, (2, _RANDOM), "<u4")
    left = np.concatenate([np.repeat(edges, len(edges)), random[0]])
    right = np.concatenate([np.tile(edges, len(edges)), random[1]])
    return left, right


def expected(left: Array, right: Array) -> Array:
    """What an exact device gives, as bits, one row for each pair."""
    x, y = left.view("<f4"), right.view("<f4")
    with np.errstate(all="ignore"):
        columns = [array_meaning(op, DType.F32)(x, y) for op in _BINARY]
        columns += [array_meaning(op, DType.F32)(x) for op in _UNARY]
        columns += [array_cast(d, DType.F32)(array_bitcast(DType.U32, d)(left)) for d in _CASTS]
        columns.append(x * y + x)
    return np.stack([_canonical(np.asarray(column, "<f4").view("<u4")) for column in columns], axis=1)


def _canonical(bits: Array) -> Array:
    return np.where((bits & 0x7FFFFFFF) > 0x7F800000, np.uint32(0x7FC00000), bits)


def is_float_exact(gpu: Gpu) -> bool:
    """Whether the device gives the exact bits for everything that is left to it."""
    left, right = samples()
    return bool(np.array_equal(measured(gpu, left, right), expected(left, right)))


def measured(gpu: Gpu, left: Array, right: Array) -> Array:
    """What the device gives."""
    count = len(left)
    found = _run(gpu, probe_program(), [left, right], [count, count, _COLUMNS * count], -(-count // _GROUP))
    return found.reshape(count, _COLUMNS)


@cache
def loop_program() -> Program:
    """Count the passes of a loop inside a loop, whose bounds are in memory."""
    count = b.let("count", n.lit(0))
    passes = b.load("passes", n.lit(0))
    inner = b.loop("j", n.lit(0), passes, [b.assign("count", b.var("count") + b.load("passes", b.var("i")) + 1)])
    body = [count, b.loop("i", n.lit(1), passes, [inner]), b.store("out", n.lit(0), b.var("count"))]
    buffers = [BufferDecl.read("passes", 0, DType.U32), BufferDecl.output("out", 1, DType.U32)]
    return Program.new(buffers, 1, body, name="loops")


def ends_loops(gpu: Gpu) -> bool:
    """Whether the device ends loops by itself; Mesa's processor driver does after 65,535 passes in all."""
    found = _run(gpu, loop_program(), [np.array([_PASSES], "<u4")], [1, 1], 1)
    return int(found[0]) != (_PASSES - 1) * _PASSES


# Every kind of meeting, in branches and loops that some lanes are not in, and after some have left.
_MEETINGS: Final = """
program meetings(workgroup {size}, subgroup {lanes}) {{
  buffer 0 data: u32[] read
  buffer 1 out: u32[] output
  let x = data[gid.x]
  if x % 7 == 0 {{ return }}
  for k in 0 .. 3 {{
    if (x >> k) % 3 != 0 {{
      let at = (gid.x * 3 + k) * 8
      out[at] = subgroup_ballot(((x >> k) & 1) == 1)
      out[at + 1] = subgroup_shuffle(x, (x >> 7) % ({lanes} + 2))
      out[at + 2] = u32(subgroup_shuffle(u64(x) << 31u64, (x >> 9) % {lanes}) >> 32u64)
      out[at + 3] = subgroup_reduce(add, x)
      out[at + 4] = subgroup_reduce(xor, x)
      out[at + 5] = bitcast(u32, subgroup_reduce(min, bitcast(i32, x)))
      out[at + 6] = bitcast(u32, subgroup_reduce(add, f32(x) * 0.1))
      out[at + 7] = u32(subgroup_reduce(add, u64(x) * 65537u64) >> 20u64)
    }}
  }}
}}
"""
_GROUPS: Final = 4


def is_subgroup_right(gpu: Gpu, lanes: int) -> bool:
    """Whether the device's subgroups, of so many lanes, give what workgroup memory gives; drivers have faults."""
    if lanes & (lanes - 1) or not 1 <= lanes <= MAX_SUBGROUP_SIZE:
        return False
    for size in (lanes, 3 * lanes - 1):
        program = parse(_MEETINGS.format(size=size, lanes=lanes))
        count = size * _GROUPS
        data = np.random.default_rng(lanes).integers(0, 1 << 32, count, "<u4")
        try:
            found, meant = (
                _run(gpu, program, [data], [count, 24 * count], _GROUPS, native_subgroups=native)
                for native in (True, False)
            )
        except KernelCompileFailed:
            return False
        if not np.array_equal(found, meant):
            return False
    return True


def _run(gpu: Gpu, program: Program, inputs: list[Array], counts: list[int], groups: int, **options: bool) -> Array:
    """The words of the last buffer after a launch; all buffers are sized at run time, in this order."""
    kernel = emit_wgsl(program, **options)
    sizes = [4 * count for count in counts]
    with gpu.watched():
        pipeline = gpu.compiled(kernel.text, program.name)
        buffers = list(map(gpu.new_memory, sizes))
        for buffer, data in zip(buffers, inputs, strict=False):
            gpu.write(buffer, 0, data.data.cast("B"))
        block = gpu.block([groups, 1, 1, groups, 0, *counts])
        bound = [(buffer, 0, size) for buffer, size in zip(buffers, sizes, strict=True)]
        encoder = gpu.device.create_command_encoder()
        encode(encoder.begin_compute_pass(), [Work(pipeline, gpu.bind_group(pipeline, block, bound), (groups, 1, 1))])

        def copied(views: list[memoryview]) -> Any:
            return np.frombuffer(views[0], "<u4").copy()

        found: Array = gpu.read(encoder, [(buffers[-1], 0, sizes[-1])], copied)
        for buffer in buffers:
            gpu.free(buffer)
    return found

"""How is a program written in Python? Small functions that build nodes.

Python numbers stand for literals: an int is u32, a float f32, a bool bool, as in text, unless the expression
beside them has a type of its own. ``lit(value, dtype)`` says a type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vyre.ir import nodes as n
from vyre.ir.nodes import Expr, MemoryOrder, Operand, Stmt, lit
from vyre.semantics.operators import AtomicOp
from vyre.semantics.types import DType


def expr(value: Operand) -> Expr:
    """The expression itself, or the literal that a Python number stands for."""
    return value if isinstance(value, Expr) else lit(value)


def var(name: str) -> n.Var:
    return n.Var(name)


def load(buffer: str, index: Operand) -> n.Load:
    return n.Load(buffer, expr(index))


def buf_len(buffer: str) -> n.BufLen:
    return n.BufLen(buffer)


def gid(axis: int = 0) -> n.InvocationId:
    return n.InvocationId(axis)


def wg(axis: int = 0) -> n.WorkgroupId:
    return n.WorkgroupId(axis)


def lid(axis: int = 0) -> n.LocalId:
    return n.LocalId(axis)


def num_workgroups(axis: int = 0) -> n.NumWorkgroups:
    return n.NumWorkgroups(axis)


def _unary(op: str) -> Callable[[Operand], n.UnOp]:
    return lambda operand: n.UnOp(op, expr(operand))


def _binary(op: str) -> Callable[[Operand, Operand], n.BinOp]:
    return lambda left, right: n.BinOp(op, expr(left), expr(right))


rotl, rotr = _binary("rotl"), _binary("rotr")
minimum, maximum = _binary("min"), _binary("max")
abs_diff, mul_high = _binary("abs_diff"), _binary("mul_high")
sat_add, sat_sub, sat_mul = _binary("sat_add"), _binary("sat_sub"), _binary("sat_mul")
eq, ne = _binary("eq"), _binary("ne")
lnot = _unary("lnot")
popcount, clz, ctz, reverse_bits = _unary("popcount"), _unary("clz"), _unary("ctz"), _unary("reverse_bits")
absolute, sign = _unary("abs"), _unary("sign")
floor, ceil, round_even, trunc = _unary("floor"), _unary("ceil"), _unary("round"), _unary("trunc")
sqrt, rsqrt, recip = _unary("sqrt"), _unary("rsqrt"), _unary("recip")
exp, exp2, log, log2 = _unary("exp"), _unary("exp2"), _unary("log"), _unary("log2")
sin, cos, tan = _unary("sin"), _unary("cos"), _unary("tan")
asin, acos, atan = _unary("asin"), _unary("acos"), _unary("atan")
sinh, cosh, tanh = _unary("sinh"), _unary("cosh"), _unary("tanh")
is_nan, is_inf, is_finite = _unary("is_nan"), _unary("is_inf"), _unary("is_finite")


def select(condition: Operand, true_value: Operand, false_value: Operand) -> n.Select:
    return n.Select(expr(condition), expr(true_value), expr(false_value))


def cast(target: DType, value: Operand) -> n.Cast:
    return n.Cast(target, expr(value))


def bitcast(target: DType, value: Operand) -> n.Bitcast:
    return n.Bitcast(target, expr(value))


def fma(a: Operand, b: Operand, c: Operand) -> n.Fma:
    return n.Fma(expr(a), expr(b), expr(c))


def _atomic(op: AtomicOp) -> Callable[..., n.Atomic]:
    def build(buffer: str, index: Operand, value: Operand, order: MemoryOrder = MemoryOrder.SEQ_CST) -> n.Atomic:
        return n.Atomic(op, buffer, expr(index), expr(value), None, order)

    return build


atomic_store, atomic_exchange = _atomic(AtomicOp.STORE), _atomic(AtomicOp.EXCHANGE)
atomic_add, atomic_sub = _atomic(AtomicOp.ADD), _atomic(AtomicOp.SUB)
atomic_and, atomic_or, atomic_xor = _atomic(AtomicOp.AND), _atomic(AtomicOp.OR), _atomic(AtomicOp.XOR)
atomic_min, atomic_max = _atomic(AtomicOp.MIN), _atomic(AtomicOp.MAX)


def atomic_load(buffer: str, index: Operand, order: MemoryOrder = MemoryOrder.SEQ_CST) -> n.Atomic:
    return n.Atomic(AtomicOp.LOAD, buffer, expr(index), None, None, order)


def compare_exchange(
    buffer: str, index: Operand, expected: Operand, value: Operand, order: MemoryOrder = MemoryOrder.SEQ_CST
) -> n.Atomic:
    return n.Atomic(AtomicOp.COMPARE_EXCHANGE, buffer, expr(index), expr(value), expr(expected), order)


def subgroup_ballot(predicate: Operand) -> n.SubgroupBallot:
    return n.SubgroupBallot(expr(predicate))


def subgroup_shuffle(value: Operand, lane: Operand) -> n.SubgroupShuffle:
    return n.SubgroupShuffle(expr(value), expr(lane))


def subgroup_reduce(op: str, value: Operand) -> n.SubgroupReduce:
    return n.SubgroupReduce(op, expr(value))


def subgroup_lane() -> n.SubgroupLocalId:
    return n.SubgroupLocalId()


def subgroup_size() -> n.SubgroupSize:
    return n.SubgroupSize()


def call(op_id: str, *args: Operand) -> n.Call:
    return n.Call(op_id, tuple(expr(arg) for arg in args))


def let(name: str, value: Operand) -> n.Let:
    return n.Let(name, expr(value))


def assign(name: str, value: Operand) -> n.Assign:
    return n.Assign(name, expr(value))


def store(buffer: str, index: Operand, value: Operand) -> n.Store:
    return n.Store(buffer, expr(index), expr(value))


def if_(condition: Operand, then: Iterable[Stmt], otherwise: Iterable[Stmt] = ()) -> n.If:
    return n.If(expr(condition), tuple(then), tuple(otherwise))


def loop(var: str, start: Operand, stop: Operand, body: Iterable[Stmt]) -> n.Loop:
    return n.Loop(var, expr(start), expr(stop), tuple(body))


def while_(condition: Operand, body: Iterable[Stmt]) -> n.While:
    return n.While(expr(condition), tuple(body))


def break_() -> n.Break:
    return n.Break()


def continue_() -> n.Continue:
    return n.Continue()


def return_() -> n.Return:
    return n.Return()


def barrier(order: MemoryOrder = MemoryOrder.SEQ_CST) -> n.Barrier:
    return n.Barrier(order)


def grid_sync() -> n.Barrier:
    return n.Barrier(MemoryOrder.GRID_SYNC)


def block(*body: Stmt) -> n.Block:
    return n.Block(body)


def region(generator: str, body: Iterable[Stmt], source_region: str | None = None) -> n.Region:
    return n.Region(generator, source_region, tuple(body))


def async_load(source: str, destination: str, offset: Operand, size: Operand, tag: str) -> n.AsyncLoad:
    return n.AsyncLoad(source, destination, expr(offset), expr(size), tag)


def async_store(source: str, destination: str, offset: Operand, size: Operand, tag: str) -> n.AsyncStore:
    return n.AsyncStore(source, destination, expr(offset), expr(size), tag)


def async_wait(tag: str) -> n.AsyncWait:
    return n.AsyncWait(tag)


def copy_bytes(
    source: str, destination: str, source_offset: Operand, destination_offset: Operand, size: Operand
) -> n.CopyBytes:
    return n.CopyBytes(source, destination, expr(source_offset), expr(destination_offset), expr(size))


def indirect_dispatch(count_buffer: str, count_offset: int = 0) -> n.IndirectDispatch:
    return n.IndirectDispatch(count_buffer, count_offset)


def trap(address: Operand, tag: str) -> n.Trap:
    return n.Trap(expr(address), tag)


def resume(tag: str) -> n.Resume:
    return n.Resume(tag)


def all_reduce(op: str, buffer: str, group: str = "world") -> n.AllReduce:
    return n.AllReduce(op, buffer, group)


def all_gather(source: str, destination: str, group: str = "world") -> n.AllGather:
    return n.AllGather(source, destination, group)


def reduce_scatter(op: str, source: str, destination: str, group: str = "world") -> n.ReduceScatter:
    return n.ReduceScatter(op, source, destination, group)


def broadcast(buffer: str, root: int = 0, group: str = "world") -> n.Broadcast:
    return n.Broadcast(buffer, root, group)

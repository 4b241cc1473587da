"""How is an expression generated? By its type and by who must agree on its value.

Depth is bounded by the profile, so these functions may call each other; ``tower`` makes the deep ones in a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from typing import Final

from vyre.conform.discipline import (
    Level,
    Mode,
    State,
    buffers_in,
    group_start,
    has_atomics,
    is_shared_memory,
    own_start,
    visible,
)
from vyre.conform.features import Feature
from vyre.conform.operations import CONSTANT_KIND, OPERATIONS
from vyre.conform.profile import Profile
from vyre.conform.values import literal
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.nodes import Expr, MemoryOrder, lit
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS, REDUCTIONS, AtomicOp, Operator, Result
from vyre.semantics.types import FUSED_TYPES, DType

_LOAD_ORDERS: Final = (MemoryOrder.RELAXED, MemoryOrder.ACQUIRE, MemoryOrder.SEQ_CST)
_STORE_ORDERS: Final = (MemoryOrder.RELAXED, MemoryOrder.RELEASE, MemoryOrder.SEQ_CST)
_CHANGE_ORDERS: Final = (*_LOAD_ORDERS, MemoryOrder.RELEASE, MemoryOrder.ACQ_REL)
_COMPARISONS: Final = frozenset(row.name for row in OPERATORS.values() if row.arity == 2 and row.result is Result.BOOL)
TOWER_HEIGHTS: Final = (30, 400)


def _operators_giving(profile: Profile, arity: int) -> dict[DType, tuple[tuple[Operator, DType], ...]]:
    """For each type: the operators of that arity that give it, with the type of their operands."""
    return _rows_giving(profile.usable_types, profile.operators, arity)


@lru_cache(maxsize=64)
def _rows_giving(
    types: tuple[DType, ...], operators: tuple[str, ...], arity: int
) -> dict[DType, tuple[tuple[Operator, DType], ...]]:
    return {
        result: tuple(
            (row, operand)
            for name in operators
            if (row := OPERATORS[name]).arity == arity
            for operand in row.types
            if operand in types and row.result_type(operand) is result
        )
        for result in types
    }


@lru_cache(maxsize=1024)
def _cumulative_weights(profile: Profile) -> tuple[int, ...]:
    return tuple(accumulate(profile.weight(name) for name in PRODUCTIONS))


def expression(state: State, dtype: DType, level: Level, depth: int | None = None) -> Expr:
    """An expression of a type on whose value all of ``level`` agree."""
    depth = state.profile.expression_depth if depth is None else depth
    if depth <= 0:
        return leaf(state, dtype, level, 0)
    weights = _cumulative_weights(state.profile)
    produce = state.random.choices(list(PRODUCTIONS.values()), cum_weights=weights)[0]
    made = produce(state, dtype, level, depth - 1)
    return leaf(state, dtype, level, depth - 1) if made is None else made


def condition(state: State, level: Level) -> Expr:
    return expression(state, DType.BOOL, level, min(2, state.profile.expression_depth))


def leaf(state: State, dtype: DType, level: Level, depth: int) -> Expr:
    """A variable, a load, an id or a length, converted if need be; now and then a literal."""
    random = state.random
    choice = random.random()
    if choice < 0.2:
        return literal(random, dtype)
    known = [v for v in visible(state) if v.dtype is dtype and v.level <= level]
    if known and choice < 0.55:
        return n.Var(random.choice(known).name)
    if choice < 0.85:
        found = _load(state, dtype, level, depth)
        if found is not None:
            return found
    return _converted(state, dtype, level)


def _converted(state: State, dtype: DType, level: Level) -> Expr:
    """A variable of another type, or a number of the launch, as this type."""
    random = state.random
    known = [v for v in visible(state) if v.level <= level]
    value: Expr
    if known and random.random() < 0.5:
        variable = random.choice(known)
        value, source = n.Var(variable.name), variable.dtype
    else:
        value, source = _number_of_the_launch(state, level), DType.U32
    if source is dtype:
        return value
    comparisons = [op for op in state.profile.operators if op in _COMPARISONS and source in OPERATORS[op].types]
    if dtype is DType.BOOL and comparisons:
        return n.BinOp(random.choice(comparisons), value, literal(random, source))
    convert = n.Bitcast if source.bits == dtype.bits and random.random() < 0.5 else n.Cast
    return convert(dtype, value)


def _number_of_the_launch(state: State, level: Level) -> Expr:
    axis = state.random.randrange(3)
    options: list[Expr] = [n.NumWorkgroups(axis), n.BufLen(state.random.choice(list(state.buffers)))]
    if state.profile.subgroups:
        options.append(n.SubgroupSize())
    if state.profile.extensions:
        options.append(n.OpaqueExpr(CONSTANT_KIND, state.random.randbytes(state.random.randrange(5))))
    if level >= Level.WORKGROUP:
        options += [n.WorkgroupId(axis)] * 2
    if level >= Level.DIVERGENT:
        options += [n.InvocationId(axis), n.LocalId(axis)] * 2
        if state.profile.subgroups:
            options.append(n.SubgroupLocalId())
    return state.random.choice(options)


def _load(state: State, dtype: DType, level: Level, depth: int) -> Expr | None:
    candidates = [
        decl
        for decl in buffers_in(state, Mode.SHARED, dtype=dtype)
        if level >= Level.WORKGROUP or not is_shared_memory(decl)
    ]
    if level is Level.DIVERGENT:
        owned = buffers_in(state, Mode.OWNED, Mode.GROUP, Mode.PEEKED, dtype=dtype)
        candidates += [decl for decl in owned if decl.access.readable]
    if not candidates:
        return None
    decl = state.random.choice(candidates)
    match state.uses[decl.name].mode:
        case Mode.OWNED:
            return n.Load(decl.name, own_index(state, decl))
        case Mode.GROUP:
            start, count = group_start(state, decl)
            return n.Load(decl.name, start + expression(state, DType.U32, level, min(depth, 1)) % count)
        case Mode.PEEKED:
            order = state.random.choice(_LOAD_ORDERS)
            return n.Atomic(AtomicOp.LOAD, decl.name, any_index(state, decl, level, depth), None, None, order)
        case _:
            return n.Load(decl.name, any_index(state, decl, level, depth))


def any_index(state: State, decl: BufferDecl, level: Level, depth: int = 1) -> Expr:
    """An index anywhere in the buffer or, now and then, outside it."""
    choice = state.random.random()
    if choice < 0.25:
        return lit(state.random.randrange(max(1, decl.count or 4)))
    index = expression(state, DType.U32, level, min(depth, 1))
    return index if choice < 0.4 else index % n.BufLen(decl.name)


def own_index(state: State, decl: BufferDecl) -> Expr:
    """The index of an element of the invocation's own."""
    start = own_start(state, decl)
    stride = state.uses[decl.name].stride
    if stride == 1:
        return start
    if state.random.random() < 0.7:
        return start + state.random.randrange(stride)
    return start + expression(state, DType.U32, Level.DIVERGENT, 1) % stride


def _binary(state: State, dtype: DType, level: Level, depth: int) -> Expr | None:
    options = _operators_giving(state.profile, 2)[dtype]
    if not options:
        return None
    row, operand = state.random.choice(options)
    return n.BinOp(row.name, expression(state, operand, level, depth), expression(state, operand, level, depth))


def _unary(state: State, dtype: DType, level: Level, depth: int) -> Expr | None:
    options = _operators_giving(state.profile, 1)[dtype]
    if not options:
        return None
    row, operand = state.random.choice(options)
    return n.UnOp(row.name, expression(state, operand, level, depth))


def _select(state: State, dtype: DType, level: Level, depth: int) -> Expr:
    chooser = expression(state, DType.BOOL, level, depth)
    return n.Select(chooser, expression(state, dtype, level, depth), expression(state, dtype, level, depth))


def _cast(state: State, dtype: DType, level: Level, depth: int) -> Expr:
    source = state.random.choice(state.profile.usable_types)
    return n.Cast(dtype, expression(state, source, level, depth))


def _bitcast(state: State, dtype: DType, level: Level, depth: int) -> Expr:
    sources = [source for source in state.profile.usable_types if source.bits == dtype.bits]
    return n.Bitcast(dtype, expression(state, state.random.choice(sources), level, depth))


def _fma(state: State, dtype: DType, level: Level, depth: int) -> Expr | None:
    if dtype not in FUSED_TYPES or not state.profile.fma:
        return None
    a, b, c = (expression(state, dtype, level, depth) for _ in range(3))
    return n.Fma(a, b, c)


def _atomic(state: State, dtype: DType, level: Level, depth: int) -> Expr | None:
    """An atomic on an element of the invocation's own, where its result is certain."""
    if level is not Level.DIVERGENT or not has_atomics(state, dtype):
        return None
    owned = [decl for decl in buffers_in(state, Mode.OWNED, dtype=dtype) if decl.access.readable]
    if not owned:
        return None
    decl = state.random.choice(owned)
    index = own_index(state, decl)
    return atomic(state, state.random.choice(list(AtomicOp)), decl, index, depth)


def atomic(
    state: State, op: AtomicOp, decl: BufferDecl, index: Expr, depth: int, value: Expr | None = None
) -> n.Atomic:
    """An atomic with operands, and an order that is legal for it."""
    orders = {AtomicOp.LOAD: _LOAD_ORDERS, AtomicOp.STORE: _STORE_ORDERS}.get(op, _CHANGE_ORDERS)
    order = state.random.choice(orders)
    if op is AtomicOp.LOAD:
        return n.Atomic(op, decl.name, index, None, None, order)
    expected = expression(state, decl.dtype, Level.DIVERGENT, depth) if op is AtomicOp.COMPARE_EXCHANGE else None
    if value is None:
        value = expression(state, decl.dtype, Level.DIVERGENT, depth)
    return n.Atomic(op, decl.name, index, value, expected, order)


def subgroup(state: State, dtype: DType, level: Level, depth: int) -> Expr | None:
    if level is not Level.DIVERGENT or not state.profile.subgroups:
        return None
    choice = state.random.random()
    if dtype is DType.U32 and choice < 0.4:
        return n.SubgroupBallot(expression(state, DType.BOOL, level, depth))
    reductions = [op for op in REDUCTIONS if dtype in OPERATORS[op].types]
    if choice < 0.7:
        return n.SubgroupReduce(state.random.choice(reductions), expression(state, dtype, level, depth))
    return n.SubgroupShuffle(expression(state, dtype, level, depth), _lane(state))


def _lane(state: State) -> Expr:
    lane = expression(state, DType.U32, Level.DIVERGENT, 1)
    return lane if state.random.random() < 0.2 else lane % n.SubgroupSize()


def _call(state: State, dtype: DType, level: Level, depth: int) -> Expr | None:
    types = state.profile.usable_types
    options = [
        operation
        for operation in OPERATIONS
        if operation.result_type is dtype and all(d in types for _, d in operation.parameters)
    ]
    if not options or not state.profile.extensions:
        return None
    operation = state.random.choice(options)
    return n.Call(operation.op_id, tuple(expression(state, d, level, depth) for _, d in operation.parameters))


def tower(state: State, dtype: DType, level: Level, _depth: int = 0) -> Expr:
    """A deep expression: a long chain of operators, leaning either way."""
    rows = [
        row
        for row, operand in _operators_giving(state.profile, 2)[dtype] + _operators_giving(state.profile, 1)[dtype]
        if operand is dtype and row.name not in MATH_FUNCTIONS
    ]
    top = leaf(state, dtype, level, 0)
    for _ in range(state.random.randint(*TOWER_HEIGHTS)):
        row = state.random.choice(rows)
        if row.arity == 1:
            top = n.UnOp(row.name, top)
            continue
        beside = leaf(state, dtype, level, 0)
        top = n.BinOp(row.name, *((top, beside) if state.random.random() < 0.5 else (beside, top)))
    return top


def with_feature(state: State, feature: Feature, level: Level = Level.DIVERGENT) -> tuple[Expr, DType] | None:
    """An expression whose root is the feature, and its type; None if it cannot stand here."""
    depth = max(1, min(2, state.profile.expression_depth - 1))
    first = feature.dtypes[0]
    match feature.kind:
        case "operator":
            row = OPERATORS[feature.name]
            parts = [expression(state, first, level, depth) for _ in range(row.arity)]
            root = n.BinOp(row.name, *parts) if row.arity == 2 else n.UnOp(row.name, *parts)
            return root, row.result_type(first)
        case "cast":
            return n.Cast(feature.dtypes[1], expression(state, first, level, depth)), feature.dtypes[1]
        case "bitcast":
            return n.Bitcast(feature.dtypes[1], expression(state, first, level, depth)), feature.dtypes[1]
        case "fma":
            found = _fma(state, first, level, depth)
            return None if found is None else (found, first)
        case "reduce":
            return n.SubgroupReduce(feature.name, expression(state, first, level, depth)), first
        case "shuffle":
            return n.SubgroupShuffle(expression(state, first, level, depth), _lane(state)), first
        case "atomic":
            owned = [decl for decl in buffers_in(state, Mode.OWNED, dtype=first) if decl.access.readable]
            if not owned:
                return None
            decl = state.random.choice(owned)
            return atomic(state, AtomicOp(feature.name), decl, own_index(state, decl), depth), first
    return None


_Production = Callable[[State, DType, Level, int], Expr | None]
PRODUCTIONS: Final[dict[str, _Production]] = {
    "leaf": leaf,
    "binary": _binary,
    "unary": _unary,
    "select": _select,
    "cast": _cast,
    "bitcast": _bitcast,
    "fma": _fma,
    "atomic": _atomic,
    "subgroup": subgroup,
    "call": _call,
    "tower": tower,
}

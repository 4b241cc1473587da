"""What is the type of each expression? Every typing rule, once.

Types flow from the leaves: there is no inference and no promotion. A rule that is broken is reported with the code
of the checker's table, and the type is then unknown (None), which silences everything that would follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from vyre.analyze.agreement import SOURCES
from vyre.errors import InvalidProgram
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Access, BufferDecl
from vyre.ir.extensions import lookup_extension, lookup_op
from vyre.ir.limits import MAX_EXPRESSION_DEPTH, MAX_NESTING, MAX_PAYLOAD_BYTES
from vyre.ir.names import nearest_word
from vyre.ir.nodes import Expr, MemoryOrder
from vyre.ir.program import Program
from vyre.semantics.operators import BINARY, REDUCTIONS, UNARY, AtomicOp, Operator
from vyre.semantics.scalars import from_bits, to_bits
from vyre.semantics.types import ALL_TYPES, ATOMIC_TYPES, FUSED_TYPES, DType


class Reporter(Protocol):
    """Takes a broken rule: its code, the number of the expression in its statement (None: the statement itself), a
    sentence, and a better fix than the code's own where one is known."""

    def __call__(self, code: str, index: int | None, message: str, fix: str | None = None, /) -> None: ...


Type = DType | None
Stack = list[Type]

_U32: Final = DType.U32
_BOOL: Final = DType.BOOL


def _results(table: Mapping[str, Operator]) -> dict[str, dict[Type, DType]]:
    return {row.name: {dtype: row.result_type(dtype) for dtype in row.types} for row in table.values()}


_BINARY_RESULTS: Final = _results(BINARY)
_UNARY_RESULTS: Final = _results(UNARY)
_NO_RESULTS: Final[dict[Type, DType]] = {}

# Bits up to these are legal at a glance; above them may be a negative float, a NaN, or too many bits.
_PLAIN_BITS: Final[dict[Any, int]] = {
    d: to_bits(float("inf"), d) if d.is_float else (1 << d.bits) - 1 for d in ALL_TYPES
}

_LOAD_ORDERS: Final = (MemoryOrder.RELAXED, MemoryOrder.ACQUIRE, MemoryOrder.SEQ_CST)
_STORE_ORDERS: Final = (MemoryOrder.RELAXED, MemoryOrder.RELEASE, MemoryOrder.SEQ_CST)
_CHANGE_ORDERS: Final = tuple(order for order in MemoryOrder if order is not MemoryOrder.GRID_SYNC)


class Malformed(Exception):
    """A field holds something that its class does not declare; only hand-built data can get here."""


class Typer:
    """Types the expressions of one program, in one walk over each.

    ``variables`` are those in scope. ``position`` counts the expression nodes of the current statement.
    ``sources`` gets, if it is a list, the nodes that a value's uniformity and an expression's effects come from.
    """

    def __init__(self, buffers: Iterable[BufferDecl], report: Reporter, sources: list[Expr] | None = None) -> None:
        self.report = report
        self.sources = sources
        self.variables: dict[str, Type] = {}
        self.position = 0
        self.buffers = {decl.name: decl for decl in buffers}
        self.readable = {decl.name: decl.dtype for decl in self.buffers.values() if decl.access.readable}
        self.expansions = 0
        self.has_extensions = False

    def type_of(self, root: Expr) -> Type:
        """The type of an expression; None if a rule is broken in it, which was then reported."""
        order: list[Any] = walk.postorder(root)
        if len(order) > MAX_EXPRESSION_DEPTH:
            self._check_depth(order)
        stack: Stack = []
        push, pop = stack.append, stack.pop
        variables, readable, sources = self.variables, self.readable, self.sources
        previous: Any = None
        for index, node in enumerate(order, self.position):
            cls = type(node)
            if cls is n.Var:
                dtype = variables.get(node.name)
                push(dtype)
                if dtype is None:
                    self._check_declared(node.name, index)
                if sources is not None:
                    sources.append(node)
            elif cls is n.BinOp:
                right = pop()
                left = stack[-1]
                result = _BINARY_RESULTS.get(node.op, _NO_RESULTS).get(left) if left is right else None
                stack[-1] = result
                if result is None:
                    self._explain_operator(BINARY, node.op, (left, right), index)
            elif cls is n.Lit:
                dtype = node.dtype
                push(dtype)
                bits = node.bits
                if type(bits) is not int or not 0 <= bits <= _PLAIN_BITS[dtype]:
                    self._check_literal(bits, dtype, index)
            elif cls is n.Load:
                dtype = readable.get(node.buffer)
                if dtype is None or stack[-1] is not _U32 or type(previous) is n.Lit:
                    self.check_index(node.buffer, stack[-1], previous, index)
                    if dtype is None:
                        self.check_readable(node.buffer, index)
                stack[-1] = dtype
                if sources is not None:
                    sources.append(node)
            else:
                push(_RULES[cls](self, node, stack, index))
                if sources is not None and cls in SOURCES:
                    sources.append(node)
            previous = node
        self.position += len(order)
        return stack[0]

    def expect(self, root: Expr, wanted: DType, code: str, what: str) -> None:
        """Types an expression that must have a certain type."""
        dtype = self.type_of(root)
        self.check_type(dtype, wanted, code, what, self.position - 1)

    def check_type(self, dtype: Type, wanted: DType, code: str, what: str, index: int) -> None:
        if dtype is not wanted and dtype is not None:
            self.report(code, index, f"{what} is {dtype}, not {wanted}.")

    def declaration(self, buffer: str, index: int | None) -> BufferDecl | None:
        """The declaration of a buffer; reported if there is none."""
        decl = self.buffers.get(buffer)
        if decl is None:
            _must_be(str, buffer)
            self.report("V052", index, f"buffer '{buffer}' is not declared.", _meant(buffer, self.buffers))
        return decl

    def check_readable(self, buffer: str, index: int | None) -> BufferDecl | None:
        decl = self.declaration(buffer, index)
        if decl is not None and not decl.access.readable:
            self.report("V057", index, f"buffer '{buffer}' is {decl.access.value}, and this reads it.")
        return decl

    def check_writable(self, buffer: str, index: int | None) -> BufferDecl | None:
        decl = self.declaration(buffer, index)
        if decl is not None and not decl.access.writable:
            self.report("V056", index, f"buffer '{buffer}' is {decl.access.value}, and this writes it.")
        return decl

    def check_index(self, buffer: str, dtype: Type, root: Expr | None, index: int) -> None:
        """The rules of an index whose outermost node is ``root``."""
        self.check_type(dtype, _U32, "V027", f"the index into '{buffer}'", index)
        decl = self.buffers.get(buffer)
        if type(root) is n.Lit and dtype is _U32 and decl is not None and 0 < decl.count <= root.bits:
            self.report("V036", index, f"index {root.bits} is outside '{buffer}', which has {decl.count} elements.")

    def _check_declared(self, name: str, index: int) -> None:
        if name not in self.variables:
            _must_be(str, name)
            self.report("V051", index, f"variable '{name}' is not declared here.", _meant(name, self.variables))

    def _check_literal(self, bits: int, dtype: DType, index: int) -> None:
        _must_be(int, bits)
        if not 0 <= bits < 1 << dtype.bits:
            self.report("V081", index, f"the bits {bits:#x} do not fit {dtype}.")
        elif dtype.is_float and bits != to_bits(from_bits(bits, dtype), dtype):
            self.report("V081", index, f"the bits {bits:#x} are a NaN of {dtype} other than the canonical one.")

    def _check_depth(self, order: list[Expr]) -> None:
        depths: list[int] = []
        deepest = 0
        for node in order:
            count = len(walk.operands(node))
            depth = 1 + max(depths[len(depths) - count :], default=0) if count else 1
            del depths[len(depths) - count :]
            depths.append(depth)
            deepest = max(deepest, depth)
        if deepest > MAX_EXPRESSION_DEPTH:
            last = self.position + len(order) - 1
            self.report("V033", last, f"the expression is {deepest:,} deep, over {MAX_EXPRESSION_DEPTH:,}.")

    def _explain_operator(self, table: Mapping[str, Operator], op: str, types: tuple[Type, ...], index: int) -> None:
        row = table.get(op)
        if row is None:
            _must_be(str, op)
            kind = "binary" if table is BINARY else "unary"
            self.report("V061", index, f"there is no {kind} operator '{op}'.")
        elif None in types:
            return
        elif len(set(types)) > 1:
            fix = f"cast one of them, as in {types[0]}(...) around the {types[1]}."
            self.report("V059", index, f"the operands of '{row.spelling}' are {types[0]} and {types[1]}.", fix)
        else:
            self.report("V060", index, f"'{row.spelling}' is not defined for {types[0]}.")

    def reduction(self, op: str, dtype: Type, index: int | None, code: str) -> None:
        """The rule of the operators that combine lanes or ranks."""
        if op not in REDUCTIONS:
            _must_be(str, op)
            self.report(code, index, f"'{op}' is not a reduction.")
        elif dtype is not None and dtype not in BINARY[op].types:
            self.report(code, index, f"the reduction '{op}' is not defined for {dtype}.")


def _meant(word: str, names: Iterable[str]) -> str | None:
    """The fix for a name that is close to one that exists."""
    near = nearest_word(word, names)
    return None if near is None else f"did you mean '{near}'?"


def _must_be(cls: type, value: object) -> None:
    if type(value) is not cls:
        raise Malformed


def _axis(typer: Typer, node: Any, _: Stack, index: int) -> Type:
    _must_be(int, node.axis)
    if not 0 <= node.axis <= 2:
        typer.report("V063", index, f"axis {node.axis} does not exist.")
    return _U32


def _u32(_typer: Typer, _node: Any, _stack: Stack, _index: int) -> Type:
    return _U32


def _length(typer: Typer, node: n.BufLen, _: Stack, index: int) -> Type:
    typer.declaration(node.buffer, index)
    return _U32


def _unary(typer: Typer, node: n.UnOp, stack: Stack, index: int) -> Type:
    dtype = stack.pop()
    result = _UNARY_RESULTS.get(node.op, _NO_RESULTS).get(dtype)
    if result is None:
        typer._explain_operator(UNARY, node.op, (dtype,), index)
    return result


def _select(typer: Typer, _: n.Select, stack: Stack, index: int) -> Type:
    no, yes, condition = stack.pop(), stack.pop(), stack.pop()
    typer.check_type(condition, _BOOL, "V062", "the condition of select", index)
    if yes is not no and yes is not None and no is not None:
        typer.report("V029", index, f"the values of select are {yes} and {no}.")
        return None
    return yes or no


def _cast(_: Typer, node: n.Cast, stack: Stack, __: int) -> Type:
    stack.pop()
    _must_be(DType, node.target)
    return node.target


def _bitcast(typer: Typer, node: n.Bitcast, stack: Stack, index: int) -> Type:
    dtype = stack.pop()
    _must_be(DType, node.target)
    if dtype is not None and dtype.bits != node.target.bits:
        typer.report("V012", index, f"{dtype} has {dtype.bits} bits and {node.target} has {node.target.bits}.")
    return node.target


def _fma(typer: Typer, _: n.Fma, stack: Stack, index: int) -> Type:
    c, b, a = stack.pop(), stack.pop(), stack.pop()
    if a is None or b is None or c is None:
        return None
    if not (a is b is c) or a not in FUSED_TYPES:
        typer.report("V028", index, f"the operands of fma are {a}, {b} and {c}.")
        return None
    return a


def _atomic(typer: Typer, node: n.Atomic, stack: Stack, index: int) -> Type:
    _must_be(AtomicOp, node.op)
    _must_be(MemoryOrder, node.order)
    value = stack.pop() if node.value is not None else None
    expected = stack.pop() if node.expected is not None else None
    subscript = stack.pop()
    op = node.op.value
    if (node.value is None) is not (node.op is AtomicOp.LOAD):
        typer.report("V086", index, f"atomic_{op} takes {'no' if node.op is AtomicOp.LOAD else 'a'} value.")
    if (node.expected is not None) is not (node.op is AtomicOp.COMPARE_EXCHANGE):
        has = "no" if node.expected is not None else "an"
        typer.report("V086", index, f"atomic_{op} takes {has} expected value.")
    orders = {AtomicOp.LOAD: _LOAD_ORDERS, AtomicOp.STORE: _STORE_ORDERS}.get(node.op, _CHANGE_ORDERS)
    if node.order not in orders:
        typer.report("V042", index, f"atomic_{op} cannot have the order {node.order.value}.")
    decl = typer.declaration(node.buffer, index)
    typer.check_index(node.buffer, subscript, node.index, index)
    if decl is None:
        return None
    if decl.access in (Access.READ_ONLY, Access.UNIFORM):
        typer.report("V009", index, f"buffer '{decl.name}' is {decl.access.value}, and atomic_{op} works on it.")
    elif not decl.access.readable:
        typer.check_readable(decl.name, index)
    if decl.dtype not in ATOMIC_TYPES:
        typer.report("V014", index, f"the elements of '{decl.name}' are {decl.dtype}, which has no atomics.")
    for what, dtype in (("value", value), ("expected value", expected)):
        typer.check_type(dtype, decl.dtype, "V064", f"the {what} for '{decl.name}'", index)
    return decl.dtype


def _ballot(typer: Typer, _: n.SubgroupBallot, stack: Stack, index: int) -> Type:
    typer.check_type(stack.pop(), _BOOL, "V062", "the predicate of subgroup_ballot", index)
    return _U32


def _shuffle(typer: Typer, _: n.SubgroupShuffle, stack: Stack, index: int) -> Type:
    typer.check_type(stack.pop(), _U32, "V074", "the lane of subgroup_shuffle", index)
    return stack.pop()


def _reduce(typer: Typer, node: n.SubgroupReduce, stack: Stack, index: int) -> Type:
    dtype = stack.pop()
    typer.reduction(node.op, dtype, index, "V083")
    return dtype


def _call(typer: Typer, node: n.Call, stack: Stack, index: int) -> Type:
    typer.has_extensions = True
    _must_be(str, node.op_id)
    _must_be(tuple, node.args)
    given = stack[len(stack) - len(node.args) :]
    del stack[len(stack) - len(node.args) :]
    operation = lookup_op(node.op_id)
    if operation is None:
        typer.report("V016", index, f"operation '{node.op_id}' is not registered.")
        return None
    wanted = operation.parameters
    if len(given) != len(wanted):
        typer.report("V020", index, f"operation '{node.op_id}' takes {len(wanted)} arguments, not {len(given)}.")
    else:
        for (name, parameter), argument in zip(wanted, given, strict=True):
            typer.check_type(argument, parameter, "V059", f"the argument '{name}' of '{node.op_id}'", index)
    return operation.result_type


def _opaque(typer: Typer, node: n.OpaqueExpr, _: Stack, index: int) -> Type:
    typer.has_extensions = True
    expansion = expand(node.kind, node.payload, lambda code, message: typer.report(code, index, message))
    if expansion is None:
        return None
    if not isinstance(expansion, Expr):
        typer.report("V084", index, f"extension '{node.kind}' stands for statements and is used as an expression.")
        return None
    if typer.expansions >= MAX_NESTING:
        typer.report("V084", index, f"extension '{node.kind}' expands to itself more than {MAX_NESTING} deep.")
        return None
    # What the expansion breaks is reported at the node that stands for it.
    inner = Typer(typer.buffers.values(), lambda code, _, message, fix=None: typer.report(code, index, message, fix))
    inner.variables = typer.variables
    inner.expansions = typer.expansions + 1
    return inner.type_of(expansion)


def expand(kind: str, payload: bytes, report: Callable[[str, str], None]) -> Expr | n.Body | None:
    """What an opaque node stands for; None if nothing, which was then reported."""
    _must_be(str, kind)
    _must_be(bytes, payload)
    expander = lookup_extension(kind)
    if len(payload) > MAX_PAYLOAD_BYTES:
        report("V085", f"the payload has {len(payload):,} bytes.")
    elif expander is None:
        report("V084", f"extension '{kind}' is not registered.")
    else:
        try:
            return expander(payload)
        except Exception as error:  # an extension's own code, which may raise anything about its payload
            report("V084", f"extension '{kind}' refuses its payload: {error}.")
    return None


_RULES: Final[dict[type, Callable[[Typer, Any, Stack, int], Type]]] = {
    n.BufLen: _length,
    n.InvocationId: _axis,
    n.WorkgroupId: _axis,
    n.LocalId: _axis,
    n.NumWorkgroups: _axis,
    n.UnOp: _unary,
    n.Select: _select,
    n.Cast: _cast,
    n.Bitcast: _bitcast,
    n.Fma: _fma,
    n.Atomic: _atomic,
    n.SubgroupBallot: _ballot,
    n.SubgroupShuffle: _shuffle,
    n.SubgroupReduce: _reduce,
    n.SubgroupLocalId: _u32,
    n.SubgroupSize: _u32,
    n.Call: _call,
    n.OpaqueExpr: _opaque,
}


def refuse(code: str, _: int | None, message: str, fix: str | None = None) -> None:
    """The reporter of those who take only legal programs; an index outside (V036) does not make one illegal."""
    del fix
    if code != "V036":
        raise InvalidProgram(f"{code}: {message}", "check the program with vyre.check before asking for its types.")


def type_of(expression: Expr, variables: Mapping[str, DType], buffers: Mapping[str, BufferDecl]) -> DType:
    """The type of a legal expression, given what is in scope; InvalidProgram for any other."""
    typer = Typer(buffers.values(), refuse)
    typer.variables.update(variables)
    dtype = typer.type_of(expression)
    assert dtype is not None  # an unknown type was reported, and so raised
    return dtype


def variable_types(program: Program) -> list[DType]:
    """The type of each variable of a legal program, in the order of the lets and loops that declare them."""
    typer = Typer(program.buffers, refuse)
    types: list[DType] = []
    for statement in walk.statements(program.entry):
        match statement:
            case n.Let(name, value):
                dtype = typer.type_of(value)
                assert dtype is not None
            case n.Loop(name):
                dtype = _U32
            case _:
                continue
        typer.variables[name] = dtype
        types.append(dtype)
    return types

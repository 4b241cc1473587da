"""How does a program become bytes, and which bytes are a program?

A wire image is magic, version, digest, and a msgpack body. The code in the body is flat: expressions in postorder
push and pop an operand stack, a statement pops its operands, and its lists follow it; so depth costs nothing.
Words (names, node classes, operators, types) are numbers of a table in order of first use: there is exactly one
encoding of each program, and decoding checks that by encoding again.

The code of a single node is also what equality and hashing of nodes mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from hashlib import blake2b
from operator import attrgetter, length_hint
from typing import Any, Final, get_type_hints

import msgspec

from vyre.arguments import require
from vyre.errors import InvalidProgram, WireError
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.limits import (
    MAX_BUFFERS,
    MAX_EXPRESSION_DEPTH,
    MAX_EXPRESSIONS,
    MAX_NESTING,
    MAX_PAYLOAD_BYTES,
    MAX_STATEMENTS,
    MAX_WIRE_BYTES,
)
from vyre.ir.program import Program, require_program
from vyre.ir.walk import BODY_FIELDS, EXPRESSION_FIELDS, bodies, operands, postorder, statements, too_many_expressions

MAGIC: Final = b"VYRE"
VERSION: Final = 1
_DIGEST_BYTES: Final = 16
_HEADER_BYTES: Final = len(MAGIC) + 2 + _DIGEST_BYTES
_FIX_FILE: Final = "write the file again with vyre.ir.encode, or with this version of vyre."


class _Body(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    name: str
    workgroup_size: tuple[int, int, int]
    subgroup_size: int
    buffers: tuple[BufferDecl, ...]
    words: list[str]
    payloads: list[bytes]
    code: list[int]
    entry_length: int


class _Numbers(dict[Any, int]):
    """Numbers words in order of first use."""

    def __missing__(self, word: Any) -> int:
        number = self[word] = len(self)
        return number


class _Output:
    """What encoding has produced so far."""

    def __init__(self) -> None:
        self.words = _Numbers()
        self.payloads: list[bytes] = []
        self.code: list[int] = []
        self.expressions = 0

    def add_expression(self, root: n.Expr) -> None:
        order = postorder(root)
        self.expressions += len(order)
        if self.expressions > MAX_EXPRESSIONS:
            raise too_many_expressions()
        for node in order:
            _ENCODERS[type(node)](node, self)

    def add_statement(self, statement: n.Stmt) -> None:
        for root in operands(statement):
            self.add_expression(root)
        _ENCODERS[type(statement)](statement, self)
        self.code.extend([len(body) for body in bodies(statement)])

    def add_body(self, body: Iterable[n.Stmt]) -> None:
        for statement in statements(body):
            self.add_statement(statement)


_Encoder = Callable[[Any, _Output], None]


def _plain_fields(cls: type[n.Node]) -> list[tuple[str, Any]]:
    """The fields of a node that are neither operands nor lists, with their types."""
    hints = get_type_hints(cls, vars(n))
    skipped = {*EXPRESSION_FIELDS[cls], *BODY_FIELDS.get(cls, ())}
    return [(f.name, hints[f.name]) for f in msgspec.structs.fields(cls) if f.name not in skipped]


def _writer(hint: Any) -> Callable[[Any, _Output], int]:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value, out: out.words[value.value]
    if hint is str:
        return lambda value, out: out.words[value]
    if hint is bytes:
        return _write_payload
    if hint is int:
        return lambda value, _: value
    return lambda value, out: 0 if value is None else out.words[value] + 1


def _write_payload(value: bytes, out: _Output) -> int:
    out.payloads.append(value)
    return len(out.payloads) - 1


def _encoder(cls: type[n.Node]) -> _Encoder:
    name = cls.__name__
    parts = [(attrgetter(field), _writer(hint)) for field, hint in _plain_fields(cls)]

    def encode_node(node: Any, out: _Output) -> None:
        out.code.append(out.words[name])
        for get, write in parts:
            out.code.append(write(get(node), out))

    if cls is n.Call:
        return _also(encode_node, lambda node: len(node.args))
    if cls is n.Atomic:
        return _also(encode_node, lambda node: (node.expected is not None) * 2 + (node.value is not None))
    return encode_node


def _also(encode_node: _Encoder, extra: Callable[[Any], int]) -> _Encoder:
    def encode_more(node: Any, out: _Output) -> None:
        encode_node(node, out)
        out.code.append(extra(node))

    return encode_more


_ENCODERS: Final[dict[type, _Encoder]] = {cls: _encoder(cls) for cls in n.EXPRESSION_CLASSES + n.STATEMENT_CLASSES}


def node_bytes(node: n.Node) -> bytes:
    """The exact code of one expression or statement: equal if and only if the nodes are."""
    out = _Output()
    if isinstance(node, n.Expr):
        out.add_expression(node)
    else:
        out.add_body((node,))  # type: ignore[arg-type]
    return _pack((list(out.words), out.payloads, out.code))


def _pack(value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidProgram(
            f"a field of the program holds a value that is not of its type ({error}).",
            "build nodes with the functions of vyre.ir.",
        ) from error


def program_bytes(program: Program) -> bytes:
    """The wire body of a program, without header."""
    out = _Output()
    out.add_body(program.entry)
    body = _Body(
        program.name,
        program.workgroup_size,
        program.subgroup_size,
        program.buffers,
        list(out.words),
        out.payloads,
        out.code,
        len(program.entry),
    )
    return _pack(body)


def encode(program: Program) -> bytes:
    """The wire image of a program."""
    body = program_bytes(require_program(program))
    return MAGIC + VERSION.to_bytes(2, "little") + blake2b(body, digest_size=_DIGEST_BYTES).digest() + body


def decode(data: bytes | bytearray | memoryview) -> Program:
    """The program that these bytes encode; WireError for any other bytes."""
    require(data, (bytes, bytearray, memoryview), "what is to be decoded", "give the bytes that vyre.ir.encode gave.")
    body_bytes = _checked_body(bytes(data))
    try:
        body = msgspec.msgpack.decode(body_bytes, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise WireError(f"the body is not a program ({error}).", _FIX_FILE, offset=_HEADER_BYTES) from None
    if len(body.buffers) > MAX_BUFFERS:
        raise WireError(f"the program has {len(body.buffers)} buffers, over {MAX_BUFFERS}.", "use fewer buffers.")
    entry = _Input(body).read_entry()
    program = Program(body.name, body.buffers, body.workgroup_size, entry, body.subgroup_size)
    try:
        again = program_bytes(program)
    except InvalidProgram as error:
        raise WireError(error.message, error.fix, offset=_HEADER_BYTES) from None
    if again != body_bytes:
        raise WireError("the body is not the canonical encoding of its program.", _FIX_FILE, offset=_HEADER_BYTES)
    return program


def _checked_body(data: bytes) -> bytes:
    if len(data) > MAX_WIRE_BYTES:
        raise WireError(f"{len(data):,} bytes are more than {MAX_WIRE_BYTES:,}.", "split the program.")
    if data[: len(MAGIC)] != MAGIC:
        raise WireError("the bytes do not begin with the mark of a vyre program.", "give a file that vyre wrote.")
    if len(data) < _HEADER_BYTES:
        raise WireError(f"{len(data)} bytes end inside the header.", "copy the whole file.", offset=len(data))
    version = int.from_bytes(data[4:6], "little")
    if version != VERSION:
        raise WireError(f"wire version {version} is not {VERSION}.", _FIX_FILE, offset=4)
    body = data[_HEADER_BYTES:]
    if blake2b(body, digest_size=_DIGEST_BYTES).digest() != data[6:_HEADER_BYTES]:
        raise WireError("the digest does not match: the file is damaged.", "copy or write the file again.", offset=6)
    return body


class _Open(msgspec.Struct):
    """A statement whose lists are being read: what is known of it, and how many statements each list still wants."""

    plan: _Plan
    fields: list[Any]
    lengths: list[int]
    built: list[list[n.Stmt]]


class _Plan(msgspec.Struct, frozen=True):
    """How a class is read: its plain fields, how many operands and lists it has, and the order of its fields.

    Values come as plain fields, operands, lists; ``order`` puts them in the order of the class, where that differs.
    """

    cls: type[Any]
    is_expression: bool
    readers: tuple[Callable[[_Input], Any], ...]
    operands: int
    lists: int
    order: tuple[int, ...] | None

    def build(self, values: list[Any]) -> Any:
        return self.cls(*values) if self.order is None else self.cls(*[values[k] for k in self.order])


class _Input:
    """A reader of code: an operand stack (with depths) and the statements that are still open."""

    def __init__(self, body: _Body) -> None:
        self.body = body
        self.code = iter(body.code)
        self.stack: list[n.Expr] = []
        self.depths: list[int] = []
        self.statements = 0
        # A word that is not the name of a node has no plan; it is an error only where a node should stand.
        self.plans = [_PLANS.get(word) for word in body.words]

    def read_entry(self) -> n.Body:
        try:
            return self._read_entry()
        except StopIteration:
            raise self.error("it ends too early") from None
        except (IndexError, KeyError, ValueError, TypeError) as error:
            raise self.error(f"{type(error).__name__}: {error}") from None

    def error(self, what: str) -> WireError:
        at = len(self.body.code) - length_hint(self.code)
        return WireError(f"the code is wrong at item {at}: {what}.", _FIX_FILE, offset=_HEADER_BYTES)

    def index(self) -> int:
        value = next(self.code)
        if value < 0:
            raise ValueError(f"{value} is negative")
        return value

    def word(self) -> str:
        return self.body.words[self.index()]

    def payload(self) -> bytes:
        payload = self.body.payloads[self.index()]
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise self.error(f"a payload of {len(payload):,} bytes is over {MAX_PAYLOAD_BYTES:,}")
        return payload

    def optional_word(self) -> str | None:
        number = self.index()
        return None if number == 0 else self.body.words[number - 1]

    def _read_entry(self) -> n.Body:
        entry: list[n.Stmt] = []
        opened = [_Open(_PLANS["Block"], [], [self.body.entry_length], [entry])]
        while True:
            top = opened[-1]
            if len(top.built[-1]) < top.lengths[len(top.built) - 1]:
                self._read_statement(opened)
            elif len(top.built) < len(top.lengths):
                top.built.append([])
            else:
                opened.pop()
                if not opened:
                    break
                opened[-1].built[-1].append(top.plan.build(top.fields + [tuple(part) for part in top.built]))
        if length_hint(self.code):
            raise self.error("code after the last statement")
        return tuple(entry)

    def _read_statement(self, opened: list[_Open]) -> None:
        self.statements += 1
        if self.statements > MAX_STATEMENTS:
            raise self.error(f"more than {MAX_STATEMENTS:,} statements")
        while True:
            plan = self.plans[self.index()]
            if plan is None:
                raise self.error("a word that is not a node")
            fields = [read(self) for read in plan.readers]
            if plan.is_expression:
                self._push(plan, fields)
                continue
            fields += self._pop(plan.operands)
            if self.stack:
                raise self.error("operands that no statement takes")
            if plan.lists:
                if len(opened) > MAX_NESTING:
                    raise self.error(f"statements nest more than {MAX_NESTING} deep")
                opened.append(_Open(plan, fields, [self.index() for _ in range(plan.lists)], [[]]))
            else:
                opened[-1].built[-1].append(plan.build(fields))
            return

    def _push(self, plan: _Plan, fields: list[Any]) -> None:
        depth = 1
        if plan.cls is n.Call:
            depth, args = self._pop_deep(self.index())
            fields.append(tuple(args))
        elif plan.cls is n.Atomic:
            has_expected, has_value = divmod(self.index(), 2)
            depth, (index, *rest) = self._pop_deep(1 + has_expected + has_value)
            value = rest.pop() if has_value else None
            fields += [index, value, rest[0] if has_expected else None]
        elif plan.operands:
            depth, taken = self._pop_deep(plan.operands)
            fields += taken
        if depth > MAX_EXPRESSION_DEPTH:
            raise self.error(f"an expression is more than {MAX_EXPRESSION_DEPTH:,} deep")
        self.stack.append(plan.build(fields))
        self.depths.append(depth)

    def _pop_deep(self, count: int) -> tuple[int, list[n.Expr]]:
        """Pops operands, with the depth of a node above them."""
        depth = 1 + max(self.depths[len(self.depths) - count :], default=0) if count <= len(self.depths) else 0
        return depth, self._pop(count)

    def _pop(self, count: int) -> list[n.Expr]:
        start = len(self.stack) - count
        if start < 0:
            raise self.error("an operand is missing")
        taken = self.stack[start:]
        del self.stack[start:]
        del self.depths[start:]
        return taken


def _reader(hint: Any) -> Callable[[_Input], Any]:
    if isinstance(hint, type) and issubclass(hint, Enum):
        members = {member.value: member for member in hint}
        return lambda source: members[source.word()]
    if hint is str:
        return _Input.word
    if hint is bytes:
        return _Input.payload
    if hint is int:
        return lambda source: next(source.code)
    return _Input.optional_word


def _plan(cls: type[n.Node]) -> _Plan:
    plain = _plain_fields(cls)
    given = [*(name for name, _ in plain), *EXPRESSION_FIELDS[cls], *BODY_FIELDS.get(cls, ())]
    order = tuple(given.index(f.name) for f in msgspec.structs.fields(cls))
    return _Plan(
        cls,
        issubclass(cls, n.Expr),
        tuple(_reader(hint) for _, hint in plain),
        len(EXPRESSION_FIELDS[cls]),
        len(BODY_FIELDS.get(cls, ())),
        None if order == tuple(range(len(order))) else order,
    )


_PLANS: Final[dict[str, _Plan]] = {cls.__name__: _plan(cls) for cls in _ENCODERS}

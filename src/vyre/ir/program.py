"""What is a program? Buffers, a workgroup size, and an entry that every invocation of the grid runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any

import msgspec

from vyre.arguments import listed, require, require_whole
from vyre.errors import BadInputs, InvalidProgram
from vyre.ir import nodes as n
from vyre.ir.buffers import Access, BufferDecl, Role
from vyre.ir.limits import MAX_EXPRESSIONS, MAX_STATEMENTS
from vyre.ir.places import SourceMap
from vyre.ir.walk import BODIES, OPERANDS
from vyre.semantics.types import DType
from vyre.words import counted

DEFAULT_SUBGROUP_SIZE = 32
_BATCH = 1 << 16


class Stats(msgspec.Struct, frozen=True):
    """Counts and facts of a whole program.

    ``complete`` is false when counting stopped because the program is over a limit; the counts are then lower bounds.
    """

    statements: int
    expressions: int
    nesting: int
    expression_depth: int
    kinds: Mapping[str, int]
    dtypes: frozenset[DType]
    grid_syncs: int
    complete: bool

    def has(self, *classes: type[n.Node]) -> bool:
        """Whether a node of one of these classes occurs."""
        return any(cls.__name__ in self.kinds for cls in classes)

    @property
    def has_barriers(self) -> bool:
        return self.has(n.Barrier)

    @property
    def has_grid_sync(self) -> bool:
        return self.grid_syncs > 0

    @property
    def has_atomics(self) -> bool:
        return self.has(n.Atomic)

    @property
    def has_subgroup_ops(self) -> bool:
        return self.has(*n.SUBGROUP_OPERATIONS)

    @property
    def has_async(self) -> bool:
        return self.has(n.AsyncLoad, n.AsyncStore)

    @property
    def has_traps(self) -> bool:
        return self.has(n.Trap)

    @property
    def has_indirect_dispatch(self) -> bool:
        return self.has(n.IndirectDispatch)

    @property
    def has_collectives(self) -> bool:
        return self.has(*n.COLLECTIVES)

    @property
    def has_extensions(self) -> bool:
        return self.has(n.Call, n.OpaqueExpr, n.OpaqueStmt)


class Program(msgspec.Struct, frozen=True, eq=False, dict=True, weakref=True):
    """A program. Equality and hash are those of the wire bytes: exact, and safe at any depth.

    ``source`` says where the nodes came from; it is not part of what the program is.
    """

    name: str = "main"
    buffers: tuple[BufferDecl, ...] = ()
    workgroup_size: tuple[int, int, int] = (1, 1, 1)
    entry: n.Body = ()
    subgroup_size: int = DEFAULT_SUBGROUP_SIZE
    source: SourceMap | None = None

    @classmethod
    def new(
        cls,
        buffers: Iterable[BufferDecl],
        workgroup_size: int | Iterable[int],
        entry: Iterable[n.Stmt],
        *,
        name: str = "main",
        subgroup_size: int = DEFAULT_SUBGROUP_SIZE,
    ) -> Program:
        """A program whose entry is exactly these statements."""
        _require_name(name)
        require_whole(subgroup_size, "the size of a subgroup")
        return cls(name, _buffers(buffers), _three(workgroup_size), _entry(entry), subgroup_size)

    @classmethod
    def wrapped(
        cls,
        buffers: Iterable[BufferDecl],
        workgroup_size: int | Iterable[int],
        entry: Iterable[n.Stmt],
        *,
        name: str = "main",
        generator: str = "root",
        subgroup_size: int = DEFAULT_SUBGROUP_SIZE,
    ) -> Program:
        """A program whose entry is one root region around these statements."""
        require(generator, str, "the generator", "give a text.")
        root = n.Region(generator, None, _entry(entry))
        return cls.new(buffers, workgroup_size, (root,), name=name, subgroup_size=subgroup_size)

    @classmethod
    def empty(cls, name: str = "main") -> Program:
        """A program that does nothing."""
        _require_name(name)
        return cls(name)

    def _with(self, **changes: Any) -> Program:
        return msgspec.structs.replace(self, **changes)

    def with_entry(self, entry: Iterable[n.Stmt]) -> Program:
        return self._with(entry=_entry(entry), source=None)

    def with_buffers(self, buffers: Iterable[BufferDecl]) -> Program:
        return self._with(buffers=_buffers(buffers), source=None)

    def with_workgroup_size(self, workgroup_size: int | Iterable[int]) -> Program:
        return self._with(workgroup_size=_three(workgroup_size))

    def with_subgroup_size(self, subgroup_size: int) -> Program:
        require_whole(subgroup_size, "the size of a subgroup")
        return self._with(subgroup_size=subgroup_size)

    def with_name(self, name: str) -> Program:
        _require_name(name)
        return self._with(name=name)

    def with_source(self, source: SourceMap | None) -> Program:
        if source is not None:
            require(source, SourceMap, "the source", "give a SourceMap, or None.")
        return self._with(source=source)

    def buffer(self, name: str) -> BufferDecl:
        """The declaration of that name; BadInputs if there is none."""
        try:
            return self.buffers_by_name[name]
        except (KeyError, TypeError):
            known = ", ".join(self.buffers_by_name) or "none"
            raise BadInputs(f"'{self.name}' has no buffer {name!r:.60}.", f"its buffers are: {known}.") from None

    @cached_property
    def buffers_by_name(self) -> Mapping[str, BufferDecl]:
        return MappingProxyType({decl.name: decl for decl in self.buffers})

    def input_buffers(self) -> tuple[BufferDecl, ...]:
        """The buffers that take host data, in slot order."""
        return tuple(decl for decl in self.buffers if decl.role.takes_input)

    def output_buffers(self) -> tuple[BufferDecl, ...]:
        """The buffers that give host data, in slot order."""
        return tuple(decl for decl in self.buffers if decl.role.gives_output)

    def shared_buffers(self) -> tuple[BufferDecl, ...]:
        """The workgroup memory."""
        return tuple(decl for decl in self.buffers if decl.role is Role.SHARED)

    def stats(self) -> Stats:
        """Counts and facts, computed once."""
        return self._stats

    @cached_property
    def _stats(self) -> Stats:
        try:
            return _count(self)
        except (KeyError, AttributeError, TypeError) as error:
            raise InvalidProgram(
                f"'{self.name}' holds something that is no node ({type(error).__name__}: {error}).",
                "see vyre.check(program), which tells where.",
            ) from error

    def fingerprint(self) -> bytes:
        """BLAKE2b of the exact wire bytes: two programs share it only if they are equal."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> bytes:
        from hashlib import blake2b

        from vyre.ir.wire import program_bytes

        return blake2b(program_bytes(self), digest_size=32).digest()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Program):
            return NotImplemented
        return self.fingerprint() == other.fingerprint()

    # A Struct answers != by itself, without asking ==.
    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.fingerprint())

    def __str__(self) -> str:
        from vyre.ir.printer import print_program

        return print_program(self)

    def __repr__(self) -> str:
        buffers, statements = counted(len(self.buffers), "buffer"), counted(len(self.entry), "top-level statement")
        return f"<Program {self.name}: {buffers}, {statements}>"

    def _repr_html_(self) -> str:
        from vyre.ir.html import program_html

        return program_html(self)


def require_program(item: object) -> Program:
    """The program, if it is one."""
    if not isinstance(item, Program):
        raise BadInputs(
            f"a {type(item).__name__} is no program.",
            "give a vyre.Program: what vyre.parse(text) gives, or the .program of a kernel.",
        )
    return item


def _buffers(buffers: Iterable[BufferDecl]) -> tuple[BufferDecl, ...]:
    declared = tuple(listed(buffers, "what a program declares"))
    for one in declared:
        require(one, BufferDecl, "a buffer of a program", "give BufferDecl.read(...), read_write(...) or output(...).")
    return declared


def _require_name(name: object) -> None:
    require(name, str, "the name of a program", "give a text.")


def _entry(entry: Iterable[n.Stmt]) -> n.Body:
    # What the statements hold is the checker's to tell.
    return tuple(listed(entry, "the entry"))


def _three(size: int | Iterable[int]) -> tuple[int, int, int]:
    axes = (size,) if isinstance(size, int) else tuple(listed(size, "the workgroup size"))
    for axis in axes:
        require_whole(axis, "a size of the workgroup")
    if not 1 <= len(axes) <= 3:
        raise BadInputs(f"a workgroup has one to three axes, not {len(axes)}.", "give (x,), (x, y) or (x, y, z).")
    x, y, z = (*axes, 1, 1)[:3]
    return x, y, z


def _count(program: Program) -> Stats:
    """Counts level by level, so that deep and wide programs cost the same, and stops at the limits.

    An object that stands in several places counts at each: a few doublings of a shared subexpression can pass any
    limit, which is why counting has to be able to stop.
    """
    kinds: Counter[type] = Counter()
    dtypes = {decl.dtype for decl in program.buffers}
    statements = grid_syncs = 0
    nesting = -1
    level: list[n.Stmt] = list(program.entry)
    roots: list[n.Expr] = []
    while level and statements <= MAX_STATEMENTS:
        nesting += 1
        statements += len(level)
        kinds.update(map(type, level))
        grid_syncs += sum(type(s) is n.Barrier and s.order is n.MemoryOrder.GRID_SYNC for s in level)
        roots += [root for s in level if (get := OPERANDS[type(s)]) is not None for root in get(s)]
        lists = [body for outer in level if (get_lists := BODIES[type(outer)]) is not None for body in get_lists(outer)]
        level = list(islice((statement for body in lists for statement in body), MAX_STATEMENTS + 1))
    expressions = depth = 0
    layer = roots
    seen: list[n.Expr] = []
    while layer and expressions <= MAX_EXPRESSIONS:
        depth += 1
        expressions += len(layer)
        seen += layer
        below = (e for outer in layer if (get := OPERANDS[type(outer)]) is not None for e in get(outer))
        layer = list(islice(below, MAX_EXPRESSIONS + 1))
        if len(seen) > _BATCH or not layer:
            kinds.update(map(type, seen))
            dtypes.update([e.dtype for e in seen if type(e) is n.Lit])
            dtypes.update([e.target for e in seen if type(e) is n.Cast or type(e) is n.Bitcast])
            seen.clear()
    return Stats(
        statements=statements,
        expressions=expressions,
        nesting=max(nesting, 0),
        expression_depth=depth,
        kinds=MappingProxyType({cls.__name__: count for cls, count in kinds.items()}),
        dtypes=frozenset(dtypes),
        grid_syncs=grid_syncs,
        complete=not (level or layer or statements > MAX_STATEMENTS or expressions > MAX_EXPRESSIONS),
    )


def has_shared_memory(program: Program) -> bool:
    """Whether the program declares workgroup memory."""
    return any(decl.access is Access.WORKGROUP for decl in program.buffers)

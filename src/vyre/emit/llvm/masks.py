"""Execution masks: sets of lanes as vectors of bits, or as integer words in search loops.

Bit vectors select between values and mask memory accesses. A search loop does neither: it only tests which lanes are
active, and every iteration waits for that test, which is faster in general registers than in mask registers.
"""

from __future__ import annotations

from typing import Final

import msgspec

from vyre.analyze.shapes import Shape, Shapes
from vyre.analyze.types import variable_types
from vyre.emit.llvm.memory import ALL, NONE
from vyre.emit.llvm.operators import Lanes
from vyre.emit.llvm.text import Code, Module
from vyre.emit.llvm.values import Value
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.extensions import declared_names
from vyre.ir.program import Program
from vyre.semantics.types import DType

_WORDS: Final = {ALL: "-1", NONE: "0"}
PLAIN: Final = (
    n.Var, n.Lit, n.BinOp, n.UnOp, n.Select, n.Cast, n.Bitcast, n.Fma, n.InvocationId, n.LocalId, n.WorkgroupId,
    n.NumWorkgroups, n.BufLen,
)  # fmt: skip
# Comparisons of consecutive values with a limit: whether the lanes beyond the limit satisfy them, and whether an equal
# lane counts as before it.
_BEYOND: Final = {"ge": (True, False), "gt": (True, True), "lt": (False, False), "le": (False, True)}
_SWAPPED: Final = {"ge": "le", "gt": "lt", "lt": "gt", "le": "ge"}


class Searches(msgspec.Struct, frozen=True):
    """Search loops (by identity): divergent loops that assign only bool variables; and these variables."""

    loops: frozenset[int] = frozenset()
    variables: frozenset[str] = frozenset()


def searches_of(program: Program, shapes: Shapes) -> Searches:
    """Return the search loops of a program whose variables have unique names."""
    found: dict[int, set[str]] = {}
    for loop in walk.statements(program.entry):
        if isinstance(loop, (n.Loop, n.While)) and id(loop) in shapes.divergent:
            changed = _changed(loop, shapes.in_step)
            if changed is not None:
                found[id(loop)] = changed
    if not found:
        return Searches()
    declared = declared_names(walk.statements(program.entry))
    sets = {name for name, dtype in zip(declared, variable_types(program), strict=True) if dtype is DType.BOOL}
    loops = frozenset(loop for loop, changed in found.items() if changed <= sets)
    return Searches(loops, frozenset().union(*(found[loop] for loop in loops)))


def _changed(loop: n.Loop | n.While, in_step: set[int]) -> set[str] | None:
    """Return the variables that a loop assigns under a mask; None if it has other operations that need a mask."""
    changed: set[str] = set()
    for statement in walk.statements(loop.body):
        match statement:
            case n.Assign(name) if id(statement) not in in_step:
                changed.add(name)
            case n.Let() | n.Assign() | n.If() | n.Break() | n.Continue() | n.Block() | n.Region():
                pass
            case _:
                return None
    return changed if all(isinstance(node, PLAIN) for node in walk.expressions((loop,))) else None


class Masks:
    """Writer of mask operations. ``words`` maps the bit vectors that also exist as words to those words."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.code = Code(Module())
        self.vector, self.scalar = Lanes(self.code, width), Lanes(self.code, 0)
        self.words: dict[str, str] = {}

    def _word(self, mask: str) -> str:
        word = _WORDS.get(mask) or self.words.get(mask)
        return word or self.code.put(f"bitcast <{self.width} x i1> {mask} to i{self.width}")

    def _as_mask(self, word: str) -> str:
        mask = self.code.put(f"bitcast i{self.width} {word} to <{self.width} x i1>")
        self.words[mask] = word
        return mask

    def _combine(self, op: str, a: str, b: str) -> str:
        if a not in self.words and b not in self.words:
            return self.vector.op(op, "i1", a, b)
        return self._as_mask(self.code.put(f"{op} i{self.width} {self._word(a)}, {self._word(b)}"))

    def _and(self, a: str, b: str) -> str:
        if a == ALL:
            return b
        return a if b == ALL else self._combine("and", a, b)

    def _not(self, mask: str) -> str:
        return self._combine("xor", mask, ALL)

    def _select_mask(self, mask: str, new: str, old: str) -> str:
        """Select between two masks by bit operations; LLVM generates more instructions for a select of masks."""
        return self._combine("xor", old, self._and(self._combine("xor", old, new), mask))

    def _any(self, mask: str) -> str:
        return self.code.put(f"icmp ne i{self.width} {self._word(mask)}, 0")

    def _compare_with_linear(self, op: str, a: Value, b: Value) -> str | None:
        """Return the mask of a comparison between a linear and a uniform u32; None for other comparisons."""
        if op not in _BEYOND or a.dtype is not DType.U32 or Shape.LINEAR not in (a.shape, b.shape):
            return None
        if b.shape == Shape.LINEAR:
            op, a, b = _SWAPPED[op], b, a
        if b.shape is not Shape.UNIFORM:
            return None
        code, (beyond, after) = self.code, _BEYOND[op]
        start, partial, end = (code.label(hint) for hint in ("asked", "some", "end"))
        code.fall_through(start)
        first, limit = (code.put(f"zext i32 {value.text} to i64") for value in (a, b))
        before = code.put(f"sub i64 {limit if after else code.put(f'add i64 {limit}, -1')}, {first}")
        # Usually all lanes are beyond the limit or none is, and then a branch is cheaper than computing the word.
        code.branch(code.put(f"icmp slt i64 {before}, 0"), end, partial, likely=True)
        code.begin(partial)
        shift = code.intrinsic("umin", "i64", [("i64", before), ("i64", "63")], ["i64"])
        word = code.put(f"shl i64 -2, {shift}")
        word = word if self.width == 64 else code.put(f"trunc i64 {word} to i{self.width}")
        code.fall_through(end)
        word = code.put(f"phi i{self.width} [ -1, %{start} ], [ {word}, %{partial} ]")
        return self._as_mask(word if beyond else code.put(f"xor i{self.width} {word}, -1"))

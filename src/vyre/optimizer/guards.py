"""Guard analysis: decide conditions by the conditions that dominate them.

Branches, loop bounds, ``while`` conditions, early exits, selects and the left operands of ``&`` and ``|`` are guards:
they often imply what the code they dominate tests. Where the facts at a point decide a comparison, a minimum or a
remainder, it is replaced by a literal or an operand, and the kernels' rules simplify what is around it. The
program does the same on every input: ``vyre.analyze.ranges`` assumes nothing that wrapping, another assignment or
another invocation may change.

Atomics and subgroup exchanges run whether or not a select chooses their result. So expressions that contain them use
no facts from the selects in them and are never replaced.
"""

from __future__ import annotations

from operator import is_
from typing import Final

from vyre.analyze.ranges import RangeWalk, is_walkable
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.semantics.types import DType

GUARDS: Final = (n.If, n.Loop, n.While, n.Select)
_EFFECTS: Final = frozenset({n.Atomic, *n.SUBGROUP_EXCHANGES})
_DECIDABLE: Final = frozenset({n.Var, n.BinOp, n.UnOp, n.Select, n.Cast})
_REDUCED: Final = frozenset({"min", "max", "mod", "div", "and"})


def decide_guarded(program: Program) -> tuple[Program, int]:
    """Return an equivalent program, and how many expressions were decided by dominating conditions."""
    if not program.stats().has(*GUARDS) or not is_walkable(program):
        return program, 0
    decider = _Decider(program)
    decider.walk()
    if not decider.decided:
        return program, 0
    roots = iter(decider.roots)

    def replaced(statement: n.Stmt) -> n.Stmt:
        old = walk.operands(statement)
        new = tuple(next(roots) for _ in old)
        return statement if all(a is b for a, b in zip(old, new, strict=True)) else walk.with_operands(statement, new)

    return program.with_entry(walk.rewrite(program.entry, on_enter=replaced)), decider.decided


class _Decider(RangeWalk):
    """A walk that rebuilds the expressions; ``roots`` are the rebuilt ones of all statements in canonical order."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.roots: list[n.Expr] = []
        self.decided = 0

    def evaluate(self, root: n.Expr) -> int:
        getters = walk.OPERANDS
        order = walk.postorder(root) if getters[type(root)] else [root]
        kinds = set(map(type, order))
        is_pure = kinds.isdisjoint(_EFFECTS)
        contexts = _contexts(order) if is_pure and any(map(_is_branching, order)) else _NO_CONTEXTS
        numbers: list[int] = []
        made: list[n.Expr] = []
        opened: list[int] = []
        for place, node in enumerate(order):
            for is_closing, condition, holds in contexts.get(place, ()) if contexts else ():
                if is_closing:
                    self.forget(opened.pop())
                if condition is not None:
                    opened.append(self.now())
                    number = numbers[-1 - condition]
                    if self.types[number] is DType.BOOL:
                        self.assume(number, holds)
            get = getters[type(node)]
            given: list[int] = []
            if get is not None:
                old = get(node)
                first = len(numbers) - len(old)
                given, new = numbers[first:], tuple(made[first:])
                del numbers[first:], made[first:]
                if not all(map(is_, old, new)):
                    node = walk.with_operands(node, new)
            number = self.expression(node, given)
            numbers.append(number)
            found = self._decided(node, number, given) if is_pure and type(node) in _DECIDABLE else None
            if found is not None:
                self.decided += 1
            made.append(node if found is None else found)
        self.roots.append(made[0])
        return numbers[0]

    def _decided(self, node: n.Expr, number: int, given: list[int]) -> n.Expr | None:
        """Return the literal or the operand that replaces a node, if any."""
        dtype = self.types[number]
        if dtype is DType.BOOL:
            # The kernels evaluate operations on literals.
            if given and all(map(self.is_literal, given)):
                return None
            self.derive_again(number)
            return self._literal(number)
        if not dtype.is_integer:
            return None
        match node:
            case n.Var():
                return None if self.is_literal(number) else self._literal(number)
            case n.BinOp(op, left, right) if op in _REDUCED and not all(map(self.is_literal, given)):
                return self._reduced(op, dtype, given, left, right)
        return None

    def _literal(self, number: int) -> n.Expr | None:
        known, dtype = self.known(number), self.types[number]
        return n.Lit(known.low & (1 << dtype.bits) - 1, dtype) if known.is_single else None

    def _reduced(self, op: str, dtype: DType, given: list[int], left: n.Expr, right: n.Expr) -> n.Expr | None:
        """Return the operand that equals a minimum, a maximum, a remainder or a mask, or zero for a quotient."""
        a, b = given
        self.derive_again(a)
        self.derive_again(b)
        if op in ("min", "max"):
            least, most = (left, right) if self.is_at_most(a, b) else (right, left)
            if least is right and not self.is_at_most(b, a):
                return None
            return least if op == "min" else most
        if self.known(a).low < 0:
            return None
        if op == "and":
            mask = self.known(b)
            covers = mask.is_single and mask.low & (mask.low + 1) == 0 and self.known(a).high <= mask.low
            return left if covers else None
        if not self.is_less(a, b):
            return None
        return left if op == "mod" else n.Lit(0, dtype)


def _is_branching(node: n.Expr) -> bool:
    """Whether one operand is a guard of another."""
    return type(node) is n.Select or (type(node) is n.BinOp and node.op in ("and", "or"))


# Whether to close the innermost context; the operand, counted from the last, whose value opens another context (None:
# no operand); and the value it has there.
_Change = tuple[bool, int | None, bool]
_NO_CONTEXTS: Final[dict[int, list[_Change]]] = {}


def _contexts(order: list[n.Expr]) -> dict[int, list[_Change]]:
    """Return where contexts open and close in an expression, by position in order of evaluation."""
    changes: dict[int, list[_Change]] = {}
    sizes: list[int] = []
    for place, node in enumerate(order):
        first = len(sizes) - len(walk.operands(node))
        inner = sizes[first:]
        del sizes[first:]
        sizes.append(1 + sum(inner))
        match node:
            case n.Select():
                otherwise = place - inner[2]
                changes.setdefault(otherwise - inner[1], []).append((False, 0, True))
                changes.setdefault(otherwise, []).append((True, 1, False))
                changes.setdefault(place, []).append((True, None, False))
            case n.BinOp("and" | "or" as op):
                changes.setdefault(place - inner[1], []).append((False, 0, op == "and"))
                changes.setdefault(place, []).append((True, None, False))
    return changes

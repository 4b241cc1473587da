"""How does a failure become small enough to read? By trying every smaller case that is still legal and still fails.

A step is taken only to a case that is smaller by ``size_of``, that the checker accepts and that is as deterministic
as the one it came from; so shrinking ends, and what it ends with fails for the same kind of reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import Any

import msgspec
import numpy as np

from vyre.analyze.types import type_of, variable_types
from vyre.checker import check
from vyre.conform.case import Case, run_on_reference
from vyre.conform.directives import write_run
from vyre.errors import VyreError
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.nodes import Expr, Stmt
from vyre.ir.program import Program
from vyre.reference import REVERSED, Result
from vyre.semantics.types import DType

Size = tuple[int, ...]


def shrink(case: Case, still_fails: Callable[[Case], bool], budget: int = 2_000) -> Case:
    """The smallest case found that ``still_fails``, which is asked at most ``budget`` times."""
    check(case.program).raise_if_invalid()
    result = _run_without_races(case)
    _expect_same_reversed(case, result)
    search = _Search(msgspec.structs.replace(case, fuel=min(case.fuel, 1_000 + 4 * result.steps)), still_fails, budget)
    while search.budget and sum(search.exhaust(smaller) for smaller in _PASSES):
        pass
    return msgspec.structs.replace(search.best, fuel=case.fuel)


class _Search(msgspec.Struct):
    """The best case so far, and how many more may be tried."""

    best: Case
    still_fails: Callable[[Case], bool]
    budget: int

    def exhaust(self, smaller: Callable[[Case, int], Iterable[Case] | None]) -> bool:
        """Tries the candidates at each position; where one is taken, the same position again."""
        progress = False
        position = 0
        while self.budget and (candidates := smaller(self.best, position)) is not None:
            if any(self.take(candidate) for candidate in candidates):
                progress = True
            else:
                position += 1
        return progress

    def take(self, candidate: Case) -> bool:
        if self.budget == 0 or size_of(candidate) >= size_of(self.best) or not check(candidate.program).ok:
            return False
        try:
            # In this order because most candidates do not fail any more, and one run tells whether they end.
            result = _run_without_races(candidate)
            self.budget -= 1
            if not self.still_fails(candidate):
                return False
            _expect_same_reversed(candidate, result)
        except VyreError:
            return False
        self.best = candidate
        return True


def _run_without_races(case: Case) -> Result:
    """What the case gives; an error if it does not end, or races."""
    result = run_on_reference(case, races=True, checked=True)
    if result.races:
        raise _NOT_DETERMINISTIC
    return result


def _expect_same_reversed(case: Case, result: Result) -> None:
    other = run_on_reference(case, schedule=REVERSED, checked=True)
    if any(data.tobytes() != other.outputs[name].tobytes() for name, data in result.outputs.items()):
        raise _NOT_DETERMINISTIC


_NOT_DETERMINISTIC = VyreError("not-deterministic", "the case depends on its schedule.", "shrink a deterministic case.")


def size_of(case: Case) -> Size:
    """What shrinking makes less, the most important first."""
    program = case.program
    stats = program.stats()
    literals = [e for e in walk.expressions(program.entry) if isinstance(e, n.Lit)]
    x, y, z = program.workgroup_size
    grid = case.grid or (1, 1, 1)
    return (
        stats.statements,
        stats.expressions,
        stats.expressions - len(literals),
        len(program.buffers),
        x * y * z * grid[0] * grid[1] * grid[2] + (case.elements or 0),
        sum(decl.count for decl in program.buffers) + sum(data.size for data in case.inputs.values()),
        sum(bool(d.hints) + d.pipeline_live_out + (d.output_byte_range is not None) for d in program.buffers),
        sum(lit.bits > 1 for lit in literals) + sum(lit.bits > 0 for lit in literals),
        sum(int(np.count_nonzero(data)) for data in case.inputs.values()),
    )


def _with_program(case: Case, program: Program) -> Case:
    return msgspec.structs.replace(case, program=program)


def _edited(case: Case, edit: Callable[[int, Stmt], Iterable[Stmt]]) -> Case:
    """The case with each statement replaced by what ``edit`` answers for its number (inner ones come first)."""
    numbers = count()
    entry = walk.rewrite(case.program.entry, on_statement=lambda statement: edit(next(numbers), statement))
    return _with_program(case, case.program.with_entry(entry))


def _chunks(total: int) -> Iterator[tuple[int, int]]:
    """Ranges of positions that overlap, the longest and the last first."""
    length = total
    while length:
        for start in range(total - length, -1, -max(1, length // 2)):
            yield start, start + length
        length //= 2


def _without_statements(case: Case, position: int) -> list[Case] | None:
    chunk = next(islice(_chunks(case.program.stats().statements), position, None), None)
    if chunk is None:
        return None
    start, stop = chunk
    return [_edited(case, lambda number, statement: () if start <= number < stop else (statement,))]


def _unwrapped(case: Case, position: int) -> list[Case] | None:
    """One statement, the outermost first, replaced by what is inside it."""
    found: list[Stmt] = []

    def note(_: int, statement: Stmt) -> n.Body:
        found.append(statement)
        return (statement,)

    _edited(case, note)
    if position >= len(found):
        return None
    target = len(found) - 1 - position

    def put(replacement: n.Body) -> Case:
        return _edited(case, lambda number, statement: replacement if number == target else (statement,))

    return [put(replacement) for replacement in _replacements(found[target])]


def _replacements(statement: Stmt) -> list[n.Body]:
    """Simpler statements that may stand in for one."""
    match statement:
        case n.If(_, then, otherwise):
            plain = msgspec.structs.replace(statement, otherwise=())
            return [then, otherwise, (n.Block(then),), (n.Block(otherwise),), (plain,)]
        case n.Loop(var, start, _, body):
            return [body, (n.Let(var, start), *body), (n.Block((n.Let(var, start), *body)),)]
        case n.While(_, body) | n.Block(body) | n.Region(_, _, body):
            return [body, (n.Block(body),)]
    return []


def _simpler_expressions(case: Case, position: int) -> list[Case] | None:
    """One expression node, the outermost first, replaced by a constant, a part of half its size, or an operand."""
    program = case.program
    total = program.stats().expressions
    if position >= total:
        return None
    target = total - 1 - position
    node, dtype = _typed_node(program, target)
    inner = walk.postorder(node)
    choices: list[Expr] = [n.Lit(0, dtype), n.lit(1, dtype)]
    choices += [inner[len(inner) // 2], inner[len(inner) * 3 // 4]] if len(inner) > 4 else []
    choices += walk.operands(node)
    return [_with_program(case, _with_expression(program, target, choice)) for choice in choices]


def _typed_node(program: Program, target: int) -> tuple[Expr, DType]:
    """The expression node of that number in canonical order, and its type."""
    declared = iter(variable_types(program))
    variables: dict[str, DType] = {}
    first = 0
    for statement in walk.statements(program.entry):
        for root in walk.operands(statement):
            nodes = walk.postorder(root)
            if target < first + len(nodes):
                node = nodes[target - first]
                return node, type_of(node, variables, program.buffers_by_name)
            first += len(nodes)
        if isinstance(statement, (n.Let, n.Loop)):
            name = statement.name if isinstance(statement, n.Let) else statement.var
            variables[name] = next(declared)
    raise IndexError(f"the program has no expression {target}")


def _with_expression(program: Program, target: int, replacement: Expr) -> Program:
    numbers = count()
    return program.with_entry(
        walk.rewrite(program.entry, on_expression=lambda e: replacement if next(numbers) == target else e)
    )


def _smaller_launch(case: Case, position: int) -> list[Case] | None:
    if position >= 3:
        return None
    sizes = case.program.workgroup_size
    made = [
        _with_program(case, case.program.with_workgroup_size(_replaced(sizes, position, smaller)))
        for smaller in _less_than(sizes[position])
    ]
    if case.grid is not None:
        made += [
            msgspec.structs.replace(case, grid=_replaced(case.grid, position, smaller))
            for smaller in _less_than(case.grid[position])
        ]
    if case.elements is not None and position == 0:
        made += [msgspec.structs.replace(case, elements=smaller) for smaller in _less_than(case.elements)]
    return made


def _less_than(number: int) -> list[int]:
    return [smaller for smaller in dict.fromkeys((1, number // 2, number - 1)) if 0 < smaller < number]


def _replaced(axes: tuple[int, int, int], position: int, value: int) -> tuple[int, int, int]:
    x, y, z = (value if axis == position else old for axis, old in enumerate(axes))
    return x, y, z


def _simpler_buffers(case: Case, position: int) -> list[Case] | None:
    buffers = case.program.buffers
    if position >= len(buffers):
        return None
    decl = buffers[position]
    without = buffers[:position] + buffers[position + 1 :]
    inputs = {name: data for name, data in case.inputs.items() if name != decl.name}
    made = [msgspec.structs.replace(case, program=case.program.with_buffers(without), inputs=inputs)]
    plain = msgspec.structs.replace(decl, hints=(), pipeline_live_out=False, output_byte_range=None)
    if plain != decl and plain.role is decl.role:
        made.append(_with_buffer(case, position, plain))
    data = case.inputs.get(decl.name)
    for smaller in _less_than(decl.count if data is None else data.size):
        shorter = decl.with_count(smaller) if decl.count else decl
        made.append(_with_buffer(case, position, shorter, None if data is None else data[:smaller]))
    if data is not None and data.size:
        half = data.size // 2
        for kept in (slice(0, 0), slice(0, half), slice(half, None)):
            zeroed = np.zeros_like(data)
            zeroed[kept] = data[kept]
            made.append(_with_buffer(case, position, decl, zeroed))
    return made


def _with_buffer(case: Case, position: int, decl: BufferDecl, data: np.ndarray[Any, Any] | None = None) -> Case:
    buffers = (*case.program.buffers[:position], decl, *case.program.buffers[position + 1 :])
    inputs = dict(case.inputs) if data is None else {**case.inputs, decl.name: data}
    return msgspec.structs.replace(case, program=case.program.with_buffers(buffers), inputs=inputs)


_PASSES = (_without_statements, _smaller_launch, _unwrapped, _simpler_expressions, _simpler_buffers)


def reproducer(case: Case) -> str:
    """A ``.vyre`` file that runs the case and expects what the reference gives."""
    result = run_on_reference(case)
    outputs = {decl.name: _ranged(decl, result.outputs[decl.name]) for decl in case.program.output_buffers()}
    return f"{write_run(case, outputs)}\n{case.program}\n"


def _ranged(decl: BufferDecl, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the host sees of an output, if that is whole elements."""
    if decl.output_byte_range is None:
        return data
    start, stop = decl.output_byte_range
    return np.frombuffer(data.tobytes()[start:stop], decl.dtype.storage)

"""Random control flow, compared with the plainest evaluator there can be: recursion and Python's own exceptions."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_support import out, output, program

from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.reference import IN_ORDER, seeded

MASK = 2**32 - 1
SLOTS = 8


class Broken(Exception):
    pass


class Continued(Exception):
    pass


class Returned(Exception):
    pass


def value_of(expr: n.Expr, names: dict[str, int], memory: list[int]) -> Any:
    match expr:
        case n.Lit():
            return expr.value
        case n.Var():
            return names[expr.name]
        case n.Load():
            at = value_of(expr.index, names, memory)
            return memory[at] if at < SLOTS else 0
        case n.BinOp():
            left, right = value_of(expr.left, names, memory), value_of(expr.right, names, memory)
            results = {"add": left + right & MASK, "xor": left ^ right, "mul": left * right & MASK, "lt": left < right}
            return results[expr.op]
    raise TypeError(expr)


def execute(body: n.Body, names: dict[str, int], memory: list[int]) -> None:
    """Runs a list in a scope of its own: what it declares is forgotten, what it assigns is kept."""
    declared = [s.name for s in body if isinstance(s, n.Let)]
    try:
        for statement in body:
            execute_one(statement, names, memory)
    finally:
        for name in declared:
            names.pop(name, None)


def execute_one(statement: n.Stmt, names: dict[str, int], memory: list[int]) -> None:
    match statement:
        case n.Let() | n.Assign():
            names[statement.name] = value_of(statement.value, names, memory)
        case n.Store():
            at, value = (value_of(part, names, memory) for part in (statement.index, statement.value))
            if at < SLOTS:
                memory[at] = value
        case n.If():
            chosen = statement.then if value_of(statement.condition, names, memory) else statement.otherwise
            execute(chosen, names, memory)
        case n.Loop():
            for at in range(value_of(statement.start, names, memory), value_of(statement.stop, names, memory)):
                names[statement.var] = at
                try:
                    execute(statement.body, names, memory)
                except Continued:
                    continue
                except Broken:
                    break
            names.pop(statement.var, None)
        case n.While():
            while value_of(statement.condition, names, memory):
                try:
                    execute(statement.body, names, memory)
                except Continued:
                    continue
                except Broken:
                    break
        case n.Block():
            execute(statement.body, names, memory)
        case n.Break():
            raise Broken
        case n.Continue():
            raise Continued
        case n.Return():
            raise Returned


@st.composite
def expressions(draw: st.DrawFn, names: tuple[str, ...], depth: int = 2) -> n.Expr:
    kind = draw(st.integers(0, 5 if depth else 2))
    if kind == 0:
        return n.lit(draw(st.integers(0, 9)))
    if kind <= 2:
        return n.Var(draw(st.sampled_from(names)))
    if kind == 3:
        return b.load("out", draw(expressions(names, depth - 1)))
    op = draw(st.sampled_from(["add", "xor", "mul"]))
    return n.BinOp(op, draw(expressions(names, depth - 1)), draw(expressions(names, depth - 1)))


@st.composite
def bodies(draw: st.DrawFn, names: tuple[str, ...], assignable: tuple[str, ...], depth: int, in_loop: bool) -> n.Body:
    body: list[n.Stmt] = []
    for _ in range(draw(st.integers(0, 4))):
        fresh = f"v{len(names)}"
        value = draw(expressions(names))
        condition = n.BinOp("lt", draw(expressions(names, 1)), draw(expressions(names, 1)))
        match draw(st.integers(0, 11 if depth else 3)):
            case 0:
                body.append(b.let(fresh, value))
                names, assignable = (*names, fresh), (*assignable, fresh)
            case 1:
                body.append(b.assign(draw(st.sampled_from(assignable)), value))
            case 2 | 3:
                body.append(b.store("out", draw(expressions(names, 1)), value))
            case 4 | 5:
                arms = [draw(bodies(names, assignable, depth - 1, in_loop)) for _ in range(2)]
                body.append(b.if_(condition, *arms))
            case 6:
                inner = draw(bodies((*names, fresh), assignable, depth - 1, True))
                start = draw(st.integers(0, 3))
                body.append(b.loop(fresh, start, start + draw(st.integers(0, 3)), inner))
                names = (*names, names[0])
            case 7:
                # A counter that the rest of the body cannot assign bounds the passes.
                inner = draw(bodies((*names, fresh), assignable, depth - 1, True))
                step = b.assign(fresh, b.var(fresh) + 1)
                again = b.while_(b.var(fresh) < draw(st.integers(0, 3)), [step, *inner])
                body.append(b.block(b.let(fresh, 0), again))
                names = (*names, names[0])
            case 8:
                body.append(b.block(*draw(bodies(names, assignable, depth - 1, in_loop))))
            case _:
                ways = [b.break_(), b.continue_(), b.continue_(), b.return_()] if in_loop else [b.return_()]
                body.append(b.if_(condition, [draw(st.sampled_from(ways))]))
    return tuple(body)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(bodies(("v0", "v1", "v2"), ("v0", "v1"), 3, True), st.sampled_from([IN_ORDER, seeded(1)]))
def test_compiled_control_flow_is_that_of_a_plain_evaluator(passes: n.Body, schedule: Any) -> None:
    body = (b.loop("v2", 0, 4, passes),)
    names, memory = {"v0": 3, "v1": 1}, [0] * SLOTS
    try:
        execute(body, names, memory)
        for at, name in enumerate(("v0", "v1")):
            memory[at] = names[name]
    except Returned:
        pass
    source = program(
        [out(SLOTS)], 1,
        b.let("v0", 3), b.let("v1", 1), *body, b.store("out", 0, b.var("v0")), b.store("out", 1, b.var("v1")),
    )  # fmt: skip
    assert output(source, grid=(1,), schedule=schedule) == memory

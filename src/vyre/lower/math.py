"""Expansion of math functions into their tapes, for targets that have none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from vyre.analyze.types import Typer, refuse, variable_types
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.extensions import declared_names
from vyre.ir.linearise import replace_in_statement
from vyre.ir.program import Program
from vyre.lower.fresh_names import fresh_names, with_unique_names
from vyre.semantics.math import tape
from vyre.semantics.operators import MATH_FUNCTIONS
from vyre.semantics.tapes import Step, Tape

_FUNCTIONS: Final = frozenset(MATH_FUNCTIONS)


def expand_math(program: Program) -> Program:
    """Return a legal program without calls with every math function replaced by the steps of its tape."""
    if not any(map(_is_function, walk.expressions(program.entry))):
        return program
    return _Expander(with_unique_names(program)).run()


def _is_function(node: n.Expr) -> bool:
    return type(node) is n.UnOp and node.op in _FUNCTIONS


class _Expander:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.names = fresh_names(program)
        self.typer = Typer(program.buffers, refuse)
        declared = declared_names(walk.statements(program.entry))
        self.typer.variables.update(zip(declared, variable_types(program), strict=True))

    def run(self) -> Program:
        return self.program.with_entry(walk.rewrite(self.program.entry, on_statement=self._replace_statement))

    def _replace_statement(self, statement: n.Stmt) -> Iterable[n.Stmt]:
        return replace_in_statement(statement, _is_function, self._replace, self.names.make)

    def _replace(self, node: n.Expr, operands: tuple[n.Expr, ...], prelude: list[n.Stmt]) -> n.Expr:
        assert isinstance(node, n.UnOp)  # _is_function selects only these
        for statement in prelude:
            # The argument may use variables that the prelude declares.
            if isinstance(statement, n.Let) and statement.name not in self.typer.variables:
                self.typer.variables[statement.name] = self.typer.type_of(statement.value)
        dtype = self.typer.type_of(operands[0])
        assert dtype is not None  # legal programs are typed
        return self._write_steps(tape(node.op, dtype), operands[0], prelude)

    def _write_steps(self, definition: Tape, argument: n.Expr, prelude: list[n.Stmt]) -> n.Expr:
        values: list[n.Expr] = []
        for step in definition.steps:
            match step.kind:
                case "arg":
                    values.append(argument)
                case "lit":
                    values.append(n.Lit(step.bits, step.dtype))
                case _:
                    name = self.names.make("step")
                    self.typer.variables[name] = step.dtype
                    prelude.append(n.Let(name, _expression(step, [values[at] for at in step.operands])))
                    values.append(n.Var(name))
        return values[definition.result]


def _expression(step: Step, operands: list[n.Expr]) -> n.Expr:
    match step.kind, operands:
        case "select", [condition, yes, no]:
            return n.Select(condition, yes, no)
        case "cast", [value]:
            return n.Cast(step.dtype, value)
        case "bitcast", [value]:
            return n.Bitcast(step.dtype, value)
        case _, [value]:
            return n.UnOp(step.op, value)
        case _, [left, right]:
            return n.BinOp(step.op, left, right)
    raise TypeError(f"a step of kind '{step.kind}' has {len(operands)} operands")

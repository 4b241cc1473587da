"""Backends that are wrong on purpose: one takes ``a - b`` for ``b - a``, one fails, one refuses everything."""

from __future__ import annotations

from vyre.driver.forwarding import ForwardingBackend

from vyre.backends.reference import ReferenceBackend
from vyre.driver.config import DispatchConfig
from vyre.driver.outputs import OutputBuffers
from vyre.driver.pending import Inputs
from vyre.driver.timing import TimedResult
from vyre.errors import DispatchFailed, UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir.program import Program
from vyre.ir.walk import rewrite


def miscompiled(program: Program) -> Program:
    """The program with the operands of every subtraction exchanged."""

    def mistaken(node: n.Expr) -> n.Expr:
        if isinstance(node, n.BinOp) and node.op == "sub":
            return n.BinOp("sub", node.right, node.left)
        return node

    return program.with_entry(rewrite(program.entry, on_expression=mistaken))


class Changing(ForwardingBackend):
    """Runs something else than it is asked to, on the reference."""

    version = "1"

    def __init__(self) -> None:
        super().__init__(ReferenceBackend())

    def changed(self, program: Program) -> Program:
        return program

    def dispatch(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> list[memoryview]:
        return self.dispatch_timed(program, inputs, config, into=into).outputs

    def dispatch_timed(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> TimedResult:
        return super().dispatch_timed(self.changed(program), inputs, config, into=into)


class WrongBackend(Changing):
    """Exchanges the operands of subtractions."""

    id = "wrong"

    def changed(self, program: Program) -> Program:
        return miscompiled(program)


class RefusingBackend(Changing):
    """Has nothing that any program needs."""

    id = "refusing"

    def changed(self, program: Program) -> Program:
        raise UnsupportedFeature(f"the program '{program.name}'", self.id)


class FailingBackend(Changing):
    """Fails whatever it is asked to run."""

    id = "failing"

    def changed(self, program: Program) -> Program:
        raise DispatchFailed(f"{program.name} made the fan fall off.", "put it back.")

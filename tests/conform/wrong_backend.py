"""Backends that are wrong on purpose: one takes ``a - b`` for ``b - a``, one fails, one refuses everything."""

from __future__ import annotations

from collections.abc import Callable

from vyre.backends.reference import ReferenceDevice
from vyre.driver.backend import Backend
from vyre.driver.config import DispatchConfig
from vyre.errors import DispatchFailed, UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir.program import Program
from vyre.ir.walk import rewrite

OPTIMIZER = ("need", "simplify", "live", "place", "pack", "read")


def miscompiled(program: Program) -> Program:
    """The program with the operands of every subtraction exchanged."""

    def mistaken(node: n.Expr) -> n.Expr:
        if isinstance(node, n.BinOp) and node.op == "sub":
            return n.BinOp("sub", node.right, node.left)
        return node

    return program.with_entry(rewrite(program.entry, on_expression=mistaken))


class ChangingDevice(ReferenceDevice):
    """Compiles something else than it is asked to, for the reference."""

    version = "1"

    def __init__(self, name: str, changed: Callable[[Program], Program]) -> None:
        super().__init__()
        self.id = name  # type: ignore[misc]
        self._changed = changed

    def compile(self, program: Program, *, source: Program, config: DispatchConfig) -> Program:
        # The optimizer's own programs stay right, so that what is wrong is what the programs of a trial give.
        changed = program if source.name in OPTIMIZER else self._changed(program)
        return super().compile(changed, source=source, config=config)


class WrongBackend(Backend):
    """Exchanges the operands of subtractions."""

    def __init__(self) -> None:
        super().__init__(ChangingDevice("wrong", miscompiled))


class RefusingBackend(Backend):
    """Has nothing that any program needs."""

    def __init__(self) -> None:
        super().__init__(ChangingDevice("refusing", self._refuse))

    def _refuse(self, program: Program) -> Program:
        raise UnsupportedFeature(f"the program '{program.name}'", self.id)


class FailingBackend(Backend):
    """Fails whatever it is asked to run."""

    def __init__(self) -> None:
        super().__init__(ChangingDevice("failing", self._fail))

    def _fail(self, program: Program) -> Program:
        raise DispatchFailed(f"{program.name} made the fan fall off.", "put it back.")

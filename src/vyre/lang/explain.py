"""Where in a kernel's file is what made a run of it fail? A note on the error shows the lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from vyre.checker.capabilities import Capabilities, missing_capabilities
from vyre.checker.diagnostics import Report
from vyre.driver.backend import Backend
from vyre.errors import (
    FuelExhausted,
    GridResidencyExceeded,
    KernelCompileFailed,
    Timeout,
    TrapRaised,
    UnsupportedFeature,
    VyreError,
)
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Role
from vyre.ir.extensions import inline_calls
from vyre.ir.places import Place
from vyre.ir.program import Program
from vyre.ir.render import render

_MOST: Final = 3
_IS_IN: Final[dict[str, Callable[[n.Stmt], bool]]] = {
    "transfer": lambda one: isinstance(one, (n.AsyncLoad, n.AsyncStore)),
    "trap": lambda one: isinstance(one, (n.Trap, n.Resume)),
    "resume": lambda one: isinstance(one, (n.Trap, n.Resume)),
    "collective": lambda one: isinstance(one, n.COLLECTIVES),
    "grid barrier": lambda one: isinstance(one, n.Barrier) and one.order is n.MemoryOrder.GRID_SYNC,
}


def explain(error: VyreError, program: Program, backend: Backend) -> None:
    """Adds to an error where in the kernel's source stands what it is about."""
    program = inline_calls(program)
    match error:
        case UnsupportedFeature():
            note = _missing(error, program, backend)
        case TrapRaised(tag=tag):
            traps = _statements(program, lambda one: isinstance(one, n.Trap) and one.tag == tag)
            note = _shown(program, traps, error, "the host is asked here")
        case Timeout() | FuelExhausted():
            loops = [*_statements(program, lambda one: isinstance(one, n.While))]
            loops = loops or [*_statements(program, lambda one: isinstance(one, n.Loop))]
            note = _shown(program, iter(loops), error, "this may be what takes so long")
        case KernelCompileFailed() | GridResidencyExceeded():
            note = _shown(program, iter(()), error, "")
        case _:
            return
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _missing(error: UnsupportedFeature, program: Program, backend: Backend) -> str:
    profile = backend.accepts
    has = Capabilities(profile.dtypes, profile.subgroup_ops, profile.atomics64)
    lacking = tuple(islice(missing_capabilities(program, has), _MOST))
    if lacking:
        return Report(lacking).render(program)
    places: Iterator[Place] = iter(())
    if "workgroup memory" in error.name:
        shared = enumerate(program.buffers)
        places = (Place(buffer=number) for number, decl in shared if decl.role is Role.SHARED)
    for word, is_in in _IS_IN.items():
        if word in error.name:
            places = _statements(program, is_in)
            break
    return _shown(program, places, error, f"'{error.backend}' lacks what stands here")


def _statements(program: Program, is_wanted: Callable[[n.Stmt], bool]) -> Iterator[Place]:
    numbered = enumerate(walk.statements(program.entry))
    return (Place(statement=number) for number, one in numbered if is_wanted(one))


def _shown(program: Program, places: Iterator[Place], error: VyreError, message: str) -> str:
    """The first places, or the kernel's own line."""
    source = program.source
    assert source is not None  # every translation has one
    found = list(islice(places, _MOST))
    if not found:
        found, message = [Place()], f"in kernel '{program.name}'"
    spans = dict.fromkeys(source.span(place) for place in found)
    return "\n\n".join(render(source, span, "note", error.code, message, error.fix) for span in spans)

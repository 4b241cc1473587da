"""Are a program's header and its buffers legal?"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from vyre.checker.diagnostics import Diagnostic, diagnostic
from vyre.ir.buffers import BufferDecl, Role
from vyre.ir.limits import MAX_BUFFERS, MAX_ELEMENTS, MAX_SUBGROUP_SIZE, MAX_WORKGROUP_INVOCATIONS
from vyre.ir.names import is_identifier
from vyre.ir.places import Place
from vyre.ir.program import Program

_MAX_BINDING = (1 << 32) - 1


def check_declarations(program: Program) -> Iterator[Diagnostic]:
    """What is wrong before the first statement, in order."""
    here = Place()
    if not is_identifier(program.name):
        yield diagnostic("V055", here, f"'{program.name}' cannot be the name of a program.")
    sizes = program.workgroup_size
    if min(sizes) < 1 or prod(sizes) > MAX_WORKGROUP_INVOCATIONS:
        size = " x ".join(map(str, sizes))
        yield diagnostic("V058", here, f"the workgroup size is {size}.")
    lanes = program.subgroup_size
    if not 1 <= lanes <= MAX_SUBGROUP_SIZE or lanes & (lanes - 1):
        yield diagnostic("V082", here, f"the subgroup size is {lanes}.")
    if len(program.buffers) > MAX_BUFFERS:
        yield diagnostic("V088", here, f"the program has {len(program.buffers):,} buffers.")
    names: dict[str, int] = {}
    bindings: dict[int, int] = {}
    for number, decl in enumerate(program.buffers):
        first = names.setdefault(decl.name, number)
        if first != number:
            note = (Place(buffer=first), "the first buffer of that name")
            yield diagnostic("V053", Place(buffer=number), f"another buffer is named '{decl.name}'.", notes=(note,))
        if decl.role is not Role.SHARED:
            first = bindings.setdefault(decl.binding, number)
            if first != number:
                note = (Place(buffer=first), "the first buffer with that binding")
                yield diagnostic(
                    "V054", Place(buffer=number), f"another buffer has the binding {decl.binding}.", notes=(note,)
                )
        yield from _check_buffer(decl, Place(buffer=number))


def _check_buffer(decl: BufferDecl, place: Place) -> Iterator[Diagnostic]:
    if not is_identifier(decl.name):
        yield diagnostic("V055", place, f"'{decl.name}' cannot be the name of a buffer.")
    if not 0 <= decl.binding <= _MAX_BINDING:
        yield diagnostic("V080", place, f"the binding of '{decl.name}' is {decl.binding}.")
    if not 0 <= decl.count <= MAX_ELEMENTS:
        yield diagnostic("V079", place, f"the count of '{decl.name}' is {decl.count}.")
    if decl.role is Role.SHARED and decl.count == 0:
        yield diagnostic("V077", place, f"workgroup memory '{decl.name}' has no count.")
    if (decl.is_output or decl.pipeline_live_out) and not decl.role.gives_output:
        mark = "output" if decl.is_output else "live_out"
        yield diagnostic("V094", place, f"'{decl.name}' is {decl.access.value} and marked {mark}.")
    if decl.output_byte_range is not None:
        start, stop = decl.output_byte_range
        size = decl.count * decl.dtype.bytes
        if not decl.role.gives_output:
            yield diagnostic("V078", place, f"'{decl.name}' gives no output and has a byte range.")
        elif not 0 <= start <= stop:
            yield diagnostic("V078", place, f"the byte range {start}..{stop} of '{decl.name}' is not a range.")
        elif decl.count and stop > size:
            yield diagnostic("V078", place, f"the byte range {start}..{stop} ends after '{decl.name}' ({size} bytes).")

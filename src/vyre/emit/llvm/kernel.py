"""LLVM IR kernels from programs: a body for one vector of lanes, and the shell around it.

The body (``statements``) is the program for the invocations of one vector, or for one invocation. The shell loads the
arguments from a block, allocates scratch memory, and loops over a range of the grid: over rows of invocations if
nothing ties those of a workgroup together ("flat"), otherwise over workgroups. A workgroup with barriers runs the
segments into which ``vyre.lower`` cuts it; the state between them is stored in slots in scratch memory.
"""

from __future__ import annotations

from typing import Final

import msgspec

from vyre.emit.llvm import memory as m
from vyre.emit.llvm.privatization import merge_copies
from vyre.emit.llvm.row_shell import RowShell
from vyre.emit.llvm.shell import CHECKED
from vyre.emit.llvm.workgroup_shell import WorkgroupShell
from vyre.emit.prepare import prepare
from vyre.errors import UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Role
from vyre.ir.program import Program
from vyre.lower.transfers import Capture

KERNEL: Final = "kernel"
_MAX_WORK: Final = 1 << 24


class Kernel(msgspec.Struct, frozen=True):
    """A kernel's text and how to call it: ``kernel(block, first, last)`` for invocations or workgroups.

    Invocations are numbered row by row: first along ``axis``, on which the lanes lie. The block consists of 64-bit
    words: the address of the stop word, the grid, and the address and length of each of ``buffers``. ``captures`` are
    the buffers that the launch provides. ``is_unbounded``: loops may let an invocation do any amount of work.
    ``is_irregular``: lanes leave loops at different times, and access memory by gathers or scatters. ``work`` estimates
    the operations of an invocation; of loops with an unknown number of iterations, one iteration. ``slowdown``
    estimates how much longer an iteration of a loop takes for a vector than for one invocation.
    """

    text: str
    buffers: tuple[str, ...]
    captures: tuple[Capture, ...]
    is_flat: bool
    axis: int
    width: int
    scratch_bytes: int
    is_unbounded: bool
    is_irregular: bool
    work: int
    slowdown: float
    notes: dict[str, int]


def emit_kernel(program: Program, width: int, *, flat: bool, axis: int = 0, check_elimination: bool = True) -> Kernel:
    """Emit a legal program without grid-wide cuts, for vectors of ``width`` lanes.

    With a width of 1 the code is scalar: one invocation after another, without masks. ``flat`` is for programs that are
    workgroup-independent; then the lanes lie along ``axis``, which is x unless the program may be reordered. Without
    ``check_elimination`` every access is checked, even if it is proved to be in bounds.
    """
    if width == 1 and program.stats().has_subgroup_ops:
        raise UnsupportedFeature(
            "subgroup operations in scalar code", "vyre.emit.llvm", "choose vectors of more than one lane."
        )
    prepared = prepare(program)
    shell = _Shell(prepared, width, flat, axis, check_elimination)
    if not shell.required:
        return shell.write()
    checked = _Shell(prepared, width, flat, axis, check_elimination, sized=False)
    return shell.write(checked.write_function(CHECKED), checked)


class _Shell(RowShell, WorkgroupShell):
    """Writer of a whole kernel."""

    def write(self, checked: str = "", other: _Shell | None = None) -> Kernel:
        """Write the kernel; launches that do not fulfil what is required run the function of another shell."""
        function = self.write_function(KERNEL)
        module, body = self.code.module, self.body
        if other is not None:
            module.declarations |= other.code.module.declarations
            module.helpers |= other.code.module.helpers
            body.notes["size checks"] = len(self.required)
        names = tuple(decl.name for decl in self.program.buffers if decl.role is not Role.SHARED)
        head = [m.ZEROS_DEFINITION, 'attributes #0 = { nounwind "no-trapping-math"="false" }']
        text = "\n".join(head) + "\n" + module.text([checked, function] if checked else [function])
        return Kernel(
            text,
            names,
            self.captures,
            self.flat,
            self.axis,
            self.width or 1,
            body.scratch,
            _is_unbounded(self.program),
            self._is_irregular(),
            _work_of(self.program.entry),
            self._slowdown(),
            body.notes,
        )

    def write_function(self, name: str) -> str:
        body, code = self.body, self.code
        self._place_buffers()
        before = body.scratch
        self._place_slots()
        body.notes |= {"private buffers": len(self.private), "segments": len(self.segments)}
        body.notes["state bytes"] = body.scratch - before
        if self.flat:
            self._loop_over_invocations()
        else:
            self._loop_over_workgroups()
        loops, code.lines = code.lines, []
        self._prologue()
        linkage = "" if name == KERNEL else "internal "
        lines = [f"define {linkage}void @{name}(ptr noalias %block, i64 %first, i64 %last) #0 {{", "entry:"]
        lines += [*code.allocations, *code.lines, *loops]
        code.lines = []
        code.begin("finish")
        for buffer, op in self.private.items():
            merge_copies(code, op, body.places[buffer], self.merged[buffer])
        code.fall_through("abort")
        if body.scratch:
            code.do("call void @free(ptr %scratch)")
        code.do("ret void")
        return "\n".join([*lines, *code.lines, "}"])

    def _slowdown(self) -> float:
        together, each = self.body.loop_accesses
        return 1 + self.body.width * each / max(1, each + together)

    def _is_irregular(self) -> bool:
        notes = self.body.notes
        return notes["divergent loops"] > 0 and notes["gathers"] + notes["scatters"] > 0


def _is_unbounded(program: Program) -> bool:
    """Whether there is a loop whose number of iterations is not a compile-time constant."""
    return any(
        isinstance(s, n.While)
        or (isinstance(s, n.Loop) and not all(isinstance(bound, n.Lit) for bound in (s.start, s.stop)))
        for s in walk.statements(program.entry)
    )


def _work_of(body: n.Body) -> int:
    work = 0
    for statement in body:
        here = sum(len(walk.postorder(root)) for root in walk.operands(statement))
        inside = sum(map(_work_of, walk.bodies(statement)))
        if isinstance(statement, n.Loop) and isinstance(statement.start, n.Lit) and isinstance(statement.stop, n.Lit):
            inside *= max(0, statement.stop.bits - statement.start.bits)
        work += here + inside
    return min(work, _MAX_WORK)

"""WGSL modules: the declarations, functions and entry point around the statements of a kernel.

Workgroups are declared with one axis and a multiple of the vector width: Mesa's CPU driver runs vectors along the first
axis, and the missing lanes of a partial vector keep running in loops. A workgroup may therefore have more lanes on the
device than the program has invocations; the surplus lanes are inactive.
"""

from __future__ import annotations

import math
from typing import Final

from vyre.emit.wgsl import library
from vyre.emit.wgsl import memory as m
from vyre.emit.wgsl.expressions import HIDDEN_ZERO, OVERRUN, Expressions
from vyre.emit.wgsl.text import Lines
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl, Role
from vyre.ir.program import Program
from vyre.lower.transfers import Capture

ENTRY: Final = "main"
FAULTS: Final = "var<storage, read_write> faults: array<atomic<u32>>;"
_WIDEST_VECTOR: Final = 16
# Called after every loop with whether its condition still holds, that is, whether the device cut the loop short.
_OVERRUN_NOTED: Final = """fn overrun(going: bool) {
  if (going) {
    atomicStore(&faults[0], 1u);
  }
}"""
_OVERRUN_IMPOSSIBLE: Final = """fn overrun(going: bool) {
}"""


class ModuleWriter(Expressions):
    """Builder of a module. ``lanes`` is the size of a workgroup on the device, ``size`` its size in the program.

    ``in_lockstep``: surplus lanes take part in every barrier; otherwise they return at once. ``native``: the device's
    subgroups match the program's, and all their lanes exist.
    """

    def __init__(
        self, program: Program, captures: tuple[Capture, ...], folded: bool, watches_loops: bool, native: bool
    ) -> None:
        super().__init__()
        self.program = program
        self.captures = captures
        self.folded = folded
        self.watches_loops = watches_loops
        self.subgroup_size = program.subgroup_size
        self.size = math.prod(program.workgroup_size)
        self.native = native
        step = max(_WIDEST_VECTOR, program.subgroup_size) if native else _WIDEST_VECTOR
        self.lanes = -(-self.size // step) * step
        self.in_lockstep = False
        self.hoisted: list[str] = []
        self.shared_words = sum(m.shared_words(decl) for decl in program.shared_buffers())
        # By hint, the names and the declarations of workgroup arrays that the emitter adds.
        self.workgroup_arrays: dict[str, tuple[str, str]] = {}
        self.sized: list[str] = []
        for name in ("launch", "Launch", ENTRY, "faults"):
            self.names.make(name)
        self._place_buffers()

    @property
    def lane(self) -> str:
        return self.builtin("local_invocation_index")

    def host(self) -> list[m.Place]:
        """Return the host's buffers in the order of their bindings, then those that the launch provides."""
        places = [place for place in self.places.values() if place.decl.role is not Role.SHARED]
        captured = {capture.buffer for capture in self.captures}
        return sorted(places, key=lambda place: (place.decl.name in captured, place.decl.binding))

    def _shared(self) -> list[m.Place]:
        return [place for place in self.places.values() if place.decl.role is Role.SHARED]

    def _place_buffers(self) -> None:
        atomic = _atomic_buffers(self.program)
        for decl in self.program.buffers:
            # The local names in a buffer's functions must not shadow the buffer.
            name = self.names.make(f"{decl.name}_words" if decl.name in m.LOCAL_NAMES else decl.name)
            if decl.count:
                length = f"{decl.count}u"
            else:
                length = f"launch.{self.names.make(f'len_{decl.name}')}"
                self.sized.append(decl.name)
            self.places[decl.name] = m.Place(decl, name, length, decl.name in atomic)

    def workgroup_array(self, hint: str, words: int, element: str = "u32") -> str:
        """Return the name of a workgroup array that the emitter adds; the array is declared on first use."""
        found = self.workgroup_arrays.get(hint)
        if found is None:
            name = self.names.make(hint)
            found = self.workgroup_arrays[hint] = name, f"var<workgroup> {name}: array<{element}, {words}>;"
            self.shared_words += words
        return found[0]

    def text(self) -> str:
        """Return the text of the module, after its statements are written."""
        fields = ["  grid: vec3<u32>,", "  groups: u32,", "  zero: u32,"]
        fields += [f"  {self.places[name].length.removeprefix('launch.')}: u32," for name in self.sized]
        declared = ["@group(0) @binding(0) var<uniform> launch: Launch;"]
        declared += [f"{one.declaration(k)} // {_described(one.decl)}" for k, one in enumerate(self.host(), 1)]
        declared += [f"{one.declaration(0)} // {_described(one.decl)}" for one in self._shared()]
        declared += [declaration for _, declaration in self.workgroup_arrays.values()]
        functions = [text.rstrip() for text in library.needed(self.library)]
        functions += [text for _, text in self.own_functions.values()]
        written = [*functions, *self.lines.lines]
        if any(f"{OVERRUN}(" in text for text in written):
            functions.insert(0, _OVERRUN_NOTED if self.watches_loops else _OVERRUN_IMPOSSIBLE)
            if self.watches_loops:
                declared.append(f"@group(0) @binding({len(self.host()) + 1}) {FAULTS}")
        hides = any(HIDDEN_ZERO in text for text in written)
        if hides:
            declared.append(f"var<private> {HIDDEN_ZERO}: u32;")
        struct = "\n".join(["struct Launch {", *fields, "}"])
        parts = [f"// {self.program.name}", struct, "\n".join(declared), *functions, self._entry(hides)]
        return "\n\n".join(parts) + "\n"

    def _entry(self, hides: bool) -> str:
        prologue = self._clear_shared()
        if self.lanes != self.size and not self.in_lockstep:
            prologue += [f"if ({self.lane} >= {self.size}u) {{", "  return;", "}"]
        if hides:
            # Not the uniform alone: a driver may read its value and specialise for it.
            prologue.append(f"{HIDDEN_ZERO} = launch.zero & {self.builtin('workgroup_id')}.x;")
        prologue = [*self._define_ids(), *prologue]
        arguments = [f"@builtin({name}) {made}: {_builtin_type(name)}" for name, made in self.builtins.items()]
        head = f"fn {ENTRY}({', '.join(arguments)}) {{"
        if len(head) > 120:
            head = "\n".join([f"fn {ENTRY}(", *(f"  {argument}," for argument in arguments), ") {"])
        body = [f"  {line}" for line in (*prologue, *self.hoisted, *self.lines.lines)]
        return "\n".join([f"@compute @workgroup_size({self.lanes}, 1, 1)", head, *body, "}"])

    def _clear_shared(self) -> list[str]:
        """Return code that zeroes workgroup memory: not every driver does so as WGSL requires."""
        lines = Lines()
        for place in self._shared():
            words, at = m.shared_words(place.decl), self.lane
            head = f"if ({at} < {words}u)"
            if words > self.lanes:
                at = self.names.make("k")
                head = f"for (var {at} = {self.lane}; {at} < {words}u; {at} += {self.lanes}u)"
            with lines.block(head):
                lines.add(place.write(at, f"0{place.word[0]}"))
        if "votes" in self.workgroup_arrays:
            # Each vote clears the cell of the next.
            with lines.block(f"if ({self.lane} == 0u)"):
                lines.add(f"atomicStore(&{self.workgroup_array('votes', 3)}[0], 0u);")
        if lines.lines:
            lines.add("workgroupBarrier();")
        return lines.lines

    def _define_ids(self) -> list[str]:
        """Return definitions of the ids that differ from WGSL's: of a folded grid, of a reshaped workgroup."""
        x, y, z = self.program.workgroup_size
        reshaped = self.lanes != self.size or (y, z) != (1, 1)
        if not self.folded and not reshaped:
            return []
        ids = self.builtins.pop("global_invocation_id", None)
        local = self.builtins.pop("local_invocation_id", None) if reshaped else None
        lines, group = self._unfold(wanted=ids is not None) if self.folded else ([], "")
        if reshaped and (ids is not None or local is not None):
            local, lane = local or self.names.make("lid"), self.lane
            at = f"{lane}, 0u, 0u" if (y, z) == (1, 1) else f"{lane} % {x}u, ({lane} / {x}u) % {y}u, {lane} / {x * y}u"
            lines.append(f"let {local} = vec3<u32>({at});")
        if ids is not None:
            local, group = local or self.builtin("local_invocation_id"), group or self.builtin("workgroup_id")
            lines.append(f"let {ids} = {group} * vec3<u32>({x}u, {y}u, {z}u) + {local};")
        return lines

    def _unfold(self, *, wanted: bool) -> tuple[list[str], str]:
        """Return code for the workgroup's place in the unfolded grid, and the name of its id if it is used."""
        place, group, launched = self.names.make("place"), self.names.make("group"), self.builtin("num_workgroups")
        lines = [
            f"let {group} = {place}.x + {launched}.x * ({place}.y + {launched}.y * {place}.z);",
            f"if ({group} >= launch.groups) {{",
            "  return;",
            "}",
        ]
        own = self.builtins.pop("workgroup_id", None)
        if wanted or own is not None:
            own = own or self.names.make("wg")
            rows = f"{group} / launch.grid.x"
            at = f"vec3<u32>({group} % launch.grid.x, ({rows}) % launch.grid.y, ({rows}) / launch.grid.y)"
            lines.append(f"let {own} = {at};")
        self.builtins["workgroup_id"] = place
        return lines, own or ""


def _builtin_type(name: str) -> str:
    return "u32" if name == "local_invocation_index" else "vec3<u32>"


def _described(decl: BufferDecl) -> str:
    return f"{decl.dtype}[{decl.count or ''}]"


def _atomic_buffers(program: Program) -> set[str]:
    """Return the buffers whose words are atomic: changed by atomics, or written where elements share a word."""
    found: set[str] = set()
    for statement in walk.statements(program.entry):
        match statement:
            case n.Store(buffer) if program.buffer(buffer).dtype.bytes < 4:
                found.add(buffer)
            case n.CopyBytes(_, destination):
                found.add(destination)
        for root in walk.operands(statement):
            found.update(node.buffer for node in walk.postorder(root) if isinstance(node, n.Atomic))
    return found

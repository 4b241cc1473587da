"""What is left of programs when their code is made? An image: object code, and how their segments follow one another.

Whoever has an image runs its programs on resident buffers without having the programs: nothing is checked, cut or
written again. That is for programs that a process needs at once and that are long, as those of the optimizer.

Their code is for one invocation after another: it is made in less than half the time of that for vectors, and programs
that branch by what they read, and follow it, run no slower for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from vyre.backends.cpu.compile import Loaded, can_be_loaded, kernel_function, linked_object_code, machine_facts
from vyre.backends.cpu.kernels import SCALAR, CompiledKernel
from vyre.backends.cpu.launches import Sharing
from vyre.backends.cpu.object_file import packed, unpacked
from vyre.backends.cpu.tables import Address, Count, Nodes, Table, own
from vyre.driver.binding import binder_of
from vyre.driver.cache import MemoryCache, source_state
from vyre.driver.resident import ResidentBuffer, require_owned
from vyre.emit.llvm import Kernel, can_be_flat, emit_kernel
from vyre.errors import BadInputs, UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl, Role
from vyre.ir.launch import Launch
from vyre.ir.program import Program
from vyre.lower.plan import GridSyncPlan, Segment, StateBuffer, plan_grid_sync

if TYPE_CHECKING:
    from vyre.backends.cpu import CpuBackend

# Code of longer texts has to come soon, before it has to be good.
_LONG_TEXT: Final = 1 << 17
# Invocations of such programs go through many rows each: fewer are worth sharing, and fewer are taken at a time.
_SHARED: Final = (128, 16)
# Tables for steps that come again, unless they need much memory: then they also take long to run.
_MOST_TABLES: Final = 32
_MOST_STATE_KEPT: Final = 1 << 16
_SOURCES: Final = ("backends/cpu", "emit", "emit/llvm", "lower", "analyze", "ir", "semantics")

# A program, its workgroups, and for each of its host buffers which memory it is.
_Step = tuple[str, int, tuple[int, ...]]


class _Part(msgspec.Struct, frozen=True, array_like=True):
    """A segment: its function and that of what runs before it, as their names in the object code."""

    function: str
    before: str | None
    label: str
    exits: tuple[int, ...]


class _Program(msgspec.Struct, frozen=True, array_like=True):
    """A program without its statements. ``growth`` is how many words each state has for every workgroup."""

    name: str
    buffers: tuple[BufferDecl, ...]
    workgroup_size: tuple[int, int, int]
    parts: tuple[_Part, ...]
    state: tuple[StateBuffer, ...]
    growth: tuple[int, ...]
    straight: bool
    control: str

    @property
    def host(self) -> list[BufferDecl]:
        return sorted((decl for decl in self.buffers if decl.role is not Role.SHARED), key=lambda decl: decl.binding)


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    programs: tuple[_Program, ...]
    kernels: dict[str, Kernel]
    code: tuple[bytes, ...]
    notes: tuple[str, ...]


class Image:
    """Programs that are ready to run; ``headers`` are they without statements, ``notes`` what came with them."""

    def __init__(self, backend: CpuBackend, stored: _Stored) -> None:
        self._backend = backend
        self._loaded = loaded = Loaded(*stored.code)
        self._kernels = {
            name: CompiledKernel(kernel, loaded, loaded.address(name), kernel_function(loaded, name))
            for name, kernel in stored.kernels.items()
        }
        self._programs = {one.name: one for one in stored.programs}
        self._host = {one.name: one.host for one in stored.programs}
        self._tables: MemoryCache[Table] = MemoryCache(_MOST_TABLES)
        self.headers = [Program(one.name, one.buffers, one.workgroup_size) for one in stored.programs]
        self.notes = stored.notes

    def run(self, steps: Sequence[tuple[str, int, Sequence[ResidentBuffer]]]) -> None:
        """Runs programs by name, each on so many workgroups, on resident buffers in binding order."""
        backend = self._backend
        memory: list[ResidentBuffer] = []
        numbers: dict[int, int] = {}
        counts: list[int] = []
        shape: list[_Step] = []
        for name, groups, resources in steps:
            host = self._host[name]
            if len(resources) != len(host):
                raise BadInputs(
                    f"'{name}' has {len(host)} host buffers and was given {len(resources)}.",
                    "give one resident buffer for each of them, in the order of their bindings.",
                )
            for decl, resource in zip(host, resources, strict=True):
                if numbers.setdefault(id(resource), len(memory)) == len(memory):
                    memory.append(require_owned(backend, resource))
                counts.append(_count(decl, resource))
            shape.append((name, groups, tuple([numbers[id(resource)] for resource in resources])))
        key = tuple(shape)
        table = self._tables.pop(key) or self._table(key, len(memory))
        table.run(backend.pool, [resource.handle for resource in memory], 1, None, counts=counts)
        if table.state.nbytes <= _MOST_STATE_KEPT:
            self._tables.put(key, table)

    def _table(self, shape: Sequence[_Step], first_count: int) -> Table:
        """A table for steps whose memory has these numbers, and whose counts follow in their order."""
        nodes = Nodes(self._backend.kernels, Sharing(self._backend.pool.sharing.threads, *_SHARED))
        for name, groups, places in shape:
            program = self._programs[name]
            held: dict[str, tuple[Address, Count]] = {
                decl.name: (own(place), own(first_count + order))
                for order, (decl, place) in enumerate(zip(self._host[name], places, strict=True))
            }
            first_count += len(held)
            nodes.add_cut(self._plan(program, groups), held, self._kernel, (), f"'{name}'")
        return Table(nodes.all, nodes.state_bytes)

    def _kernel(self, part: Program) -> CompiledKernel:
        return self._kernels[part.name]

    def _plan(self, program: _Program, groups: int) -> GridSyncPlan:
        launch = Launch((groups, 1, 1), 0, {}, program.workgroup_size)
        state = tuple(
            msgspec.structs.replace(one, words=one.words + (groups - 1) * growth)
            for one, growth in zip(program.state, program.growth, strict=True)
        )
        segments = tuple(
            Segment(
                Program(part.function), part.label, part.exits, None if part.before is None else Program(part.before)
            )
            for part in program.parts
        )
        return GridSyncPlan(Program(program.name), launch, segments, state, program.straight, program.control, "", ())


def _count(decl: BufferDecl, resource: ResidentBuffer) -> int:
    count = decl.count or resource.byte_len // decl.dtype.bytes
    if count * decl.dtype.bytes > resource.byte_len:
        raise BadInputs(
            f"buffer '{decl.name}' needs {count * decl.dtype.bytes:,} bytes and its resident buffer has "
            f"{resource.byte_len:,}.",
            "give a resident buffer at least that long.",
            buffer=decl.name,
        )
    return count


def load_image(
    backend: CpuBackend, key: bytes, make: Callable[[], tuple[Sequence[Program], Sequence[str]]], *, optimize: bool
) -> Image:
    """The image of some programs, from the disk if it is there, else made and kept; ``make`` also gives its notes."""
    kernels, facts = backend.kernels, machine_facts()
    parts = (key, source_state(*_SOURCES), *facts, optimize)
    whole = blake2b(msgspec.msgpack.encode(parts), digest_size=32).digest()
    body = kernels.disk.get(whole)
    if body is not None:
        found = _read(body, facts)
        if found is not None:
            return Image(backend, found)
        kernels.disk.discard(whole)
    stored = _stored(*make(), optimize=optimize)
    kernels.disk.put(whole, packed(msgspec.msgpack.encode(stored), facts))
    return Image(backend, stored)


def _read(body: bytes, facts: tuple[str, ...]) -> _Stored | None:
    """The image in a file; None if it is not one for this machine whose code can be loaded."""
    content = unpacked(body, facts)
    try:
        stored = None if content is None else msgspec.msgpack.decode(content, type=_Stored)
    except msgspec.DecodeError:
        return None
    return stored if stored is not None and all(map(can_be_loaded, stored.code)) else None


def _stored(programs: Sequence[Program], notes: Sequence[str], *, optimize: bool) -> _Stored:
    kernels: dict[str, Kernel] = {}
    described: dict[str, _Program] = {}
    code: list[Future[bytes]] = []
    # LLVM works on the text of one program while that of the next, which is longer, is being written.
    with ThreadPoolExecutor(1, "vyre-image") as threads:
        for given in sorted(programs, key=lambda one: one.stats().expressions):
            texts: dict[str, str] = {}
            described[given.name] = _written(binder_of(given).program, kernels, texts)
            for is_long in (False, True):
                some = {name: text for name, text in texts.items() if (len(text) >= _LONG_TEXT) is is_long}
                if some:
                    code.append(threads.submit(linked_object_code, some, optimize=optimize and not is_long))
    in_order = tuple(described[one.name] for one in programs)
    return _Stored(in_order, kernels, tuple(one.result() for one in code), tuple(notes))


def _written(program: Program, kernels: dict[str, Kernel], texts: dict[str, str]) -> _Program:
    """A program without its statements; what they became is added to the kernels, and to the texts to be compiled."""
    if program.stats().has(n.Trap, n.AsyncLoad, n.AsyncStore) or any(
        decl.role is Role.OUTPUT for decl in program.buffers
    ):
        raise UnsupportedFeature("an image of a program with traps, transfers or fresh outputs", "cpu")

    def function(part: Program | None) -> str | None:
        if part is None:
            return None
        name = f"kernel{len(kernels)}"
        kernel = emit_kernel(part, SCALAR, flat=can_be_flat(part))
        texts[name] = kernel.text
        kernels[name] = msgspec.structs.replace(kernel, text="")
        return name

    plan, wider = (plan_grid_sync(program, _launch(program, groups), checked=True) for groups in (1, 2))
    parts = [_Part(function(one.program) or "", function(one.before), one.label, one.exits) for one in plan.segments]
    growth = tuple(two.words - one.words for one, two in zip(plan.state, wider.state, strict=True))
    return _Program(
        program.name,
        program.buffers,
        program.workgroup_size,
        tuple(parts),
        plan.state,
        growth,
        plan.straight,
        plan.control,
    )


def _launch(program: Program, groups: int) -> Launch:
    return Launch((groups, 1, 1), 0, {decl.name: decl.count for decl in program.buffers}, program.workgroup_size)

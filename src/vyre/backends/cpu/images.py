"""Images: the object code of several programs, and how their segments follow one another.

An image runs its programs on resident buffers without their statements: nothing is checked, cut or emitted again. It
serves programs that a process needs before it can run anything else, as those of the optimizer.

Their code is scalar and not optimized by LLVM: it is ready in a quarter of the time, and programs that branch by what
they read, and follow it, run no slower for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec

from vyre.analyze.workgroup_independence import is_workgroup_independent
from vyre.backends.cpu.compile import Loaded, can_be_loaded, linked_object_code, machine_facts
from vyre.backends.cpu.kernels import SCALAR, CompiledKernel, Grid
from vyre.backends.cpu.launches import Sharing
from vyre.backends.cpu.object_file import packed, unpacked
from vyre.backends.cpu.tables import Table
from vyre.driver.binding import binder_of
from vyre.driver.cache import source_state
from vyre.driver.device import UNLIMITED
from vyre.driver.memory_cache import MemoryCache
from vyre.driver.resident import ResidentBuffer, require_owned
from vyre.emit.llvm import Kernel, emit_kernel
from vyre.errors import BadInputs, UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl, Role
from vyre.ir.launch import Launch
from vyre.ir.program import Program
from vyre.lower.plan import GridSyncPlan, Segment, StateBuffer, plan_grid_sync
from vyre.lower.schedule import Part, ScheduleBuilder, host_buffers

if TYPE_CHECKING:
    from vyre.backends.cpu.device import CpuDevice

# Invocations of such programs go through many rows each: fewer are worth sharing, and fewer are taken at a time.
_SHARED: Final = (128, 16)
# Tables for steps that come again, unless they need much memory: then they also take long to run.
_MOST_TABLES: Final = 32
_MOST_STATE_KEPT: Final = 1 << 16
_SOURCES: Final = ("backends/cpu", "emit", "emit/llvm", "lower", "analyze", "ir", "semantics")

MakeImage = Callable[[], tuple[Sequence[Program], bytes]]
# A program, its workgroups, and for each of its host buffers which memory it is.
_Step = tuple[str, int, tuple[int, ...]]


class _Header(msgspec.Struct, frozen=True, array_like=True):
    """A program without its statements; that of a segment is named as its function in the object code."""

    name: str
    buffers: tuple[BufferDecl, ...]
    workgroup_size: tuple[int, int, int]

    def program(self) -> Program:
        return Program(self.name, self.buffers, self.workgroup_size)


class _Segment(msgspec.Struct, frozen=True, array_like=True):
    """A segment, and the copy before it."""

    header: _Header
    copy: _Header | None
    label: str


class _Program(msgspec.Struct, frozen=True, array_like=True):
    """A program cut for one workgroup. ``growth`` is how many words each state has for every other workgroup."""

    header: _Header
    segments: tuple[_Segment, ...]
    state: tuple[StateBuffer, ...]
    growth: tuple[int, ...]
    straight: bool
    control: str


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    programs: tuple[_Program, ...]
    kernels: dict[str, Kernel]
    code: tuple[bytes, ...]
    notes: bytes


class _ImageCode(msgspec.Struct, frozen=True, eq=False):
    """The code of a launch, the same for every grid."""

    kernel: CompiledKernel

    def for_launch(self, grid: Grid) -> CompiledKernel:
        return self.kernel


class Image:
    """Programs that are ready to run; ``headers`` are they without statements, ``notes`` what came with them."""

    def __init__(self, device: CpuDevice, stored: _Stored) -> None:
        self._device = device
        loaded = Loaded(*stored.code)
        self._code = {
            name: _ImageCode(CompiledKernel(kernel, loaded, loaded.address(name)))
            for name, kernel in stored.kernels.items()
        }
        self._programs = {one.header.name: one for one in stored.programs}
        self._tables: MemoryCache[Table] = MemoryCache(_MOST_TABLES)
        self.headers = [one.header.program() for one in stored.programs]
        self._host = {header.name: host_buffers(header) for header in self.headers}
        self.notes = stored.notes

    def run(self, steps: Sequence[tuple[str, int, Sequence[ResidentBuffer]]]) -> None:
        """Run programs by name, each on so many workgroups, on resident buffers in binding order."""
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
                    memory.append(self._checked(resource))
                counts.append(_element_count(decl, resource))
            shape.append((name, groups, tuple([numbers[id(resource)] for resource in resources])))
        key = tuple(shape)
        table = self._tables.pop(key) or self._table(key, len(memory))
        table.run(self._device.pool, [resource.handle for resource in memory], 1, None, UNLIMITED, counts)
        if table.state.nbytes <= _MOST_STATE_KEPT:
            self._tables.put(key, table)

    def _checked(self, resource: ResidentBuffer) -> ResidentBuffer:
        if resource.owner.device is not self._device:
            raise BadInputs(
                f"the resident buffer belongs to another backend ('{resource.owner.id}').",
                "allocate it on the backend that the image is on.",
            )
        return require_owned(resource.owner, resource)

    def _table(self, shape: Sequence[_Step], bound: int) -> Table:
        """A table for steps whose memory has these numbers, and whose counts are given in their order."""
        builder = ScheduleBuilder(bound)
        parts: list[Part] = []
        given: list[dict[str, int]] = []
        numbers = count()
        for name, groups, places in shape:
            given.append({decl.name: next(numbers) for decl in self._host[name]})
            plan = self._plan(self._programs[name], groups)
            parts.append(builder.part(plan, places, self._code_of, label=f"'{name}'"))
        sharing = Sharing(self._device.pool.sharing.threads, *_SHARED)
        return Table(builder.schedule(parts), parts, sharing, given)

    def _code_of(self, part: Program) -> _ImageCode:
        return self._code[part.name]

    def _plan(self, program: _Program, groups: int) -> GridSyncPlan:
        header = program.header.program()
        launch = Launch((groups, 1, 1), 0, {}, header.workgroup_size)
        state = tuple(
            msgspec.structs.replace(one, words=one.words + (groups - 1) * growth)
            for one, growth in zip(program.state, program.growth, strict=True)
        )
        segments = tuple(map(_segment, program.segments))
        return GridSyncPlan(header, launch, segments, state, program.straight, program.control, "", ())


def _segment(stored: _Segment) -> Segment:
    """A segment as a schedule is made of it; which segments follow is in the control word."""
    header = stored.header.program()
    copy = None if stored.copy is None else stored.copy.program()
    return Segment(header, stored.label, (), header, copy, copy)


def _element_count(decl: BufferDecl, resource: ResidentBuffer) -> int:
    count = decl.count or resource.byte_len // decl.dtype.bytes
    if count * decl.dtype.bytes > resource.byte_len:
        raise BadInputs(
            f"buffer '{decl.name}' needs {count * decl.dtype.bytes:,} bytes and its resident buffer has "
            f"{resource.byte_len:,}.",
            "give a resident buffer at least that long.",
            buffer=decl.name,
        )
    return count


def load_image(device: CpuDevice, key: bytes, make: MakeImage) -> Image:
    """The image of some programs, from the disk if it is there, else made and kept; ``make`` also gives its notes."""
    kernels, facts = device.kernels, machine_facts()
    parts = (key, source_state(*_SOURCES), *facts)
    whole = blake2b(msgspec.msgpack.encode(parts), digest_size=32).digest()
    body = kernels.disk.get(whole)
    if body is not None:
        found = _read(body, facts)
        if found is not None:
            return Image(device, found)
        kernels.disk.discard(whole)
    stored = _stored(*make())
    kernels.disk.put(whole, packed(msgspec.msgpack.encode(stored), facts))
    return Image(device, stored)


def _read(body: bytes, facts: tuple[str, ...]) -> _Stored | None:
    """The image in a file; None if it is not one for this machine whose code can be loaded."""
    content = unpacked(body, facts)
    try:
        stored = None if content is None else msgspec.msgpack.decode(content, type=_Stored)
    except msgspec.DecodeError:
        return None
    return stored if stored is not None and all(map(can_be_loaded, stored.code)) else None


def _stored(programs: Sequence[Program], notes: bytes) -> _Stored:
    kernels: dict[str, Kernel] = {}
    described: dict[str, _Program] = {}
    code: list[Future[bytes]] = []
    # LLVM compiles the text of the longest program while those of the others are being written.
    with ThreadPoolExecutor(1, "vyre-image") as threads:
        for given in sorted(programs, key=lambda one: -one.stats().expressions):
            texts: dict[str, str] = {}
            described[given.name] = _written(binder_of(given).program, kernels, texts)
            code.append(threads.submit(linked_object_code, texts))
    in_order = tuple(described[one.name] for one in programs)
    return _Stored(in_order, kernels, tuple(one.result() for one in code), notes)


def _written(program: Program, kernels: dict[str, Kernel], texts: dict[str, str]) -> _Program:
    """A program without its statements; what they became is added to the kernels, and to the texts to be compiled."""
    if program.stats().has(n.Trap, n.AsyncLoad, n.AsyncStore) or any(
        decl.role is Role.OUTPUT for decl in program.buffers
    ):
        raise UnsupportedFeature("an image of a program with traps, transfers or fresh outputs", "cpu")

    def emitted(part: Program) -> _Header:
        name = f"kernel{len(kernels)}"
        kernel = emit_kernel(part, SCALAR, flat=is_workgroup_independent(part))
        texts[name] = kernel.text
        kernels[name] = msgspec.structs.replace(kernel, text="")
        return _Header(name, part.buffers, program.workgroup_size)

    plan, wider = (plan_grid_sync(program, _launch(program, groups), checked=True) for groups in (1, 2))
    segments = tuple(
        _Segment(emitted(one.narrowed), None if one.copy is None else emitted(one.copy), one.label)
        for one in plan.segments
    )
    growth = tuple(two.words - one.words for one, two in zip(plan.state, wider.state, strict=True))
    header = _Header(program.name, program.buffers, program.workgroup_size)
    return _Program(header, segments, plan.state, growth, plan.straight, plan.control)


def _launch(program: Program, groups: int) -> Launch:
    return Launch((groups, 1, 1), 0, {decl.name: decl.count for decl in program.buffers}, program.workgroup_size)

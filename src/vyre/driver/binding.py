"""Binding: check a call's data against a program, and decide sizes and launch geometry once per combination of sizes.

A plan holds everything about a launch but the data: descriptors sorted by binding number, input and output slots in
declaration order, byte sizes, the launch. Plans are kept with the program, so a repeated call looks one up. Binding
compiles nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import ref

import msgspec
import numpy as np
from numpy import ndarray

from vyre.arguments import require
from vyre.checker import check
from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig, require_config
from vyre.driver.memory_cache import BoundedDict
from vyre.driver.outputs import Buffer, OutputBuffers, byte_view, deliver_outputs
from vyre.driver.resident import ResidentBuffer, require_owned
from vyre.errors import BadInputs, DispatchFailed
from vyre.ir import nodes as n
from vyre.ir.binding import GRID_BYTES, Array, bind_inputs, indirect_dispatch, indirect_grid
from vyre.ir.buffers import Access, BufferDecl, Role
from vyre.ir.extensions import inline_calls
from vyre.ir.launch import Launch, decide_launch
from vyre.ir.limits import MAX_ELEMENTS
from vyre.ir.program import Program, require_program
from vyre.semantics.types import DType
from vyre.words import counted

if TYPE_CHECKING:
    from vyre.driver.backend import Backend

_MOST_PLANS: Final = 64
# What of a config decides a plan.
_geometry: Final = attrgetter("grid_override", "dispatch_elements")


class BufferBinding(msgspec.Struct, frozen=True):
    """One host buffer of a launch."""

    name: str
    binding: int
    role: Role
    access: Access
    dtype: DType
    count: int
    byte_size: int
    input_slot: int | None
    output_slot: int | None
    output_byte_range: tuple[int, int] | None


class BindingPlan(msgspec.Struct, frozen=True, eq=False):
    """A launch of ``program`` without its data.

    ``descriptors`` are the host buffers by binding number; ``inputs`` and ``outputs`` the same by slot.
    """

    program: Program
    launch: Launch
    descriptors: tuple[BufferBinding, ...]
    inputs: tuple[BufferBinding, ...]
    outputs: tuple[BufferBinding, ...]
    input_bytes: int
    output_bytes: int
    layout_fingerprint: bytes
    is_trimmed: bool

    def trimmed(self, results: Sequence[Buffer]) -> list[memoryview]:
        """Results by output slot, each cut to the byte range that its buffer gives back."""
        return [
            view if slot.output_byte_range is None else view[slice(*slot.output_byte_range)]
            for slot, view in zip(self.outputs, map(byte_view, results), strict=True)
        ]

    def deliver(self, results: Sequence[Buffer], into: OutputBuffers | None, launches: int = 1) -> list[memoryview]:
        """Return the outputs of a dispatch from the whole results by output slot, and count the dispatch."""
        trimmed = self.trimmed(results) if self.is_trimmed else results
        return deliver_outputs(trimmed, into, self.input_bytes, launches)


class Bound(msgspec.Struct, frozen=True, eq=False):
    """A plan and its input data, by slot: flat arrays of the storage types."""

    plan: BindingPlan
    inputs: Sequence[Array]


class Binder:
    """Binds data to one legal program; keeps the plans it made. Get it with ``binder_of``."""

    def __init__(self, program: Program) -> None:
        self.program = program = inline_calls(program)
        self.slots = program.input_buffers()
        self.host = sorted((d for d in program.buffers if d.role is not Role.SHARED), key=lambda d: d.binding)
        self._flat = [(decl.dtype.storage, (decl.dtype.bytes,), decl.count) for decl in self.slots]
        self._indirect = indirect_dispatch(program)
        # Of the buffers by binding, which are inputs, by slot; None if they all are, in this order.
        places = {decl.name: place for place, decl in enumerate(self.host)}
        taken = [places[decl.name] for decl in self.slots]
        self._taken = None if taken == list(range(len(self.host))) else taken
        # Of the buffers by binding, which a run writes.
        self._written = [place for place, decl in enumerate(self.host) if decl.role.gives_output]
        # The ids of arrays that were found to be apart, emptied when one of them goes; and what tells that it does.
        self._apart: tuple[list[int], list[ref[Array]]] = [], []
        self._plans: BoundedDict[Any, BindingPlan] = BoundedDict(_MOST_PLANS)
        self._resident_plans: BoundedDict[Any, BindingPlan] = BoundedDict(_MOST_PLANS)

    def bind(self, inputs: Mapping[str, Any] | Sequence[Any], config: DispatchConfig) -> Bound:
        """The plan and the arrays for these inputs; BadInputs tells what does not fit."""
        counts = self._flat_counts(inputs)
        if counts is None:
            inputs = list(bind_inputs(self.program, inputs).values())
            counts = tuple([array.size for array in inputs])
        arrays = cast("Sequence[Array]", inputs)
        grid = None
        if self._indirect is not None:
            by_name = {decl.name: array for decl, array in zip(self.slots, arrays, strict=True)}
            grid = indirect_grid(self.program, by_name)
        plan = self.plan(counts, config, grid)
        limit = config.max_output_bytes
        if limit is not None and plan.output_bytes > limit:
            raise DispatchFailed(
                f"'{self.program.name}' would give {plan.output_bytes:,} bytes, and max_output_bytes is {limit:,}.",
                "allow more, launch fewer elements, or give an output a byte range.",
                code="output-limit",
            )
        return Bound(plan, arrays)

    def bind_resident(
        self,
        backend: Backend,
        resources: Sequence[ResidentBuffer],
        config: DispatchConfig,
        *,
        reads_grid: bool = True,
    ) -> BindingPlan:
        """The plan for resident buffers in binding order; they may be longer than needed, never shorter.

        A grid that is in memory is read, unless the device will do that: the plan is then for an empty one.
        """
        try:
            for resource in resources:
                require_owned(backend, resource)
            geometry = None if config is DEFAULT_CONFIG else _geometry(config)
        except (TypeError, AttributeError):
            _require_buffers(resources)
            require_config(config)
            raise
        # Buffers of the same lengths have passed what follows before, but for being the same one twice.
        lengths = tuple([resource.byte_len for resource in resources])
        key = None if self._indirect else (lengths, geometry)
        known = self._resident_plans.get(key)
        if known is not None:
            if len(lengths) > 1:
                _refuse_aliases(known, resources)
            return known
        plan = self._bind_resident(backend, resources, config, reads_grid)
        if key is not None:
            self._resident_plans.keep(key, plan)
        return plan

    def _bind_resident(
        self,
        backend: Backend,
        resources: Sequence[ResidentBuffer],
        config: DispatchConfig,
        reads_grid: bool,
    ) -> BindingPlan:
        _require_buffers(resources)
        if len(resources) != len(self.host):
            names = ", ".join(decl.name for decl in self.host)
            raise BadInputs(
                f"'{self.program.name}' has {counted(len(self.host), 'host buffer')} ({names}) and was given "
                f"{len(resources)}.",
                "give one resident buffer for each of them, in the order of their bindings.",
            )
        counts = {
            decl.name: _resident_count(decl, resource) for decl, resource in zip(self.host, resources, strict=True)
        }
        grid = None if self._indirect is None else self._resident_grid(backend, resources, self._indirect, reads_grid)
        plan = self.plan(tuple([counts[decl.name] for decl in self.slots]), config, grid)
        for slot, resource in zip(plan.descriptors, resources, strict=True):
            if resource.byte_len < slot.byte_size:
                raise BadInputs(
                    f"buffer '{slot.name}' needs {slot.byte_size:,} bytes and its resident buffer has "
                    f"{resource.byte_len:,}.",
                    "give a resident buffer at least that long.",
                    buffer=slot.name,
                )
        _refuse_aliases(plan, resources)
        return plan

    def bind_in_place(self, memory: Sequence[Array], config: DispatchConfig) -> BindingPlan:
        """The plan for a run that changes flat arrays in binding order in place."""
        counts = self._flat_counts(memory) if self._taken is None and self._indirect is None else None
        if counts is not None:
            self._require_writable_and_apart(memory)
            return self.plan(counts, config)
        plan = self.bind(self.inputs_in_place(memory), config).plan
        for slot, array in zip(plan.descriptors, memory, strict=True):
            _require_length(slot.name, array, slot.count)
        return plan

    def inputs_in_place(self, memory: Sequence[Array]) -> Sequence[Array]:
        """The inputs by slot, of flat arrays in binding order that a run may change; BadInputs if they are not such."""
        if type(memory) is not list:
            require(memory, Sequence, "the memory of a run in place", "give a list of NumPy arrays.")
        if len(memory) != len(self.host):
            raise BadInputs(
                f"'{self.program.name}' has {counted(len(self.host), 'host buffer')} and was given "
                f"{counted(len(memory), 'array')}.",
                "give one array for each of them, in the order of their bindings.",
            )
        inputs = memory if self._taken is None else [memory[place] for place in self._taken]
        # The strides of an array of one element or none may be any.
        if self._flat_counts(inputs) is None and not all(map(_is_flat, self.slots, inputs)):
            raise BadInputs(
                f"'{self.program.name}' runs in place on flat arrays of its buffers' types, of their counts.",
                "give NumPy arrays of one axis, in C order, of the storage types, in a list.",
            )
        for decl, array in zip(self.host, memory, strict=True):
            # A fresh output is no input, so the check above has not seen it.
            if not _is_flat(decl, array):
                raise BadInputs(
                    f"buffer '{decl.name}' is given no flat array of its type and count.",
                    f"give a NumPy array of one axis, in C order, of {decl.dtype.storage.name}.",
                    buffer=decl.name,
                )
        self._require_writable_and_apart(memory)
        return inputs

    def _require_writable_and_apart(self, memory: Sequence[Array]) -> None:
        """Raise BadInputs if an array that the run writes is read-only or shares memory with another."""
        for place in self._written:
            if not memory[place].flags.writeable:
                raise BadInputs(
                    f"buffer '{self.host[place].name}' is written, and its array is read-only.",
                    "give an array of your own: array.copy().",
                    buffer=self.host[place].name,
                )
        # Arrays that were apart in the last run still are.
        ids = list(map(id, memory))
        if ids != self._apart[0]:
            _require_apart(self.host, self._written, memory)
            self._apart = ids, [ref(array, lambda _: ids.clear()) for array in memory]

    def store_in_place(self, memory: Sequence[Array], outputs: Sequence[memoryview]) -> None:
        """Copy the outputs of a dispatch to where a run in place would have written them."""
        places = {decl.name: place for place, decl in enumerate(self.host)}
        for decl, output in zip(self.program.output_buffers(), outputs, strict=True):
            array = memory[places[decl.name]]
            start, _ = decl.output_byte_range or (0, 0)
            stop = start + len(output)
            _require_length(decl.name, array, -(-stop // array.itemsize))
            array.view(np.uint8)[start:stop] = np.array(output, np.uint8)

    def plan(self, counts: tuple[int, ...], config: DispatchConfig, grid: tuple[int, ...] | None = None) -> BindingPlan:
        """The plan for inputs of these element counts, by slot; ``grid`` overrides what the config says."""
        try:
            key = counts, grid, _geometry(config)
        except AttributeError:
            require_config(config)
            raise
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans.keep(key, _make_plan(self, counts, config, grid))
        return plan

    def _flat_counts(self, inputs: Mapping[str, Any] | Sequence[Any]) -> tuple[int, ...] | None:
        """Return the element counts if each input is a flat array that fits; None if the full check is needed."""
        flat = self._flat
        if (type(inputs) is not list and type(inputs) is not tuple) or len(inputs) != len(flat):
            return None
        counts = []
        for data, (storage, strides, count) in zip(inputs, flat):  # noqa: B905 (the keyword costs as much as the loop)
            if type(data) is not ndarray or data.dtype is not storage or data.strides != strides:
                return None
            size = data.size
            if size > MAX_ELEMENTS or (count and size != count):
                return None
            counts.append(size)
        return tuple(counts)

    def _resident_grid(
        self, backend: Backend, resources: Sequence[ResidentBuffer], statement: n.IndirectDispatch, reads_grid: bool
    ) -> tuple[int, int, int] | None:
        at = next(i for i, decl in enumerate(self.host) if decl.name == statement.count_buffer)
        head = min(resources[at].byte_len, statement.count_offset + GRID_BYTES)
        counts = np.frombuffer(backend.download(resources[at], 0, head) if reads_grid else bytes(head), np.uint8)
        return indirect_grid(self.program, {statement.count_buffer: counts})


def binder_of(program: Program) -> Binder:
    """The binder of a program, which is checked once, when this is first asked; both stay with the program."""
    kept = require_program(program).__dict__
    binder: Binder | None = kept.get("_binder")
    if binder is None:
        check(program).raise_if_invalid()
        binder = kept["_binder"] = Binder(program)
    return binder


def _require_buffers(resources: object) -> None:
    require(resources, Sequence, "what a program works on", "give a list of resident buffers, in binding order.")


def _is_flat(decl: BufferDecl, data: object) -> bool:
    return (
        isinstance(data, ndarray)
        and data.dtype == decl.dtype.storage
        and data.ndim == 1
        and data.flags.c_contiguous
        and decl.count in (0, data.size)
    )


def _require_length(name: str, array: Array, count: int) -> None:
    """Raise BadInputs if an array has fewer elements than its buffer in a launch."""
    if array.size < count:
        raise BadInputs(
            f"buffer '{name}' has {count:,} elements in this launch, and its array {array.size:,}.",
            "give an array of that many elements.",
            buffer=name,
        )


def _require_apart(host: Sequence[BufferDecl], written: Sequence[int], memory: Sequence[Array]) -> None:
    """Raise BadInputs if an array that is written shares memory with another."""
    for place in written:
        for other, array in enumerate(memory):
            if other != place and np.may_share_memory(memory[place], array):
                raise BadInputs(
                    f"buffer '{host[place].name}' is written, and its array shares memory with that of buffer "
                    f"'{host[other].name}'.",
                    "give arrays that do not overlap: copy one of them.",
                    buffer=host[place].name,
                )


def layout_fingerprint(program: Program) -> bytes:
    """What a kernel's interface is, without run-time sizes: programs that share it can share a binding layout."""
    layout = [
        (decl.binding, decl.access.value, decl.dtype.label, decl.count, decl.role.value)
        for decl in sorted(program.buffers, key=lambda d: d.binding)
        if decl.role is not Role.SHARED
    ]
    return blake2b(msgspec.msgpack.encode(layout), digest_size=16).digest()


def _make_plan(
    binder: Binder, counts: tuple[int, ...], config: DispatchConfig, grid: tuple[int, ...] | None
) -> BindingPlan:
    program = binder.program
    launch = decide_launch(
        program,
        {decl.name: count for decl, count in zip(binder.slots, counts, strict=True)},
        grid=config.grid_override if grid is None else grid,
        elements=config.dispatch_elements,
    )
    inputs = {decl.name: slot for slot, decl in enumerate(program.input_buffers())}
    outputs = {decl.name: slot for slot, decl in enumerate(program.output_buffers())}
    by_name = {
        decl.name: BufferBinding(
            decl.name,
            decl.binding,
            decl.role,
            decl.access,
            decl.dtype,
            launch.counts[decl.name],
            launch.counts[decl.name] * decl.dtype.bytes,
            inputs.get(decl.name),
            outputs.get(decl.name),
            decl.output_byte_range if decl.role.gives_output else None,
        )
        for decl in binder.host
    }
    output_slots = tuple(by_name[name] for name in outputs)
    return BindingPlan(
        program=program,
        launch=launch,
        descriptors=tuple(by_name.values()),
        inputs=tuple(by_name[name] for name in inputs),
        outputs=output_slots,
        input_bytes=sum(by_name[name].byte_size for name in inputs),
        output_bytes=sum(_delivered_bytes(slot) for slot in output_slots),
        layout_fingerprint=layout_fingerprint(program),
        is_trimmed=any(slot.output_byte_range is not None for slot in output_slots),
    )


def _delivered_bytes(slot: BufferBinding) -> int:
    start, stop = slot.output_byte_range or (0, slot.byte_size)
    return max(0, min(stop, slot.byte_size) - start)


def _resident_count(decl: BufferDecl, resource: ResidentBuffer) -> int:
    if decl.count or not decl.role.takes_input:
        return decl.count
    count, rest = divmod(resource.byte_len, decl.dtype.bytes)
    if rest:
        raise BadInputs(
            f"the resident buffer of '{decl.name}' has {resource.byte_len} bytes, "
            f"which is no whole number of {decl.dtype} elements.",
            f"give a multiple of {decl.dtype.bytes} bytes.",
            buffer=decl.name,
        )
    return count


def _refuse_aliases(plan: BindingPlan, resources: Sequence[ResidentBuffer]) -> None:
    if len(set(map(id, resources))) == len(resources):
        return
    owners: dict[int, BufferBinding] = {}
    for slot, resource in zip(plan.descriptors, resources, strict=True):
        other = owners.setdefault(id(resource), slot)
        if other is not slot and (slot.role.gives_output or other.role.gives_output):
            raise BadInputs(
                f"buffers '{other.name}' and '{slot.name}' share a resident buffer that the program writes.",
                "bind a buffer that is written to memory of its own.",
                buffer=slot.name,
            )

"""Executables: programs compiled for a backend, ready to be bound and run.

An executable is immutable but for what it keeps: for each combination of sizes it was called with, the schedule that
the device prepared. So a call binds data, which only looks things up, and runs. ``vyre.driver.compile`` makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from vyre.analyze.coverage import outputs_written_whole
from vyre.analyze.effects import used_names
from vyre.arguments import listed
from vyre.driver import telemetry, trace
from vyre.driver.binding import Binder, BindingPlan, Bound
from vyre.driver.config import DispatchConfig, Route, require_config
from vyre.driver.device import UNLIMITED, Code, Copy, Device, PreparedSchedule, Ran, RunOptions, require_lengths
from vyre.driver.memory_cache import BoundedDict
from vyre.driver.optimizer_cache import Optimized
from vyre.driver.outputs import OutputBuffers, byte_view, require_slots
from vyre.driver.pending import Inputs, PendingDispatch, copied_inputs
from vyre.driver.profile import require_fitting
from vyre.driver.resident import ResidentBuffer
from vyre.driver.timing import TimedResult
from vyre.errors import BadInputs, DeviceOutOfMemory, GridResidencyExceeded
from vyre.ir import nodes as n
from vyre.ir.binding import Array
from vyre.ir.buffers import Role
from vyre.ir.program import Program
from vyre.lower.plan import CutProgram, GridSyncPlan, plan_cut
from vyre.lower.schedule import Clear, ConvergenceTest, LaunchSchedule, Part, ScheduleBuilder
from vyre.words import counted

if TYPE_CHECKING:
    from vyre.driver.backend import Backend

_MOST_PREPARED: Final = 64


class Compiled(msgspec.Struct, frozen=True, eq=False):
    """What compilation found and made: ``binder`` binds data to the program that runs, with its overrides.

    ``wanted`` is the route that was asked for, ``route`` the one taken; ``code`` is by the identity of the programs
    that the segments of ``cut`` launch.
    """

    program: Program
    config: DispatchConfig
    wanted: Route
    route: str
    key: bytes
    binder: Binder
    optimized: Optimized
    cut: CutProgram
    code: Mapping[int, Code]


class Prepared:
    """A plan made ready on a device: ``single`` runs one pass, ``repeated`` as many as their keys say.

    ``outputs`` are the ranges of memory that a dispatch reads, ``recipe`` how the memory of one on host arrays is made,
    ``clears`` the outputs that are zero before the first of several passes.
    """

    __slots__ = ("clears", "outputs", "recipe", "repeated", "single")

    def __init__(self, single: PreparedSchedule, outputs: list[tuple[int, int, int]], recipe: list[Any]) -> None:
        self.single = single
        self.outputs = outputs
        self.recipe = recipe
        self.repeated: dict[int, PreparedSchedule] = {}
        self.clears: tuple[Clear, ...] = ()


class Executable:
    """A program compiled for a backend. It gives the same bytes on every call, and may be used from several threads."""

    def __init__(self, backend: Backend, compiled: Compiled) -> None:
        self.backend = backend
        self.program = compiled.program
        self.config = compiled.config
        self.route = compiled.route
        self.key = compiled.key
        self.binder = compiled.binder
        self.optimized = compiled.optimized
        self.cut = compiled.cut
        self._code = compiled.code
        self._device = backend.host_device if self.route == "host" else backend.device
        self._in_place = self._device.profile.in_place
        self._has_traps = self.binder.program.stats().has(n.Trap)
        has_limit = type(backend.device).resident_grid_fits is not Device.resident_grid_fits
        self._has_grid_in_memory = self.binder.program.stats().has_indirect_dispatch
        self._is_plain = self.route == "plain"
        self._may_exceed = self.route == "native" and has_limit
        report = self.optimized.report
        # Programs are optimized before there is a grid, for grids of one axis; others are launched with this config.
        self._for_any_grid: DispatchConfig | None = None
        if report is not None and report.most_workgroups is not None:
            self._for_any_grid = self.config.with_changes(optimize=self.config.optimization.without("barriers"))
        self._may_differ = self._may_exceed or self._for_any_grid is not None
        self._wanted = compiled.wanted
        self._may_be_cut = compiled.wanted == "auto" and self.config.cooperative == "auto"
        # By plan: for runs on given memory, whose fresh outputs the schedule clears, and for dispatches.
        self._prepared: BoundedDict[BindingPlan, Prepared] = BoundedDict(_MOST_PREPARED)
        self._prepared_fresh: BoundedDict[BindingPlan, Prepared] = BoundedDict(_MOST_PREPARED)

    # What the executable is.

    def called_with(self, config: DispatchConfig) -> Executable:
        """The executable whose calls have this config by default; it has the same code, and shares what is kept."""
        if config == self.config:
            return self
        other = copy(self)
        other.config = config
        return other

    def launched(self) -> list[tuple[str, Program, Code]]:
        """The programs that a run launches, with the labels of their segments and their code."""
        return [
            (segment.label, part, self._code[id(part)]) for segment in self.cut.segments for part in segment.launched
        ]

    # Calls.

    def dispatch(
        self, inputs: Inputs, config: DispatchConfig | None = None, *, into: OutputBuffers | None = None
    ) -> list[memoryview]:
        """Run the program; a config given here replaces the executable's, but cannot change the code."""
        return self.run(inputs, self.config if config is None else self._call_config(config), into)

    def dispatch_timed(
        self, inputs: Inputs, config: DispatchConfig | None = None, *, into: OutputBuffers | None = None
    ) -> TimedResult:
        """Run the program, and tell how long it took and how many passes it made."""
        return self.run_timed(inputs, self.config if config is None else self._call_config(config), into)

    def submit(self, inputs: Inputs, config: DispatchConfig | None = None) -> PendingDispatch:
        """Begin a dispatch; the inputs may be changed as soon as this returns."""
        owned = copied_inputs(inputs)
        return self.backend.workers.start(lambda: self.dispatch(owned, config))

    def dispatch_batch(
        self,
        batch: Iterable[Inputs],
        config: DispatchConfig | None = None,
        *,
        into: Sequence[OutputBuffers] | None = None,
    ) -> list[list[memoryview]]:
        """Run the program on each of several inputs, in order."""
        batch = listed(batch, "the batch")
        into = None if into is None else listed(into, "into")
        if into is not None and len(into) != len(batch):
            raise BadInputs(
                f"a batch of {len(batch)} was given {len(into)} OutputBuffers.", "give one for each, or none."
            )
        slots = [None] * len(batch) if into is None else into
        return [self.dispatch(inputs, config, into=one) for inputs, one in zip(batch, slots, strict=True)]

    def dispatch_resident(
        self, resources: Sequence[ResidentBuffer], config: DispatchConfig | None = None
    ) -> TimedResult:
        """Run the program on resident buffers in binding order; a buffer that takes no input starts at zero."""
        return self.run_resident(resources, self.config if config is None else self._call_config(config))

    def bind_resident(self, resources: Sequence[ResidentBuffer], config: DispatchConfig) -> BindingPlan:
        """The plan of a run on resident buffers; the device reads a grid that is in memory, if it can."""
        reads_grid = not (self._has_grid_in_memory and self.device_reads_grid(config))
        return self.binder.bind_resident(self.backend, resources, config, reads_grid=reads_grid)

    def device_reads_grid(self, config: DispatchConfig) -> bool:
        """Whether the device takes the grid from memory by itself, where the program says that it is there."""
        return self.route == "plain" and self._device.reads_grid(self.binder.program, config)

    def dispatch_in_place(self, memory: Sequence[Array], config: DispatchConfig) -> None:
        """Run the program on host arrays in binding order, which change in place."""
        if not self._in_place:
            inputs = self.binder.inputs_in_place(memory)
            self.binder.store_in_place(memory, self.dispatch(inputs, config))
            return
        plan = self.binder.bind_in_place(memory, config)
        if self._for_any_grid is not None and (chosen := self.fitting(plan)) is not self:
            chosen.dispatch_in_place(memory, config)
            return
        prepared = self._prepared.get(plan) or self._prepare(plan, clears=True)
        if self._is_plain and config.is_simple:
            prepared.single.run(memory, UNLIMITED, (), _nothing)
            telemetry.count_launch(plan.input_bytes)
            return
        ran = self._passes(plan, prepared, config).run(memory, RunOptions.of(config), (), _nothing)
        self._count(ran, config)
        telemetry.count_launch(plan.input_bytes, (), self._launches(ran))

    def _call_config(self, config: DispatchConfig) -> DispatchConfig:
        if config is self.config:
            return config
        try:
            is_other_code = config.code_generation != self.config.code_generation
        except AttributeError:
            require_config(config)
            raise
        if is_other_code:
            raise BadInputs(
                "the call's config would change the compiled code "
                "(workgroup_override, ulp_budget, cooperative or optimize differ).",
                "compile another executable with it.",
            )
        return config

    # Runs, with a config that asks for this code.

    def run(self, inputs: Inputs, config: DispatchConfig, into: OutputBuffers | None) -> list[memoryview]:
        """Bind inputs and run; return the outputs."""
        bound = self.binder.bind(inputs, config)
        chosen = self.fitting(bound.plan) if self._may_differ else self
        return chosen._run(bound, config, into)[0]

    def run_timed(self, inputs: Inputs, config: DispatchConfig, into: OutputBuffers | None) -> TimedResult:
        """Bind inputs and run; return the outputs and the times."""
        start = perf_counter_ns()
        bound = self.binder.bind(inputs, config)
        outputs, ran = self.fitting(bound.plan)._run(bound, config, into)
        return _timed(outputs, ran, start)

    def run_resident(self, resources: Sequence[ResidentBuffer], config: DispatchConfig) -> TimedResult:
        """Run on resident buffers."""
        start = perf_counter_ns()
        plan = self.bind_resident(resources, config)
        memory = [resource.handle for resource in resources]
        if self._is_plain and config.is_simple:
            prepared = self._prepared.get(plan) or self._prepare(plan, clears=True)
            ran = prepared.single.run(memory, UNLIMITED, (), _nothing)
            telemetry.count_launch(0)
        else:
            ran = self.fitting(plan)._run_on_memory(plan, memory, config)
        return _timed([], ran, start)

    def _run_on_memory(self, plan: BindingPlan, memory: list[Any], config: DispatchConfig) -> Ran:
        if self.route == "host":
            return self._run_through_host(plan, memory, config)
        prepared = self._prepare(plan, clears=True)
        ran = self._passes(plan, prepared, config).run(memory, RunOptions.of(config), (), _nothing)
        self._count(ran, config)
        telemetry.count_launch(0, (), self._launches(ran))
        return ran

    def _run(self, bound: Bound, config: DispatchConfig, into: OutputBuffers | None) -> tuple[list[memoryview], Ran]:
        """Run a bound call and deliver its outputs."""
        plan, inputs = bound.plan, bound.inputs
        options = RunOptions.of(config)
        if into is not None:
            require_slots(into)
        if self._in_place:
            prepared = self._prepared_fresh.get(plan) or self._prepare(plan, clears=False)
            return self._run_on_arrays(plan, prepared, inputs, config, options, into)
        prepared = self._prepare(plan, clears=True)
        sizes = [slot.byte_size for slot in plan.descriptors]
        with self.backend.scratch.borrowed(sizes) as memory:
            copies = [
                copy
                for place, slot in enumerate(plan.descriptors)
                if slot.input_slot is not None and slot.byte_size and slot.name not in self._untouched
                for copy in _whole_words(memory[place], byte_view(inputs[slot.input_slot]))
            ]
            with trace.span("upload", self.backend.id, bytes=plan.input_bytes):
                self._device.write(copies, ())

            def deliver(views: Sequence[Any]) -> list[memoryview]:
                regions = [(memory[place], offset, length) for place, offset, length in prepared.outputs]
                given = require_lengths(self._device, views, regions)
                results = given if into is not None else [_kept(view) for view in given]
                return plan.deliver(results, into, 0)

            ran = self._passes(plan, prepared, config).run(memory, options, prepared.outputs, deliver)
            telemetry.count(launches=self._launches(ran))
        self._count(ran, config)
        return ran.answer, ran

    def _run_on_arrays(
        self,
        plan: BindingPlan,
        prepared: Prepared,
        inputs: Sequence[Array],
        config: DispatchConfig,
        options: RunOptions,
        into: OutputBuffers | None,
    ) -> tuple[list[memoryview], Ran]:
        """Run on host arrays: the caller's, where the program only reads them."""
        try:
            memory = [
                make(count, storage) if slot is None else inputs[slot] if copy is None else copy(inputs[slot])
                for slot, copy, make, count, storage in prepared.recipe
            ]
        except MemoryError:
            raise DeviceOutOfMemory(plan.input_bytes + plan.output_bytes) from None
        run = prepared.single
        is_repeated = config.fixpoint_iterations is not None and config.passes > 1
        if is_repeated:
            run = self._passes(plan, prepared, config)
            for slot, array in zip(plan.descriptors, memory, strict=True):
                if slot.role is Role.OUTPUT:
                    array.fill(0)
        ran = run.run(memory, options, (), _nothing)
        if is_repeated or self.route != "plain":
            self._count(ran, config)
        return plan.deliver([memory[place] for place, _, _ in prepared.outputs], into, self._launches(ran)), ran

    def _run_through_host(self, plan: BindingPlan, handles: Sequence[Any], config: DispatchConfig) -> Ran:
        """Run by the host route on device memory, which is read before and written after."""
        device = self.backend.device
        regions = [(handle, 0, slot.byte_size) for handle, slot in zip(handles, plan.descriptors, strict=True)]
        views = require_lengths(device, device.read(regions), regions)
        memory = [
            np.zeros(slot.byte_size, np.uint8)
            if slot.role is Role.OUTPUT
            else np.frombuffer(bytes(view), np.uint8).copy()
            for slot, view in zip(plan.descriptors, views, strict=True)
        ]
        prepared = self._prepare(plan, clears=False)
        ran = self._passes(plan, prepared, config).run(memory, RunOptions.of(config), (), _nothing)
        device.write([(handles[place], 0, memory[place].data) for place, _, size in prepared.outputs if size], ())
        self._count(ran, config)
        telemetry.count_launch(0, (), self._launches(ran))
        return ran

    def _launches(self, ran: Ran) -> int:
        """The launches that telemetry counts: those of a cut program that the driver made, else one for each run."""
        return 1 if self.route == "plain" or self.route == "native" else ran.launches

    def _count(self, ran: Ran, config: DispatchConfig) -> None:
        """Count a run's route, segments and passes."""
        if self.route != "plain":
            counts = {f"route_{self.route}": 1, "grid_sync_decisions": ran.decisions}
            if len(self.cut.segments) > 1:
                segments = ran.launches if ran.segments is None else ran.segments
                counts |= {
                    "grid_sync_splits": 1,
                    "grid_sync_segments": segments,
                    "grid_sync_points": segments - ran.passes,
                }
            telemetry.count(**counts)
        if config.passes > 1:
            telemetry.count(fixpoint_runs=1, fixpoint_passes=ran.passes, fixpoint_converged=int(ran.converged is True))

    # Schedules.

    def _prepare(self, plan: BindingPlan, *, clears: bool) -> Prepared:
        """What runs of a plan share, made once; ``clears`` says that the schedule sets fresh outputs to zero."""
        known = self._prepared if clears else self._prepared_fresh
        prepared = known.get(plan)
        if prepared is None:
            prepared = known.keep(plan, self._make_prepared(plan, clears))
        return prepared

    def _make_prepared(self, plan: BindingPlan, clears: bool) -> Prepared:
        require_fitting(self.backend.capabilities, plan.program, plan.launch)
        places = {slot.name: place for place, slot in enumerate(plan.descriptors)}
        builder, part = self._part(plan)
        first = [Clear(place, size) for place, size in self.fresh(plan)] if clears else []
        outputs = [(places[slot.name], 0, slot.byte_size) for slot in plan.outputs]
        prepared = Prepared(self._runner(builder.schedule([part], clears=first)), outputs, self._recipe(plan))
        if clears:
            # A pass is compared with what was there before it, so all of an output starts at zero.
            fresh = [slot for slot in plan.outputs if slot.role is Role.OUTPUT and slot.byte_size]
            prepared.clears = tuple(Clear(places[slot.name], slot.byte_size) for slot in fresh)
        return prepared

    def _part(self, plan: BindingPlan) -> tuple[ScheduleBuilder, Part]:
        own = range(len(plan.descriptors))
        builder = ScheduleBuilder(len(own))
        return builder, builder.part(self.grid_sync_plan(plan), own, self.code_of, label=f"'{self.program.name}'")

    def fresh(self, plan: BindingPlan) -> list[tuple[int, int]]:
        """The outputs that have to be zero before a run, by place and size: those not written from end to end."""
        whole = self._written_whole(plan)
        return [
            (place, slot.byte_size)
            for place, slot in enumerate(plan.descriptors)
            if slot.role is Role.OUTPUT and slot.byte_size and slot.name not in whole
        ]

    def _passes(self, plan: BindingPlan, prepared: Prepared, config: DispatchConfig) -> PreparedSchedule:
        """How a run of so many passes goes."""
        if config.passes == 1:
            return prepared.single
        run = prepared.repeated.get(config.passes)
        if run is None:
            builder, part = self._part(plan)
            test = ConvergenceTest("unchanged", tuple((place, size) for place, _, size in prepared.outputs))
            schedule = builder.schedule((), [part], config.passes, test, prepared.clears)
            run = prepared.repeated[config.passes] = self._runner(schedule)
        return run

    def code_of(self, part: Program) -> Code:
        """The code of a program that the executable launches."""
        return self._code[id(part)]

    def grid_sync_plan(self, plan: BindingPlan) -> GridSyncPlan:
        """The launches of the cut program for a plan's sizes."""
        return plan_cut(self.cut, plan.launch)

    @cached_property
    def _untouched(self) -> frozenset[str]:
        """The inputs that no statement names, so that a run needs no copy of them; a trap handler may look at all."""
        if self._has_traps:
            return frozenset()
        inputs = {decl.name for decl in self.optimized.program.buffers if decl.role is Role.INPUT}
        return frozenset(inputs - used_names(self.optimized.program.entry))

    def uses_device(self) -> bool:
        """Whether the device may run schedules of this executable by itself, if it can."""
        return self.route in ("plain", "native") or not self.backend.capabilities.grid_sync

    def _runner(self, schedule: LaunchSchedule) -> PreparedSchedule:
        return self.backend.schedule_runner(schedule, self._device, uses_device=self.uses_device())

    def fitting(self, plan: BindingPlan) -> Executable:
        """The executable that a launch runs: this one, one for any grid, or one cut if its barrier does not fit."""
        report, other = self.optimized.report, self._for_any_grid
        if other is not None and report is not None and not report.holds_for(plan.launch.grid):
            return self.backend.compile(self.program, other, route=self._wanted).fitting(plan)
        if not self._may_exceed:
            return self
        try:
            self.require_fitting(plan)
        except GridResidencyExceeded:
            if not self._may_be_cut:
                raise
            return self.backend.compile(self.program, self.config.with_changes(cooperative="never"))
        return self

    def require_fitting(self, plan: BindingPlan) -> None:
        """Refuse a launch with a native grid barrier whose workgroups cannot all run at once."""
        if not self._may_exceed:
            return
        for _, _, code in self.launched():
            limit = self._device.resident_grid_fits(code, plan.launch)
            if limit is not None:
                x, y, z = plan.launch.grid
                raise GridResidencyExceeded(x * y * z, limit)

    def _written_whole(self, plan: BindingPlan) -> frozenset[str]:
        return outputs_written_whole(self.optimized.program, plan.launch)

    def _recipe(self, plan: BindingPlan) -> list[Any]:
        """How the arrays of a run are made, where arrays are memory: input slot, copy, make, count and type."""
        if not self._in_place:
            return []
        whole = self._written_whole(plan)
        arrays = self._device.host_arrays()
        recipe = []
        for slot in plan.descriptors:
            make = arrays.empty if slot.name in whole else arrays.zeros
            # A trap handler on the host may change any buffer.
            changes = slot.output_slot is not None or self._has_traps
            recipe.append((slot.input_slot, arrays.copy if changes else None, make, slot.count, slot.dtype.storage))
        return recipe

    # For people.

    def explain(self, inputs: Inputs | None = None) -> str:
        """What the executable is, as text; with inputs, also how it would run on them."""
        program = self.program
        stats, report = self.optimized.program.stats(), self.optimized.report
        lines = [
            f"{program.name} on {self.backend.id} {self.backend.version}",
            f"  optimizer: {'not used' if report is None else report.line}",
            f"  workgroup {self.config.workgroup_override or program.workgroup_size}, "
            f"{counted(stats.statements, 'statement')}, {counted(stats.grid_syncs, 'grid barrier')}",
            f"  route: {self._explain_route(inputs)}",
            f"  key: {self.key.hex()}",
        ]
        for decl in program.buffers:
            size = decl.count or "run-time sized"
            lines.append(f"  buffer {decl.binding} {decl.name}: {decl.dtype}, {size}, {decl.role.value}")
        for label, _, code in self.launched():
            lines += [f"  code, {label}:", *(f"    {line}" for line in self._device.explain(code))]
        return "\n".join(lines)

    def _explain_route(self, inputs: Inputs | None) -> str:
        return self.route if inputs is None else self.fitting(self.binder.bind(inputs, self.config).plan).route


def _timed(outputs: list[memoryview], ran: Ran, start: int) -> TimedResult:
    wall = perf_counter_ns() - start
    timing = ran.timing
    return TimedResult(outputs, wall, timing.device_ns, timing.enqueue_ns, timing.wait_ns, ran.passes, ran.converged)


def _whole_words(handle: Any, data: memoryview) -> list[Copy]:
    """Copies of data to the start of scratch memory, which is whole words: a last partial word is padded with zeros.

    A device that can only write words would have to read the memory for the rest of it.
    """
    whole = len(data) // 4 * 4
    if whole == len(data):
        return [(handle, 0, data)]
    tail: Copy = (handle, whole, memoryview(bytes(data[whole:]).ljust(4, b"\0")))
    return [(handle, 0, data[:whole]), tail] if whole else [tail]


def _nothing(_: Sequence[Any]) -> list[memoryview]:
    return []


def _kept(view: Any) -> Any:
    """The bytes of a view in memory that stays: a device shows its own only for a moment."""
    held = memoryview(view)
    return bytearray(held) if held.readonly or not isinstance(view, (bytearray, np.ndarray)) else view

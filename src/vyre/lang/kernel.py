"""How is a kernel called? ``kernel[n](...)`` checks its arguments, translates once, and runs on a backend.

A kernel, a kernel on a backend and a launch of it are small values that share one definition, where translations stay.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from html import escape
from operator import index
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast, overload

import numpy as np

from vyre.driver.backend import Backend
from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig
from vyre.driver.memory_cache import BoundedDict
from vyre.driver.resident import ResidentBuffer, allocated
from vyre.errors import BadInputs, KernelError, VyreError
from vyre.ir.binding import Array
from vyre.ir.launch import MAX_GRID_AXIS
from vyre.ir.limits import MAX_WORKGROUP_INVOCATIONS
from vyre.ir.names import nearest_word
from vyre.ir.program import DEFAULT_SUBGROUP_SIZE, Program
from vyre.lang.annotations import Parameter, parameters_of
from vyre.lang.arguments import Taken, take, take_plain
from vyre.lang.arrays import DeviceArray, resident
from vyre.lang.backends import require_backend, shared_backend
from vyre.lang.explain import explain
from vyre.lang.functions import plain_function
from vyre.lang.sequences import recording
from vyre.lang.source import Source
from vyre.lang.translate import Translation, translate
from vyre.lang.values import Layout

if TYPE_CHECKING:
    from vyre.lang.debugging import DebugReport

DEFAULT_WORKGROUP: Final = 64
_MOST_CONFIGS: Final = 256
# The grid is the launch's, and the outputs are the caller's arrays.
_DECIDED: Final = ("workgroup_override", "grid_override", "dispatch_elements", "max_output_bytes")
_OPTIONS: Final = [name for name in DispatchConfig.__struct_fields__ if name not in _DECIDED]


class Definition:
    """A kernel's source and what became of it, for each way its arrays lie in memory."""

    def __init__(self, source: Source, workgroup: tuple[int, int, int], subgroup: int) -> None:
        self.source = source
        self.name = source.function.__name__
        self.workgroup = workgroup
        self.subgroup = subgroup
        self._translations: dict[tuple[tuple[Layout, ...], bool], Translation] = {}
        self.configs: BoundedDict[tuple[int, ...], DispatchConfig] = BoundedDict(_MOST_CONFIGS)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        return parameters_of(self.source)

    def translation(self, layouts: tuple[Layout, ...] = (), *, strict: bool = False) -> Translation:
        """The program for arrays that lie like this, made anew when a number from outside has changed."""
        if layouts and all(layout is Layout.C_ORDER for layout in layouts):
            layouts = ()
        key = layouts, strict
        found = self._translations.get(key)
        if found is not None:
            for capture in found.captures:
                if not capture.is_current:
                    break
            else:
                return found
        made = translate(self.source, self.parameters, self.workgroup, self.subgroup, layouts, strict=strict)
        self._translations[key] = made
        return made

    def arrange(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        """The arguments in the order of the parameters."""
        parameters = self.parameters
        if len(arguments) == len(parameters) and not named:
            return arguments
        names = [parameter.name for parameter in parameters]
        given = dict(zip(names, arguments, strict=False))
        wrong = [name for name in named if name not in names or name in given]
        if wrong or len(arguments) > len(names):
            what = (
                f"no parameter '{wrong[0]}' left to give" if wrong else f"{len(names)} parameters, not {len(arguments)}"
            )
            raise BadInputs(f"kernel '{self.name}' has {what}.", f"call it as {self.name}[n]({', '.join(names)}).")
        given.update(named)
        for parameter in parameters:
            if parameter.name not in given and parameter.default is not inspect.Parameter.empty:
                given[parameter.name] = parameter.default
        missing = [name for name in names if name not in given]
        if missing:
            raise BadInputs(
                f"kernel '{self.name}' was not given '{missing[0]}'.", f"call it as {self.name}[n]({', '.join(names)})."
            )
        return [given[name] for name in names]


class Kernel:
    """A function for every invocation of a grid. ``kernel[n](...)`` runs it for at least ``n`` invocations."""

    def __init__(
        self,
        definition: Definition,
        backend: str | Backend | None = None,
        options: DispatchConfig = DEFAULT_CONFIG,
    ) -> None:
        self.definition = definition
        self.backend = require_backend(backend)
        self.options = options
        self._configs = definition.configs if options is DEFAULT_CONFIG else BoundedDict(_MOST_CONFIGS)
        self.__name__ = definition.name
        self.__doc__ = definition.source.function.__doc__
        self.__wrapped__ = definition.source.function

    @property
    def program(self) -> Program:
        """The program that calls with arrays in C order run."""
        return self.definition.translation().program

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self.definition.parameters

    def on(self, backend: str | Backend | None = None, **options: Any) -> Kernel:
        """The same kernel on a backend, by name or the backend itself, and with options of a dispatch.

        Options are those of ``vyre.DispatchConfig`` that a call leaves open: ``timeout_s=1.0``, ``handlers={...}``.
        """
        where = self.backend if backend is None else backend
        wrong = next((name for name in options if name not in _OPTIONS), None)
        if wrong is not None:
            near = nearest_word(wrong, _OPTIONS)
            fix = f"did you mean '{near}'?" if near else f"the options are {', '.join(_OPTIONS)}."
            raise BadInputs(f"'{wrong}' is no option of a call.", fix)
        return Kernel(self.definition, where, self.options.with_changes(**options) if options else self.options)

    def __getitem__(self, invocations: int | tuple[int, ...]) -> Launch:
        """A launch of at least so many invocations along each axis, in whole workgroups."""
        if type(invocations) is int and 0 <= invocations <= MAX_GRID_AXIS:
            return Launch(self, (-(-invocations // self.definition.workgroup[0]),))
        wanted = _axes(invocations, "invocations")
        sizes = self.definition.workgroup
        return Launch(self, tuple(-(-n // size) for n, size in zip(wanted, sizes, strict=False)))

    # Indexing makes launches, so there is nothing to go through.
    __iter__ = None

    def grid(self, *workgroups: int) -> Launch:
        """A launch of so many workgroups along each axis; without any, the kernel says it (``indirect_dispatch``)."""
        return Launch(self, _axes(workgroups, "workgroups") if workgroups else ())

    def config(self, grid: tuple[int, ...]) -> DispatchConfig:
        """The options of a launch of so many workgroups."""
        config = self._configs.get(grid)
        if config is None:
            name = self.definition.name
            is_indirect = self.program.stats().has_indirect_dispatch
            if is_indirect and grid:
                raise BadInputs(f"kernel '{name}' reads its grid from memory.", f"launch it as {name}.grid().")
            if not is_indirect and not grid:
                raise BadInputs(f"kernel '{name}' was given no size.", f"say how many workgroups: {name}.grid(4).")
            config = self._configs.keep(grid, self.options.with_changes(grid_override=grid or None))
        return config

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        name = self.definition.name
        raise BadInputs(
            f"kernel '{name}' was called without a size.",
            f"say how many invocations: {name}[n](...), or {name}.grid(...).",
        )

    debug = bind = __call__

    def __repr__(self) -> str:
        try:
            types = ", ".join(f"{p.name}: {p.type}" for p in self.parameters)
        except KernelError:
            types = "..."
        return f"<vyre kernel {self.definition.name}({types})>"

    def _repr_html_(self) -> str:
        """For notebooks: the function, and the program that it is or why it is none."""
        try:
            became = self.program._repr_html_()
        except KernelError as error:
            became = f"<pre>{escape(str(error))}</pre>"
        source = escape(dedent(self.definition.source.block))
        return f"<pre>{source}</pre><details><summary>as a program</summary>{became}</details>"


def _axes(given: Any, what: str) -> tuple[int, ...]:
    asked = given if isinstance(given, tuple) else (given,)
    try:
        axes = tuple(map(index, asked))
    except TypeError:
        axes = ()
    if (
        any(isinstance(one, bool) for one in asked)
        or not 1 <= len(axes) <= 3
        or not all(0 <= axis <= MAX_GRID_AXIS for axis in axes)
    ):
        raise BadInputs(f"{given!r} is no number of {what}.", "give one to three whole numbers from 0: (512, 512).")
    return axes


class Launch:
    """A kernel with a size: call it, bind it to its arguments, or debug it."""

    __slots__ = ("definition", "grid", "kernel")

    def __init__(self, kernel: Kernel, grid: tuple[int, ...]) -> None:
        self.kernel = kernel
        self.definition = kernel.definition
        self.grid = grid

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Runs the kernel; arrays that it writes are changed in place when this returns."""
        translation = self.definition.translation()
        if named or len(arguments) != len(translation.specs):
            arguments = tuple(self.definition.arrange(arguments, named))
        sequence = recording.get()
        if sequence is not None:
            sequence.record(self, arguments)
            return
        backend = shared_backend(self.kernel.backend)
        memory = take_plain(translation.specs, arguments, backend)
        if memory is not None:
            program = translation.program
            try:
                backend.dispatch_in_place(program, memory, self.kernel.config(self.grid))
            except VyreError as error:
                explain(error, program, backend)
                raise
            return
        self._call_any(arguments)

    def _call_any(self, arguments: Sequence[Any]) -> None:
        backend = self.backend_for(arguments)
        taken = take(self.definition.translation().specs, arguments, in_place=backend.capabilities.in_place)
        program = self.definition.translation(taken.layouts).program
        try:
            _run(backend, program, taken, self.kernel.config(self.grid))
        except VyreError as error:
            explain(error, program, backend)
            raise
        taken.give_back()

    def bind(self, *arguments: Any, **named: Any) -> BoundCall:
        """The call with these arguments, prepared: what it costs to run it again is little more than its work.

        Arrays are read and written when the prepared call runs; numbers are those given here.
        """
        return BoundCall(self, tuple(self.definition.arrange(arguments, named)))

    def debug(self, *arguments: Any, schedules: int = 8, **named: Any) -> DebugReport:
        """Runs the call on the reference, under several schedules, and tells of races, bounds and order.

        The arguments stay as they are; the report has the results.
        """
        from vyre.lang.debugging import debug

        return debug(self, self.definition.arrange(arguments, named), schedules)

    @property
    def has_backend(self) -> bool:
        """Whether somebody said where it runs."""
        return self.kernel.backend is not None

    def backend_for(self, arguments: Sequence[Any]) -> Backend:
        """The backend that was asked for, else the one the arrays are on, else the default one."""
        on_device = [argument for argument in arguments if isinstance(argument, DeviceArray)]
        backend = on_device[0].backend if on_device and not self.has_backend else shared_backend(self.kernel.backend)
        for argument in on_device:
            if not backend.owns(argument.buffer):
                raise BadInputs(
                    f"an array is on backend '{argument.backend.id}', and kernel '{self.definition.name}' runs on "
                    f"'{backend.id}'.",
                    "run it where its arrays are, or copy them: vyre.array(a.numpy(), backend=...).",
                )
        return backend

    def __repr__(self) -> str:
        return f"<launch of {self.definition.name}, {' x '.join(map(str, self.grid))} workgroups>"


class BoundCall:
    """A call with its arguments, ready to run again and again."""

    __slots__ = ("_arguments", "_explain", "_kept", "_launch", "_ready", "_run")

    def __init__(self, launch: Launch, arguments: tuple[Any, ...]) -> None:
        self._launch = launch
        self._arguments = arguments
        definition = launch.definition
        backend = launch.backend_for(arguments)
        specs = definition.translation().specs
        taken = take(specs, arguments, in_place=backend.capabilities.in_place)
        program = definition.translation(taken.layouts).program
        config = launch.kernel.config(launch.grid)
        self._explain = partial(explain, program=program, backend=backend)
        self._ready: tuple[Any, ...] = (arguments,)
        self._run: Callable[..., object] = launch._call_any
        numbers = [place for place, spec in enumerate(specs) if not spec.rank] + [len(specs)]
        on_device = [isinstance(one, ResidentBuffer) or place in numbers for place, one in enumerate(taken.memory)]
        try:
            executable = backend.compile(program, config)
        except VyreError as error:
            self._explain(error)
            raise
        if not any(isinstance(one, ResidentBuffer) for one in taken.memory):
            if backend.capabilities.in_place and taken.is_shared:
                self._ready, self._run = (taken.memory, config), executable.dispatch_in_place
        elif all(on_device):
            # What is passed beside the arrays is the same in every run.
            self._kept = [one if isinstance(one, ResidentBuffer) else resident(one, backend) for one in taken.memory]
            resources = [one if isinstance(one, ResidentBuffer) else one.buffer for one in self._kept]
            self._ready, self._run = (resources, config), executable.run_resident

    def __call__(self) -> None:
        if recording.get() is not None:
            self._launch(*self._arguments)
            return
        try:
            self._run(*self._ready)
        except VyreError as error:
            self._explain(error)
            raise

    def __repr__(self) -> str:
        return f"<prepared call of {self._launch.definition.name}>"


def _run(backend: Backend, program: Program, taken: Taken, config: DispatchConfig) -> None:
    """Runs on host memory in place; where some is resident, the rest is there for the time of the call."""
    memory = taken.memory
    if not any(isinstance(one, ResidentBuffer) for one in memory):
        backend.dispatch_in_place(program, cast("list[Array]", memory), config)
        return
    hosts = [one for one in memory if not isinstance(one, ResidentBuffer)]
    if not hosts:
        backend.dispatch_resident(program, cast("list[ResidentBuffer]", memory), config)
        return
    with allocated(backend, [one.nbytes for one in hosts]) as buffers:
        backend.upload_many([(buffer, 0, host) for buffer, host in zip(buffers, hosts, strict=True) if host.size])
        given = iter(buffers)
        resources = [one if isinstance(one, ResidentBuffer) else next(given) for one in memory]
        backend.dispatch_resident(program, resources, config)
        written = {place for place, decl in enumerate(program.buffers) if decl.role.gives_output}
        for place, (one, resource) in enumerate(zip(memory, resources, strict=True)):
            if place in written and not isinstance(one, ResidentBuffer) and one.size:
                one[...] = np.frombuffer(backend.download(resource), one.dtype)


@overload
def kernel(definition: Callable[..., Any], /) -> Kernel: ...
@overload
def kernel(
    *, workgroup: int | tuple[int, ...] = ..., subgroup: int = ..., backend: str | Backend | None = ...
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(
    definition: Any = None,
    /,
    *,
    workgroup: int | tuple[int, ...] = DEFAULT_WORKGROUP,
    subgroup: int = DEFAULT_SUBGROUP_SIZE,
    backend: str | Backend | None = None,
) -> Any:
    """Makes a Python function a kernel: every invocation of a launch runs its body.

    ``workgroup`` is the size of a workgroup along one to three axes, ``subgroup`` that of a subgroup. ``backend`` is
    where it runs, if not on the default one.
    """
    if definition is None:
        return lambda given: kernel_of(given, workgroup, subgroup, backend)
    return kernel_of(definition, workgroup, subgroup, backend)


def kernel_of(
    definition: Any, workgroup: int | tuple[int, ...], subgroup: int, backend: str | Backend | None
) -> Kernel:
    function = plain_function(definition, "@vyre.kernel")
    sizes = workgroup if isinstance(workgroup, tuple) else (workgroup,)
    is_size = 1 <= len(sizes) <= 3 and all(type(size) is int and size >= 1 for size in sizes)
    if not is_size or np.prod(sizes, dtype=object) > MAX_WORKGROUP_INVOCATIONS:
        raise KernelError(
            f"kernel '{function.__name__}' has a workgroup of {workgroup!r}.",
            f"give one to three sizes from 1, of at most {MAX_WORKGROUP_INVOCATIONS:,} invocations together.",
        )
    x, y, z = (*sizes, 1, 1)[:3]
    return Kernel(Definition(Source(function), (x, y, z), subgroup), backend)

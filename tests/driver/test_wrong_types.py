"""Arguments of wrong types raise errors of vyre that name them, at every public call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

import cpu_support
import vyre
from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend
from vyre.errors import BadInputs, InvalidProgram, VyreError

ADD = vyre.parse("program add(workgroup 4) { buffer 0 a: u32[] readwrite; a[gid.x] = a[gid.x] + 1 }")
DATA = [np.zeros(4, np.uint32)]
BACKENDS = {"cpu": cpu_support.backend(None, 1), "reference": ReferenceBackend()}
USES: dict[str, Callable[[Backend, Any], object]] = {
    "bool allocate": lambda backend, _: backend.allocate(True),
    "float allocate": lambda backend, _: backend.allocate(1.5),
    "text among sizes": lambda backend, _: backend.allocate_many([4, "a"]),
    "text upload": lambda backend, buffer: backend.upload(buffer, "abc"),
    "nothing to upload": lambda backend, buffer: backend.upload(buffer, None),
    "float offset": lambda backend, buffer: backend.upload(buffer, b"abc", 1.5),
    "text fill": lambda backend, buffer: backend.fill(buffer, "a"),
    "float fill offset": lambda backend, buffer: backend.fill(buffer, 1, 1.5),
    "float fill length": lambda backend, buffer: backend.fill(buffer, 1, 0, 1.5),
    "float download": lambda backend, buffer: backend.download(buffer, 1.5),
    "text length": lambda backend, buffer: backend.download(buffer, 0, "a"),
    "no program": lambda backend, _: backend.dispatch(None, []),
    "one step": lambda backend, _: backend.run_sequence(5),
    "float times": lambda backend, _: backend.run_sequence([], times=1.5),
    "number of a backend": lambda *_: vyre.backend(5),
    "sharing": lambda *_: vyre.backend("cpu", sharing=2),
    "cache": lambda *_: vyre.backend("cpu", cache="here"),
    "check": lambda *_: vyre.check("program"),
    "parse": lambda *_: vyre.parse(5),
    "seed": lambda *_: vyre.DispatchConfig(seed="x"),
    "elements": lambda *_: vyre.DispatchConfig(dispatch_elements=1.5),
    "timeout": lambda *_: vyre.DispatchConfig(timeout_s=True),
    "endless timeout": lambda *_: vyre.DispatchConfig(timeout_s=float("inf")),
    "label": lambda *_: vyre.DispatchConfig(label=5),
    "handlers": lambda *_: vyre.DispatchConfig(handlers=5),
    "switches": lambda *_: vyre.Optimization(5),
    "schedules": lambda *_: vyre.reference.explore(ADD, DATA, schedules="all"),
    "seed of a program": lambda *_: vyre.conform.generate("x"),
    "text to wait": lambda backend, _: backend.submit(ADD, DATA).result("a while"),
}


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_wrong_type_is_named(backend: str, name: str) -> None:
    device = BACKENDS[backend]
    with device.allocate(16) as buffer, pytest.raises(BadInputs) as refused:
        USES[name](device, buffer)
    assert "Fix: " in str(refused.value)


OF_NO_USE = {"number": 5, "real": 1.5, "nothing": None, "object": object(), "pairs": [(1, 2)], "numbers": [1]}

# Calls that take any number of things, or one record; what may be left out may be None.
PLURAL: dict[str, Callable[[Backend, Any, Any], object]] = {
    "buffers": lambda *_, x: vyre.Program.new(x, 4, []),
    "entry": lambda *_, x: vyre.Program.new([], 4, x),
    "wrapped": lambda *_, x: vyre.Program.wrapped([], 4, x),
    "with_entry": lambda *_, x: ADD.with_entry(x),
    "with_buffers": lambda *_, x: ADD.with_buffers(x),
    "sizes": lambda backend, _, x: backend.allocate_many(x),
    "uploads": lambda backend, _, x: backend.upload_many(x),
    "upload": lambda backend, _, x: backend.upload_many([x]),
    "fills": lambda backend, _, x: backend.upload_many([], fills=x),
    "fill": lambda backend, _, x: backend.upload_many([], fills=[x]),
    "downloads": lambda backend, _, x: backend.download_many(x),
    "resources": lambda backend, _, x: backend.dispatch_resident(ADD, x),
    "resources of a step": lambda backend, _, x: backend.run_sequence([vyre.Step(ADD, x)]),
    "reads": lambda backend, _, x: backend.run_sequence([], reads=x),
    "unchanged": lambda backend, buffer, x: backend.run_sequence(
        repeat=[vyre.Step(ADD, [buffer])], until=vyre.Unchanged(x)
    ),
    "memory": lambda backend, _, x: backend.dispatch_in_place(ADD, x),
    "batch": lambda backend, _, x: backend.compile(ADD).dispatch_batch(x),
    "slots": lambda *_, x: vyre.OutputBuffers(x),
    "sizes of slots": lambda *_, x: vyre.OutputBuffers.with_sizes(x),
    "stored": lambda *_, x: vyre.OutputBuffers().store(x),
    "waiting slots": lambda backend, _, x: backend.submit(ADD, DATA).result_into(x),
    "trace": lambda *_, x: vyre.trace(x).__enter__(),
    "encode": lambda *_, x: vyre.ir.encode(x),
    "decode": lambda *_, x: vyre.ir.decode(x),
    "print": lambda *_, x: vyre.ir.print_program(x),
}
OPTIONAL: dict[str, Callable[[Backend, Any, Any], object]] = {
    "dispatch": lambda backend, _, x: backend.dispatch(ADD, DATA, x),
    "dispatch_timed": lambda backend, _, x: backend.dispatch_timed(ADD, DATA, x),
    "submit": lambda backend, _, x: backend.submit(ADD, DATA, x).result(),
    "compile": lambda backend, _, x: backend.compile(ADD, x),
    "pipeline": lambda backend, _, x: backend.compile(ADD).dispatch(DATA, x),
    "dispatch_resident": lambda backend, buffer, x: backend.dispatch_resident(ADD, [buffer], x),
    "dispatch_in_place": lambda backend, _, x: backend.dispatch_in_place(ADD, [np.zeros(4, np.uint32)], x),
    "step": lambda backend, buffer, x: backend.run_sequence([vyre.Step(ADD, [buffer], config=x)]),
    "into": lambda backend, _, x: backend.dispatch(ADD, DATA, into=x),
    "into, by a pipeline": lambda backend, _, x: backend.compile(ADD).dispatch(DATA, into=x),
    "into, of a download": lambda backend, buffer, x: backend.download(buffer, into=x),
    "into, of downloads": lambda backend, buffer, x: backend.download_many([buffer], into=x),
    "into, of a sequence": lambda backend, buffer, x: backend.run_sequence([], reads=[buffer], into=x),
    "into, of nothing": lambda backend, buffer, x: backend.run_sequence([vyre.Step(ADD, [buffer])], into=x),
    "into, of a batch": lambda backend, _, x: backend.compile(ADD).dispatch_batch([DATA], into=x),
    "capabilities": lambda *_, x: vyre.check(ADD, x),
    "dispatcher": lambda *_, x: vyre.optimize(ADD, x),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [*PLURAL, *OPTIONAL])
def test_no_other_error_comes_out_of_a_wrong_argument(backend: str, name: str) -> None:
    device = BACKENDS[backend]
    use = PLURAL.get(name) or OPTIONAL[name]
    with device.allocate(16) as buffer:
        for kind, wrong in OF_NO_USE.items():
            if kind == "nothing" and name in OPTIONAL:
                continue
            # What is listed may be taken as it is, and be refused later, by the checker.
            try:
                use(device, buffer, x=wrong)
            except BadInputs as error:
                assert "Fix: " in str(error), kind
            else:
                assert kind in ("pairs", "numbers"), f"a {kind} is taken"
        assert not device.owns(wrong)


def test_numbers_of_numpy_are_numbers() -> None:
    config = vyre.DispatchConfig(timeout_s=np.float32(0.5), seed=np.int64(3), dispatch_elements=np.uint8(4))
    assert (config.timeout_s, config.seed, config.dispatch_elements) == (0.5, 3, 4)
    assert {type(config.timeout_s), type(config.seed), type(config.dispatch_elements)} == {float, int}


class Call(NamedTuple):
    """A public callable, and arguments that it takes."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = {}


@vyre.kernel
def scale(a: vyre.f32, x: vyre.In[vyre.f32], y: vyre.InOut[vyre.f32]):
    i = vyre.gid()
    if i < len(y):
        y[i] = a * x[i]


def run_with(backend: Backend, **options: Any) -> object:
    return backend.run_sequence([vyre.Step(ADD, [backend.allocate(16)], **options)])


def calls_of(backend: Backend) -> dict[str, Call]:
    """The public surface of a backend, each method with arguments that it takes."""
    buffer, pipeline = backend.allocate(16), backend.compile(ADD)
    given: dict[str, tuple[Any, ...]] = {
        "dispatch": (ADD, DATA, None),
        "dispatch_timed": (ADD, DATA, None),
        "dispatch_in_place": (ADD, [np.zeros(4, np.uint32)], None),
        "submit": (ADD, DATA, None),
        "compile": (ADD, None),
        "grid_sync_fits": (ADD, DATA, None),
        "allocate": (4,),
        "allocate_many": ([4],),
        "free": (backend.allocate(4),),
        "owns": (buffer,),
        "upload": (buffer, b"ab", 0),
        "upload_many": ([(buffer, 0, b"ab")],),
        "fill": (buffer, 0, 0, 4),
        "download": (buffer, 0, 4),
        "download_many": ([buffer],),
        "host_memory": (buffer,),
        "dispatch_resident": (ADD, [buffer], None),
        "prepare_sequence": ([vyre.Step(ADD, [buffer])],),
        "run_sequence": ([vyre.Step(ADD, [buffer])],),
    }
    into = {"into": None}
    options: dict[str, dict[str, Any]] = {
        **dict.fromkeys(("dispatch", "dispatch_timed", "download", "download_many"), into),
        "upload_many": {"fills": [(buffer, 0, 4, 1)]},
        "prepare_sequence": {"prefix": [], "repeat": [], "times": 1, "until": None, "reads": [buffer]},
        "run_sequence": {"prefix": [], "repeat": [], "times": 1, "until": None, "reads": [buffer], **into},
    }
    calls = {name: Call(getattr(backend, name), arguments, options.get(name, {})) for name, arguments in given.items()}
    calls |= {
        "pipeline.dispatch": Call(pipeline.dispatch, (DATA, None), into),
        "pipeline.dispatch_batch": Call(pipeline.dispatch_batch, ([DATA],)),
        "pipeline.explain": Call(pipeline.explain, (DATA,)),
        "sequence.run": Call(backend.prepare_sequence([vyre.Step(ADD, [buffer])]).run, (None,)),
        "pending.result": Call(lambda timeout: backend.submit(ADD, DATA).result(timeout), (60.0,)),
        "pending.result_into": Call(lambda into: backend.submit(ADD, DATA).result_into(into), (vyre.OutputBuffers(),)),
        "step": Call(lambda **fields: run_with(backend, **fields), (), dict.fromkeys(vyre.Step.__struct_fields__[2:])),
        "config": Call(
            lambda **fields: backend.dispatch(ADD, DATA, vyre.DispatchConfig(**fields)),
            (),
            {**_fields(vyre.DispatchConfig)},
        ),
        "stops": Call(lambda until: backend.run_sequence(repeat=[vyre.Step(ADD, [buffer])], until=until), (None,)),
        "unchanged": Call(
            lambda buffers: backend.run_sequence(repeat=[vyre.Step(ADD, [buffer])], until=vyre.Unchanged(buffers)),
            ([buffer],),
        ),
        "zero": Call(
            lambda one: backend.run_sequence(repeat=[vyre.Step(ADD, [buffer])], until=vyre.Zero(one)), (buffer,)
        ),
    }
    return calls


def _fields(kind: Any) -> dict[str, Any]:
    return {field.name: field.default for field in msgspec.structs.fields(kind)}


# Methods that take nothing, or are for authors of backends.
# Those that take nothing, and those that the driver calls on itself.
NOT_CALLED = {
    "availability", "cache_stats", "device_lost", "flush", "metrics", "prepare", "shutdown", "try_recover", "kernel",
    "executable_class", "require_resident", "schedule_runner",
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_method_of_a_backend_is_called_below(backend: str) -> None:
    device = BACKENDS[backend]
    methods = {name for name in dir(type(device)) if not name.startswith("_") and callable(getattr(type(device), name))}
    assert methods - NOT_CALLED == {name for name in calls_of(device) if name in methods}


def others() -> dict[str, Call]:
    """The public surface beside the backends."""
    decl, new = ADD.buffers[0], vyre.Program.new
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    named = {name: getattr(vyre.BufferDecl, name) for name in ("read", "read_write", "storage", "uniform", "output")}
    return {
        "Program": Call(vyre.Program, ("p", (), (1, 1, 1), (), 32, None)),
        "Program.new": Call(new, ([decl], 4, []), {"name": "p", "subgroup_size": 32}),
        "Program.wrapped": Call(
            vyre.Program.wrapped, ([decl], 4, []), {"name": "p", "generator": "g", "subgroup_size": 32}
        ),
        "Program.empty": Call(vyre.Program.empty, ("p",)),
        "Program.with_entry": Call(ADD.with_entry, ([],)),
        "Program.with_buffers": Call(ADD.with_buffers, ([decl],)),
        "Program.with_workgroup_size": Call(ADD.with_workgroup_size, (4,)),
        "Program.with_subgroup_size": Call(ADD.with_subgroup_size, (32,)),
        "Program.with_name": Call(ADD.with_name, ("p",)),
        "Program.with_source": Call(ADD.with_source, (None,)),
        "Program.buffer": Call(ADD.buffer, ("a",)),
        **{
            f"BufferDecl.{name}": Call(
                lambda *given, make=make: vyre.check(new([make(*given)], 4, [])), ("a", 0, vyre.u32, 4)
            )
            for name, make in named.items()
        },
        "BufferDecl.workgroup": Call(
            lambda *given: vyre.check(new([vyre.BufferDecl.workgroup(*given)], 4, [])), ("a", vyre.u32, 4, 0)
        ),
        **{
            f"BufferDecl.{name}": Call(
                lambda *given, name=name: vyre.check(ADD.with_buffers([getattr(decl, name)(*given)])), arguments
            )
            for name, arguments in {
                "with_name": ("a",),
                "with_binding": (0,),
                "with_count": (4,),
                "with_output": (True,),
                "with_pipeline_live_out": (True,),
                "with_output_byte_range": (0, 4),
                "with_access": (decl.access,),
            }.items()
        },
        "parse": Call(vyre.parse, (str(ADD),)),
        "check": Call(vyre.check, (ADD, None)),
        "optimize": Call(vyre.optimize, (ADD, None)),
        "backend": Call(vyre.backend, ("reference",)),
        "list_backends": Call(vyre.list_backends),
        "array": Call(vyre.array, ([1.0],), {"dtype": None, "backend": "reference"}),
        "sequence": Call(vyre.sequence, ("reference",)),
        "sequence.repeat": Call(lambda times, until: vyre.sequence().repeat(times, until=until), (1, None)),
        "Step": Call(vyre.Step, (ADD, [], None, None, None)),
        "DispatchConfig": Call(vyre.DispatchConfig, (), _fields(vyre.DispatchConfig)),
        "with_changes": Call(vyre.DispatchConfig().with_changes, (), _fields(vyre.DispatchConfig)),
        "Optimization": Call(vyre.Optimization, (), _fields(vyre.Optimization)),
        "OutputBuffers": Call(vyre.OutputBuffers, ([bytearray(4)],)),
        "OutputBuffers.with_sizes": Call(vyre.OutputBuffers.with_sizes, ([4],)),
        "OutputBuffers.store": Call(vyre.OutputBuffers().store, ([b"ab"],)),
        "kernel": Call(vyre.kernel, (scale.__wrapped__,)),
        "kernel, with options": Call(
            lambda **options: vyre.kernel(**options)(scale.__wrapped__)[4](1.0, x, y),
            (),
            {"workgroup": 4, "subgroup": 32, "backend": "reference"},
        ),
        "function": Call(vyre.function, (scale.__wrapped__,)),
        "kernel.on": Call(
            lambda *given, **options: scale.on(*given, **options)[4](1.0, x, y),
            ("reference",),
            {
                "timeout_s": 60.0,
                "handlers": None,
                "label": "",
                "seed": None,
                "optimize": True,
            },
        ),
        "kernel[n]": Call(lambda size: scale[size], (4,)),
        "kernel.grid": Call(scale.grid, (4,)),
        "launch": Call(scale.on("reference")[4], (1.0, x, y)),
        "launch.bind": Call(lambda *given: scale.on("reference")[4].bind(*given)(), (1.0, x, y)),
        "launch.debug": Call(scale[4].debug, (1.0, x, y), {"schedules": 2}),
        "check_races": Call(vyre.check_races, (scale[4], 1.0, x, y)),
        "array.assign": Call(lambda data: vyre.array(x, backend="reference").assign(data), (x,)),
        "array.fill": Call(lambda byte: vyre.array(x, backend="reference").fill(byte), (0,)),
        "array[]": Call(lambda key: vyre.array(x, backend="reference")[key], (0,)),
    }


# Names that are called through others above, modules, types and errors, and functions that only kernels call.
UNCALLED = {
    "BufferDecl",
    "Program",
    "Unchanged",
    "Zero",
    "DType",
    "telemetry",
    "In",
    "InOut",
    "Out",
    "trace",
    "Backend",
}


def test_every_public_name_is_called_below() -> None:
    called = {name.partition(".")[0] for name in others()}
    kinds = (ModuleType, vyre.DType)
    left = {
        name
        for name in vyre.__all__
        if not isinstance(getattr(vyre, name), kinds)
        and not (isinstance(getattr(vyre, name), type) and issubclass(getattr(vyre, name), Exception))
        and name not in vyre.lang.INTRINSICS
    }
    assert left - UNCALLED <= called


WRONG = {**OF_NO_USE, "text": "abc", "bytes": b"ab", "mapping": {1: 2}, "function": len, "negative": -1}


def spoiled(call: Call, name: str) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """The call with one argument after another of each wrong type."""
    for kind, wrong in WRONG.items():
        for place in range(len(call.arguments)):
            arguments = (*call.arguments[:place], wrong, *call.arguments[place + 1 :])
            yield f"{name}, argument {place}: {kind}", arguments, call.options
        for option in call.options:
            yield f"{name}, {option}: {kind}", call.arguments, {**call.options, option: wrong}


def unclear_errors(calls: dict[str, Call]) -> list[str]:
    """What fails in another way than with an error of vyre that says how to fix it."""
    found = []
    for name, call in calls.items():
        call.function(*call.arguments, **call.options)
        for what, arguments, options in spoiled(call, name):
            try:
                call.function(*arguments, **options)
            except VyreError as error:
                if "fix: " not in str(error).lower():
                    found.append(f"{what}: no fix in {error}")
            except Exception as error:
                found.append(f"{what}: {error!r}")
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_methods_of_a_backend_raise_no_other_errors(backend: str) -> None:
    assert unclear_errors(calls_of(BACKENDS[backend])) == []


def test_public_names_raise_no_other_errors() -> None:
    assert unclear_errors(others()) == []


def test_functions_of_kernels_say_that_they_are_for_kernels() -> None:
    for name, function in vyre.lang.INTRINSICS.items():
        for wrong in WRONG.values():
            with pytest.raises(VyreError, match="Fix: "):
                function(wrong)
        assert name


def test_a_program_that_holds_no_nodes_says_so() -> None:
    program = vyre.Program.new([], 4, [5])
    with pytest.raises(InvalidProgram, match=r"holds something that is no node.*Fix: see vyre\.check"):
        program.stats()
    assert not vyre.check(program).ok

"""Executables: compiled once for equal programs, with nothing left to compile when data is bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import pytest

import cpu_support
from backends_for_tests import FixedDevice, RecordingBackend, double, increment, words
from vyre.backends.reference import ReferenceBackend
from vyre.driver import Backend, DispatchConfig, Step, routes, telemetry
from vyre.driver.device import Copy, Fill
from vyre.errors import DispatchFailed, InvalidProgram, UnsupportedFeature
from vyre.ir import parse
from vyre.ir.program import Program

BARRIERS = """
program barriers(workgroup 4) {
  buffer 0 a: u32[] readwrite
  let right = a[gid.x + 1]
  grid_sync
  a[gid.x] = right
}"""
MAKERS: dict[str, Callable[[], Program]] = {"plain": increment, "with barriers": lambda: parse(BARRIERS)}
RUN_ONLY = [
    DispatchConfig(label="other"),
    DispatchConfig(fixpoint_iterations=3),
    DispatchConfig(grid_override=(1,)),
    DispatchConfig(timeout_s=60.0),
    DispatchConfig(handlers={"ask": lambda _requests, _buffers: None}),
]


@pytest.mark.parametrize("name", MAKERS)
def test_an_equal_program_is_compiled_once(name: str) -> None:
    make = MAKERS[name]
    backend = RecordingBackend(ReferenceBackend(grid_sync=False))
    executable = backend.compile(make())
    compiled = backend.counts["compile"]
    assert compiled == len(executable.launched()) > 0
    assert backend.compile(make()) is executable
    assert backend.compile(make(), DispatchConfig()) is executable
    assert backend.calls == ["compile"] * compiled
    backend.compile(make(), DispatchConfig(workgroup_override=(8,)))
    assert backend.counts["compile"] == 2 * compiled


@pytest.mark.parametrize("name", MAKERS)
def test_binding_and_running_compile_nothing(name: str) -> None:
    """Whatever the sizes, the geometry and the way to run."""
    backend = RecordingBackend(ReferenceBackend(grid_sync=False))
    executable = backend.compile(MAKERS[name]())
    compiled = backend.counts["compile"]
    for size in (1, 5, 64, 0):
        data = np.arange(size, dtype=np.uint32)
        executable.dispatch([data])
        executable.dispatch([data], DispatchConfig(fixpoint_iterations=2, grid_override=(2,)))
        backend.dispatch(MAKERS[name](), [data])
        with backend.allocate(4 * size) as x:
            backend.fill(x)
            backend.dispatch_resident(MAKERS[name](), [x])
            backend.run_sequence(repeat=[Step(MAKERS[name](), [x])], times=2)
    assert backend.counts["compile"] == compiled


def test_the_processor_compiles_when_it_is_asked_to_and_not_after() -> None:
    backend = cpu_support.backend(keep=False)
    program = parse("program once(workgroup 4) { buffer 0 a: u32[] readwrite; a[gid.x] = a[gid.x] * 41 + 17 }")
    before = telemetry.snapshot()
    executable = backend.compile(program)
    after = telemetry.snapshot()
    assert after.compile_misses == before.compile_misses + 1
    for size in (1, 5000):
        executable.dispatch([np.zeros(size, np.uint32)])
        backend.dispatch(parse(str(program)), [np.zeros(size, np.uint32)])
    assert telemetry.snapshot().compile_misses == after.compile_misses
    # Equal programs are found.
    assert telemetry.snapshot().compile_hits == after.compile_hits + 2


@pytest.mark.parametrize("config", RUN_ONLY, ids=range(len(RUN_ONLY)))
def test_a_config_that_changes_no_code_compiles_nothing_and_counts_for_its_own_calls(config: DispatchConfig) -> None:
    backend = RecordingBackend()
    plain = backend.compile(increment())
    other = backend.compile(increment(), config)
    assert backend.counts["compile"] == 1
    assert (plain.config, other.config) == (DispatchConfig(), config)
    assert plain.key == other.key
    passes, lanes = config.passes, 4 if config.grid_override else 6
    wanted = [passes] * lanes + [0] * (6 - lanes)
    data = np.zeros(6, np.uint32)
    for _ in range(2):
        assert words(plain.dispatch([data])[0]) == [1] * 6
        assert words(other.dispatch([data])[0]) == wanted
        assert words(backend.compile(increment(), config).dispatch([data])[0]) == wanted
    assert backend.counts["compile"] == 1


def test_failures_of_the_compiler_appear_when_compiling_and_nothing_is_kept_of_them() -> None:
    backend = RecordingBackend(fail_at=[("compile", 0)])
    with pytest.raises(DispatchFailed, match="compile number 0"):
        backend.compile(double())
    assert backend.live == []
    assert words(backend.compile(double()).dispatch([np.arange(3, dtype=np.uint32)])[0]) == [0, 2, 4]


def test_what_is_wrong_with_a_program_is_told_before_the_device_compiles() -> None:
    backend = RecordingBackend(ReferenceBackend(grid_sync=False, resident=False))
    with pytest.raises(InvalidProgram):
        backend.compile(increment().with_workgroup_size(4096))
    with pytest.raises(UnsupportedFeature):
        backend.compile(parse(BARRIERS), DispatchConfig(cooperative="require"))
    assert backend.calls == []


def test_executables_are_kept_within_a_bound() -> None:
    backend = RecordingBackend()
    for number in range(600):
        backend.compile(increment(number))
    assert backend.counts["compile"] == 600
    backend.compile(increment(599))
    assert backend.counts["compile"] == 600
    # The first has gone.
    backend.compile(increment(0))
    assert backend.counts["compile"] == 601


@pytest.mark.parametrize("backend", [ReferenceBackend(), cpu_support.backend()], ids=lambda one: one.id)
def test_each_route_has_an_executable_of_its_own(backend: Backend) -> None:
    program = parse(BARRIERS)
    made = {route: backend.compile(program, route=route) for route in ("native", "resident", "host")}  # type: ignore[arg-type]
    assert {route: one.route for route, one in made.items()} == {route: route for route in made}
    data = np.arange(5, dtype=np.uint32)
    for one in made.values():
        assert words(one.dispatch([data])[0]) == [1, 2, 3, 4, 0]
    assert routes.choose_route(backend, program, [data], DispatchConfig()) == "native"


def test_inputs_that_no_statement_names_are_not_copied() -> None:
    """They keep their place among the inputs, whether the source or the optimizer leaves them out."""

    class Noting(FixedDevice):
        written: ClassVar[list[bytes]] = []

        def write(self, copies: Sequence[Copy], fills: Sequence[Fill]) -> None:
            self.written.extend(bytes(data) for _, _, data in copies)
            super().write(copies, fills)

    program = parse("""program p(workgroup 1) {
      buffer 0 unused: u32[1] read
      buffer 1 named: u32[1] read
      buffer 2 dropped: u32[1] read
      buffer 3 measured: u32[] read
      buffer 4 out: u32[1] output
      let nothing = dropped[0] * 3
      out[0] = named[0] + len(measured)
    }""")
    inputs = [np.array([value], "<u4") for value in (1, 2, 3, 4)]
    (output,) = Backend(Noting(b"\7\0\0\0")).dispatch(program, inputs)
    assert bytes(output) == b"\7\0\0\0"
    assert Noting.written == [inputs[1].tobytes(), inputs[3].tobytes()]

"""The optimizer's kernels, optimized by themselves, give the same results, and they are free of races."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import cpu_support
from vyre import reference
from vyre.backends.reference import ReferenceBackend
from vyre.checker import check
from vyre.conform import generate
from vyre.conform.mixture import made
from vyre.driver.optimizing import BackendDispatcher, optimize
from vyre.ir import parse
from vyre.ir.program import Program
from vyre.optimizer import pipeline
from vyre.optimizer.bytecode import rule_names, rule_table
from vyre.optimizer.dispatcher import ProgramSet, whole_programs
from vyre.optimizer.encode import encode
from vyre.optimizer.kernels import Kernels, kernels
from vyre.optimizer.switches import EVERY_BIT

NAMES = [field.name for field in msgspec.structs.fields(Kernels)]


@pytest.fixture(scope="module")
def dispatcher() -> BackendDispatcher:
    return BackendDispatcher(cpu_support.backend())


@pytest.fixture(scope="module")
def optimized(dispatcher: BackendDispatcher) -> Kernels:
    return Kernels(*(optimize(getattr(kernels(), name), dispatcher) for name in NAMES))


class SelfOptimized(BackendDispatcher):
    """Runs kernels that the optimizer has optimized."""

    def __init__(self, own: Kernels) -> None:
        super().__init__(cpu_support.backend())
        self.own = own

    def programs(self) -> ProgramSet:
        return ProgramSet(*(getattr(self.own, name) for name in NAMES), rule_names(), rule_table().words)


def test_optimized_kernels_are_legal(optimized: Kernels) -> None:
    for name in NAMES:
        assert not check(getattr(optimized, name)).errors, name
        assert getattr(optimized, name) != getattr(kernels(), name), name


def results(dispatcher: BackendDispatcher) -> list[Program]:
    return [optimize(made(seed).case.program, dispatcher) for seed in range(60)]


def test_optimized_kernels_give_the_same_programs(dispatcher: BackendDispatcher, optimized: Kernels) -> None:
    assert results(SelfOptimized(optimized)) == results(dispatcher)


def test_optimized_kernels_are_a_fixpoint(optimized: Kernels) -> None:
    dispatcher = SelfOptimized(optimized)
    for name in NAMES:
        assert optimize(getattr(optimized, name), dispatcher) == getattr(optimized, name), name


SMALL = """program small(workgroup 1) {
  buffer 0 y: u32[8] readwrite
  let a = 0
  for k in 0 .. y[0] { a = a + (y[1] + 0) * 8; let unused = y[2]; if y[1] == y[1] { y[k] = 3 * 4 + a } }
  y[0] = (y[1] + 0) * 8
}"""


@pytest.mark.parametrize("groups", [1, 2])
def test_kernels_have_no_races(groups: int) -> None:
    """On a small arena, under a schedule that exposes many races: only atomics may access the same word."""
    arena, _ = encode(parse(SMALL))
    programs = whole_programs()
    given = pipeline._given(arena, EVERY_BIT)
    sizes = pipeline._sizes(given, len(programs.rules), workgroups=groups)
    memory = pipeline._memory(given, sizes) | {"rules": programs.table}
    for program, _ in pipeline._steps(arena, programs):
        inputs = {decl.name: memory[decl.name].view(decl.dtype.storage) for decl in program.input_buffers()}
        result = reference.run(program, inputs, grid=(groups, 1, 1), races=True, fuel=50_000_000)
        assert result.races == (), program.name
        memory |= {name: np.asarray(array) for name, array in result.outputs.items()}


def test_the_reference_backend_gives_the_same_program_with_and_without_resident_buffers(
    dispatcher: BackendDispatcher,
) -> None:
    on_reference = BackendDispatcher(ReferenceBackend(fuel=100_000_000))
    plain = BackendDispatcher(ReferenceBackend(resident=False, fuel=100_000_000))
    for program in (parse(SMALL), generate(3, 2).program):
        wanted = optimize(program, dispatcher)
        assert optimize(program, on_reference) == wanted
        assert optimize(program, plain) == wanted

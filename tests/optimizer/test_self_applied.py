"""The optimizer's own programs, optimised by themselves, do the same; and they have no races."""

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
def optimised(dispatcher: BackendDispatcher) -> Kernels:
    return Kernels(*(optimize(getattr(kernels(), name), dispatcher) for name in NAMES))


class SelfOptimised(BackendDispatcher):
    """Runs what the optimizer made of its own programs."""

    def __init__(self, own: Kernels) -> None:
        super().__init__(cpu_support.backend())
        self.own = own

    def programs(self) -> ProgramSet:
        return ProgramSet(*(getattr(self.own, name) for name in NAMES), rule_names(), rule_table().words)


def test_they_stay_legal(optimised: Kernels) -> None:
    for name in NAMES:
        assert not check(getattr(optimised, name)).errors, name
        assert getattr(optimised, name) != getattr(kernels(), name), name


def results(dispatcher: BackendDispatcher) -> list[Program]:
    return [optimize(made(seed).case.program, dispatcher) for seed in range(60)]


def test_optimised_by_themselves_they_optimise_the_same(dispatcher: BackendDispatcher, optimised: Kernels) -> None:
    assert results(SelfOptimised(optimised)) == results(dispatcher)


def test_they_are_their_own_fixpoint(optimised: Kernels) -> None:
    dispatcher = SelfOptimised(optimised)
    for name in NAMES:
        assert optimize(getattr(optimised, name), dispatcher) == getattr(optimised, name), name


SMALL = """program small(workgroup 1) {
  buffer 0 y: u32[8] readwrite
  let a = 0
  for k in 0 .. y[0] { a = a + (y[1] + 0) * 8; let unused = y[2]; if y[1] == y[1] { y[k] = 3 * 4 + a } }
  y[0] = (y[1] + 0) * 8
}"""


@pytest.mark.parametrize("groups", [1, 2])
def test_they_have_no_races(groups: int) -> None:
    """On a small arena, under an order in which many races would show: atomics meet, plain accesses do not."""
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


def test_the_oracle_the_plain_and_the_resident_path_give_the_same_program(dispatcher: BackendDispatcher) -> None:
    on_reference = BackendDispatcher(ReferenceBackend(fuel=100_000_000))
    plain = BackendDispatcher(ReferenceBackend(resident=False, fuel=100_000_000))
    for program in (parse(SMALL), generate(3, 2).program):
        wanted = optimize(program, dispatcher)
        assert optimize(program, on_reference) == wanted
        assert optimize(program, plain) == wanted

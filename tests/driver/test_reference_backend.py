"""The reference backend gives what the interpreter gives, by every way through the contract."""

from __future__ import annotations

import numpy as np
import pytest

from backends_for_tests import increment
from vyre.backends.reference import ReferenceBackend
from vyre.conform import Case, answer_traps, generate, run_on_reference
from vyre.driver import DispatchConfig, binder_of
from vyre.driver.resident import allocated
from vyre.errors import FuelExhausted
from vyre.ir.buffers import BufferDecl
from vyre.ir.build import atomic_add, gid, let, store, var
from vyre.ir.program import Program
from vyre.reference import REVERSED
from vyre.semantics.types import DType

PROGRAMS = 120


def config_of(case: Case) -> DispatchConfig:
    handlers = dict.fromkeys(case.handled, answer_traps)
    return DispatchConfig(grid_override=case.grid, dispatch_elements=case.elements, handlers=handlers)


def expected(case: Case) -> list[bytes]:
    result = run_on_reference(case)
    return [result.output_bytes(name) for name in result.outputs]


def run_resident(backend: ReferenceBackend, case: Case) -> list[bytes]:
    """The outputs of a run on resident buffers that are longer than needed where they may be, and not zero at first."""
    config = config_of(case)
    plan = binder_of(case.program).bind(case.inputs, config).plan
    sizes = [
        slot.byte_size + (0 if slot.role.takes_input and not case.program.buffer(slot.name).count else 8)
        for slot in plan.descriptors
    ]
    with allocated(backend, sizes) as resources:
        by_name = dict(zip([slot.name for slot in plan.descriptors], resources, strict=True))
        backend.upload_many([(by_name[name], 0, data) for name, data in case.inputs.items()])
        backend.dispatch_resident(case.program, resources, config)
        whole = backend.download_many([(by_name[slot.name], 0, slot.byte_size) for slot in plan.outputs])
        rest = backend.download_many([(by_name[slot.name], slot.byte_size, None) for slot in plan.outputs])
    assert all(set(view) <= {0xA5} for view in rest)
    return [bytes(view) for view in plan.trimmed(whole)]


@pytest.mark.parametrize("first", range(0, PROGRAMS, 20))
def test_generated_programs_give_the_interpreters_bytes(first: int) -> None:
    backend = ReferenceBackend(poison=0xA5)
    for seed in range(first, first + 20):
        case = generate(seed, 25)
        wanted = expected(case)
        outputs = backend.dispatch(case.program, case.inputs, config_of(case))
        assert [bytes(view) for view in outputs] == wanted, f"seed {seed}"
        assert run_resident(backend, case) == wanted, f"seed {seed}, resident"


def test_schedules_are_honoured() -> None:
    tickets = Program.new(
        [BufferDecl.read_write("next", 0, DType.U32, 1), BufferDecl.output("ticket", 1, DType.U32, 6)],
        1,
        [let("mine", atomic_add("next", 0, 1)), store("ticket", gid(), var("mine"))],
    )

    def run(backend: ReferenceBackend, **config: int) -> list[int]:
        outputs = backend.dispatch(tickets, [np.zeros(1, np.uint32)], DispatchConfig(**config))
        return np.frombuffer(outputs[1], np.uint32).tolist()

    assert run(ReferenceBackend()) == [0, 1, 2, 3, 4, 5]
    assert run(ReferenceBackend(schedule=REVERSED)) == [5, 4, 3, 2, 1, 0]
    orders = {tuple(run(ReferenceBackend(), seed=seed)) for seed in range(8)}
    assert len(orders) > 1
    assert run(ReferenceBackend(), seed=3) == run(ReferenceBackend(), seed=3)


def test_fuel_bounds_a_run() -> None:
    backend = ReferenceBackend(fuel=10)
    with pytest.raises(FuelExhausted):
        backend.dispatch(increment(), [np.zeros(64, np.uint32)])

"""Binding: slots, sizes and roles are decided once; what does not fit is told by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from backends_for_tests import FixedBackend, RecordingBackend, double, increment
from vyre.backends.reference import ReferenceBackend
from vyre.driver import Backend, DispatchConfig, binder_of, routes
from vyre.driver.binding import layout_fingerprint
from vyre.driver.config import DEFAULT_CONFIG
from vyre.errors import BadInputs, InvalidProgram, UnsupportedFeature
from vyre.ir.buffers import BufferDecl, Role
from vyre.ir.build import all_reduce, atomic_add, cast, gid, grid_sync, indirect_dispatch, let, load, store
from vyre.ir.program import Program
from vyre.semantics.types import DType

U32 = DType.U32
MIXED = Program.new(
    [
        BufferDecl.read_write("state", 3, U32, 4),
        BufferDecl.output("late", 1, DType.U16).with_output_byte_range(2, 6),
        BufferDecl.workgroup("scratch", U32, 8),
        BufferDecl.read("source", 0, DType.U8),
    ],
    4,
    [store("late", gid(), cast(DType.U16, load("source", gid())))],
)


def test_descriptors_go_by_binding_and_slots_by_declaration() -> None:
    plan = binder_of(MIXED).plan((4, 9), DEFAULT_CONFIG)
    assert [d.name for d in plan.descriptors] == ["source", "late", "state"]
    assert [d.name for d in plan.inputs] == ["state", "source"]
    assert [d.name for d in plan.outputs] == ["state", "late"]
    assert [d.role for d in plan.descriptors] == [Role.INPUT, Role.OUTPUT, Role.INPUT_OUTPUT]
    assert [(d.count, d.byte_size) for d in plan.descriptors] == [(9, 9), (9, 18), (4, 16)]
    assert (plan.input_bytes, plan.output_bytes) == (16 + 9, 16 + 4)
    assert plan.launch.grid == (3, 1, 1)


def test_a_plan_is_made_once_for_the_same_sizes_and_geometry() -> None:
    binder = binder_of(MIXED)
    assert binder_of(MIXED) is binder
    plan = binder.plan((4, 9), DEFAULT_CONFIG)
    assert binder.plan((4, 9), DispatchConfig(label="x")) is plan
    assert binder.plan((4, 8), DEFAULT_CONFIG) is not plan
    assert binder.plan((4, 9), DispatchConfig(grid_override=(7,))).launch.grid == (7, 1, 1)
    for size in range(500):
        binder.plan((4, size), DEFAULT_CONFIG)
    assert len(binder._plans) <= 64


def test_byte_ranges_trim_what_comes_back() -> None:
    state, source = np.zeros(4, np.uint32), np.array([1, 2, 3, 4, 5], np.uint8)
    outputs = ReferenceBackend().dispatch(MIXED, [state, source])
    assert [bytes(view) for view in outputs] == [bytes(16), bytes([2, 0, 3, 0])]


def test_the_layout_fingerprint_is_of_the_interface() -> None:
    base = layout_fingerprint(double())
    assert layout_fingerprint(double(name="other").with_workgroup_size(64)) == base
    buffers = double().buffers
    assert layout_fingerprint(double().with_buffers(reversed(buffers))) == base
    changed = [
        (buffers[0].with_binding(9), buffers[1]),
        (buffers[0].with_count(4), buffers[1]),
        (buffers[0], buffers[1].with_output(False)),
    ]
    assert len({base, *(layout_fingerprint(double().with_buffers(new)) for new in changed)}) == 4


BAD_INPUTS = {
    "too few": ([np.zeros(4, np.uint32)], "takes 2 inputs"),
    "not a whole element": ([bytes(16)[:15], bytes(3)], "multiple of 4 bytes"),
    "wrong static length": ([np.zeros(3, np.uint32), b""], "has 4 elements and its input 3"),
    "wrong type": ([np.zeros(4, np.int32), b""], "array of int32"),
    "no buffer": ([3, b""], "is a int"),
    "unknown name": ({"state": bytes(16), "source": b"", "more": b""}, "no buffer 'more'"),
    "missing name": ({"state": bytes(16)}, "'source' of 'main' has no input"),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_inputs_that_do_not_fit_are_told(case: str) -> None:
    inputs, message = BAD_INPUTS[case]
    with pytest.raises(BadInputs) as caught:
        ReferenceBackend().dispatch(MIXED, inputs)
    assert message in str(caught.value)


def test_any_contiguity_and_shape_of_an_array_is_taken() -> None:
    grid = np.arange(12, dtype=np.uint32).reshape(3, 4)
    backend = ReferenceBackend()
    for array in (grid, grid[:, ::2], grid.T, np.asfortranarray(grid), np.array([], np.uint32)):
        expected = (np.ascontiguousarray(array).reshape(-1) + 1).tobytes()
        assert bytes(backend.dispatch(increment(), [array])[0]) == expected


def test_resident_buffers_may_be_longer_but_not_shorter() -> None:
    backend = ReferenceBackend(poison=0xA5)
    source, late, state = buffers = backend.allocate_many([3, 10, 20])
    backend.upload_many([(source, 0, b"\1\2\3"), (state, 0, bytes(16))])
    backend.dispatch_resident(MIXED, buffers)
    assert bytes(backend.download(late)) == b"\1\0\2\0\3\0\0\0\xa5\xa5"
    assert bytes(backend.download(state)) == bytes(16) + b"\xa5" * 4
    short = backend.allocate(5)
    with pytest.raises(BadInputs, match="'late' needs 8 bytes and its resident buffer has 5"):
        backend.dispatch_resident(MIXED, [source, short, state])


BAD_RESOURCES: dict[str, tuple[Callable[[Backend, list], list], str]] = {  # type: ignore[type-arg]
    "too few": (lambda _, r: r[:2], "has 3 host buffers (source, late, state) and was given 2"),
    "foreign": (lambda _, r: [ReferenceBackend().allocate(3), *r[1:]], "belongs to another backend"),
    "not resident": (lambda _, r: [b"123", *r[1:]], "a bytes is no resident buffer"),
    "freed": (lambda b, r: [b.free(r[0]), r][1], "has been freed"),
    "aliased": (lambda _, r: [r[2], r[1], r[2]], "'source' and 'state' share a resident buffer"),
}


@pytest.mark.parametrize("case", BAD_RESOURCES)
def test_resources_that_do_not_fit_are_told(case: str) -> None:
    change, message = BAD_RESOURCES[case]
    backend = ReferenceBackend()
    resources = backend.allocate_many([3, 32, 16])
    with pytest.raises(BadInputs) as caught:
        backend.dispatch_resident(MIXED, change(backend, resources))
    assert message in str(caught.value)


def test_a_resident_buffer_of_no_whole_number_of_elements_is_told() -> None:
    backend = ReferenceBackend()
    with pytest.raises(BadInputs, match="no whole number of u32"):
        backend.dispatch_resident(increment(), [backend.allocate(7)])


def test_two_buffers_that_are_only_read_may_share_memory() -> None:
    add = Program.new(
        [BufferDecl.read("a", 0, U32), BufferDecl.read("b", 1, U32), BufferDecl.output("c", 2, U32)],
        1,
        [store("c", gid(), load("a", gid()) + load("b", gid()))],
    )
    backend = ReferenceBackend()
    both, out = backend.allocate_many([8, 8])
    backend.upload(both, np.array([3, 4], np.uint32))
    backend.dispatch_resident(add, [both, both, out])
    assert np.frombuffer(backend.download(out), np.uint32).tolist() == [6, 8]


INDIRECT = Program.new(
    [BufferDecl.read_write("counts", 0, U32), BufferDecl.read_write("hits", 1, U32, 1)],
    2,
    [indirect_dispatch("counts", 4), let("t", atomic_add("hits", 0, 1)), store("counts", 1, 1)],
)


def test_an_indirect_grid_is_read_once_when_the_dispatch_starts() -> None:
    counts = np.array([9, 3, 2, 1], np.uint32)
    hits = np.zeros(1, np.uint32)
    backend = RecordingBackend()
    for passes in (1, 3):
        config = DispatchConfig(fixpoint_iterations=passes)
        outputs = backend.dispatch(INDIRECT, [counts, hits], config)
        assert np.frombuffer(outputs[1], np.uint32).tolist() == [12 * passes]
        resources = backend.allocate_many([16, 4])
        backend.upload_many([(resources[0], 0, counts), (resources[1], 0, hits)])
        backend.dispatch_resident(INDIRECT, resources, config)
        assert backend.download_many(resources) == outputs


def test_an_indirect_grid_outside_its_buffer_is_told() -> None:
    backend = ReferenceBackend()
    short = np.zeros(3, np.uint32)
    with pytest.raises(BadInputs, match="which has 12"):
        backend.dispatch(INDIRECT, [short, short[:1]])
    resources = backend.allocate_many([12, 4])
    with pytest.raises(BadInputs, match="which has 12"):
        backend.dispatch_resident(INDIRECT, resources)


def test_what_a_device_lacks_is_told_before_anything_runs() -> None:
    small = FixedBackend()
    wide = Program.new([BufferDecl.read_write("x", 0, DType.F64, 1)], 1, [])
    with pytest.raises(UnsupportedFeature, match="no f64"):
        small.dispatch(wide, [np.zeros(1)])
    with pytest.raises(UnsupportedFeature, match=r"workgroup of \(4, 1, 1\)"):
        small.dispatch(increment(), [np.zeros(1, np.uint32)])
    shared = Program.new([BufferDecl.workgroup("s", U32, 4)], 1, [])
    with pytest.raises(UnsupportedFeature, match="workgroup memory"):
        small.dispatch(shared, [])
    assert small.device.launches == 0


@pytest.mark.parametrize("statement", [grid_sync(), all_reduce("add", "state")])
def test_grid_points_that_a_device_lacks_are_refused_with_the_way_out(statement) -> None:  # type: ignore[no-untyped-def]
    program = increment().with_entry((statement, *increment().entry))
    assert bytes(ReferenceBackend().dispatch(program, [bytes(4)])[0]) == b"\1\0\0\0"
    # They are cut there, unless one launch is asked for.
    without = ReferenceBackend(grid_sync=False)
    assert bytes(without.dispatch(program, [bytes(4)])[0]) == b"\1\0\0\0"
    for run in (
        lambda: without.dispatch(program, [bytes(4)], DispatchConfig(cooperative="require")),
        lambda: routes.dispatch(without, program, [bytes(4)], route="native"),
    ):
        with pytest.raises(UnsupportedFeature, match="inside a launch") as caught:
            run()
        assert "another route" in caught.value.fix


def test_a_workgroup_override_must_be_legal() -> None:
    with pytest.raises(InvalidProgram):
        ReferenceBackend().dispatch(increment(), [bytes(4)], DispatchConfig(workgroup_override=(4096,)))

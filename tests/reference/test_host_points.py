"""Where a run meets the host, or acts as a whole: transfers, indirect grids, traps, collectives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from reference_support import out, output, program, reading, shared, u32, updating, values

from vyre.errors import BadInputs, DispatchFailed, TrapRaised
from vyre.ir import build as b
from vyre.ir.nodes import Stmt
from vyre.reference import IN_ORDER, REVERSED, Schedule, TrapRequest, run, seeded
from vyre.semantics.types import DType

v, gid, lid = b.var, b.gid, b.lid
every_schedule = pytest.mark.parametrize("schedule", [IN_ORDER, REVERSED, seeded(5)], ids=str)


def ignore(requests: Sequence[TrapRequest], buffers: dict[str, np.ndarray]) -> None:
    assert requests
    assert buffers


def copied(*entry: Stmt, grid: int = 1) -> list[int]:
    source = program([reading("a", 4), updating("s", 4)], 1, *entry)
    return output(source, [u32(1, 2, 3, 4), u32(90, 91, 92, 93)], "s", grid=(grid,), checked=True)


def test_a_load_captures_from_the_offset_and_writes_at_zero() -> None:
    assert copied(b.async_load("a", "s", 4, 8, "t"), b.async_wait("t")) == [2, 3, 92, 93]


def test_a_store_captures_from_zero_and_writes_at_the_offset() -> None:
    assert copied(b.async_store("a", "s", 8, 4, "t"), b.async_wait("t")) == [90, 91, 1, 93]


def test_bytes_past_the_source_are_zero_and_past_the_destination_vanish() -> None:
    assert copied(b.async_load("a", "s", 12, 12, "t"), b.async_wait("t")) == [4, 0, 0, 93]
    assert copied(b.async_load("a", "s", 2**32 - 1, 4, "t"), b.async_wait("t")) == [0, 91, 92, 93]
    assert copied(b.async_load("a", "s", 0, 2**32 - 1, "t"), b.async_wait("t")) == [1, 2, 3, 4]
    assert copied(b.async_store("a", "s", 12, 16, "t"), b.async_wait("t")) == [90, 91, 92, 1]
    assert copied(b.async_store("a", "s", 400, 16, "t"), b.async_wait("t")) == [90, 91, 92, 93]


def test_transfers_are_by_bytes() -> None:
    assert copied(b.async_load("a", "s", 1, 2, "t"), b.async_wait("t")) == [0, 91, 92, 93]
    assert copied(b.async_store("a", "s", 1, 1, "t"), b.async_wait("t")) == [90 + 256, 91, 92, 93]


def test_the_source_is_captured_at_issue() -> None:
    entry = [b.async_load("s", "s", 0, 4, "t"), b.store("s", 0, 7), b.async_wait("t")]
    assert copied(*entry) == [90, 91, 92, 93]


def test_bits_of_any_kind_are_copied_as_they_are() -> None:
    source = program([reading("a", 1), updating("f", 1, DType.F32)], 1,
                     b.async_load("a", "f", 0, 4, "t"), b.async_wait("t"))  # fmt: skip
    result = run(source, [u32(0x7F800001), np.zeros(1, np.float32)], grid=(1,))
    assert result.outputs["f"].view(np.uint32).tolist() == [0x7F800001]


def test_transfers_with_workgroup_memory() -> None:
    source = program(
        [reading("a", 4), shared("tile", 2), out(4)], 2,
        b.if_(lid().eq(0), [b.async_load("a", "tile", b.wg() * 8, 8, "t"), b.async_wait("t")]),
        b.barrier(),
        b.store("out", gid(), b.load("tile", 1 - lid())),
    )  # fmt: skip
    assert output(source, [u32(1, 2, 3, 4)]) == [2, 1, 4, 3]


ISSUE, WAIT = b.async_load("a", "s", 0, 4, "t"), b.async_wait("t")


@pytest.mark.parametrize(
    ("entry", "code", "place"),
    [
        ([WAIT], "async-wait-without-issue", "entry[0]"),
        ([ISSUE, b.async_wait("u")], "async-wait-without-issue", "entry[1]"),
        ([ISSUE, WAIT, WAIT], "async-wait-without-issue", "entry[2]"),
        ([ISSUE, b.async_store("a", "s", 0, 4, "t")], "async-already-pending", "entry[1]"),
        ([ISSUE, b.store("s", 0, 1)], "async-pending-at-end", "entry[1]"),
        ([ISSUE, b.if_(gid().eq(0), [b.return_()])], "async-pending-at-end", "entry[1].then[0]"),
    ],
)
def test_transfers_out_of_turn_are_errors_with_a_place(entry: list[Stmt], code: str, place: str) -> None:
    with pytest.raises(DispatchFailed) as caught:
        copied(*entry)
    assert caught.value.code == code
    assert f"{place} " in caught.value.message


def indirect(counts: Sequence[int], **options: object) -> list[int]:
    source = program([reading("counts"), out(8)], 1, b.indirect_dispatch("counts", 4), b.store("out", gid(), 1))
    return output(source, [u32(*counts)], **options)


def test_an_indirect_grid_is_read_when_the_launch_starts() -> None:
    assert indirect([9, 3, 1, 1]) == [1, 1, 1, 0, 0, 0, 0, 0]
    assert indirect([9, 0, 1, 1]) == [0] * 8
    assert indirect([9, 2, 1, 1], grid=(8,)) == [1, 1, 0, 0, 0, 0, 0, 0]


def test_indirect_grids_that_cannot_be() -> None:
    with pytest.raises(BadInputs, match="invocations"):
        indirect([0, 2**32 - 1, 2**32 - 1, 2**32 - 1])
    with pytest.raises(BadInputs, match="which has 12") as caught:
        indirect([1, 1, 1])
    assert caught.value.buffer == "counts"


def test_the_program_cannot_change_its_own_grid() -> None:
    source = program([updating("counts", 3), out(4)], 1,
                     b.indirect_dispatch("counts"), b.store("counts", 0, 4), b.store("out", gid(), 1))  # fmt: skip
    assert output(source, [u32(2, 1, 1)]) == [1, 1, 0, 0]


PAGING = program(
    [updating("pages", 4), updating("log", 1), out(4)], 2,
    b.if_(b.load("pages", gid()).eq(0), [b.trap(gid() * 100, "fault"), b.store("log", 0, 99)]),
    b.resume("fault"),
    b.store("out", gid(), b.load("pages", gid())),
)  # fmt: skip


@every_schedule
def test_a_handler_gets_all_requests_once_and_parked_invocations_go_on(schedule: Schedule) -> None:
    calls = []

    def handle(requests: Sequence[TrapRequest], buffers: dict[str, np.ndarray]) -> None:
        calls.append(list(requests))
        for request in requests:
            buffers["pages"][request.invocation] = request.address + 7

    result = run(PAGING, [u32(5, 0, 6, 0), u32(1)], handlers={"fault": handle}, schedule=schedule)
    assert calls == [[TrapRequest(1, "fault", 100), TrapRequest(3, "fault", 300)]]
    assert values(result) == [5, 107, 6, 307]
    # A parked invocation does not run what lies between the trap and the resume.
    assert values(result, "log") == [1]


def test_without_requests_the_handler_is_not_called() -> None:
    def handle(requests: Sequence[TrapRequest], buffers: dict[str, np.ndarray]) -> None:
        raise AssertionError(requests, buffers)

    assert output(PAGING, [u32(1, 2, 3, 4), u32(1)], handlers={"fault": handle}) == [1, 2, 3, 4]


@every_schedule
@pytest.mark.parametrize("handlers", [{}, {"other": ignore}])
def test_a_trap_nobody_handles_is_raised_for_the_lowest_invocation(handlers: dict, schedule: Schedule) -> None:
    with pytest.raises(TrapRaised) as caught:
        run(PAGING, [u32(5, 0, 6, 0), u32(1)], handlers=handlers, schedule=schedule)
    assert (caught.value.tag, caught.value.address, caught.value.invocation) == ("fault", 100, 1)


@every_schedule
def test_a_trap_no_resume_follows_is_raised(schedule: Schedule) -> None:
    source = program(
        [out(4)], 2,
        b.resume("t"),
        b.if_(gid() >= 2, [b.trap(gid(), "t")]),
        b.store("out", gid(), 1),
    )  # fmt: skip
    with pytest.raises(TrapRaised, match="invocation 2 trapped with tag 't' at address 2"):
        run(source, (), handlers={"t": ignore}, schedule=schedule)


def test_a_resume_in_an_inner_list_is_not_for_a_trap_outside_it() -> None:
    source = program(
        [out(2)], 2,
        b.if_(gid().eq(0), [b.trap(4, "t")]),
        b.if_(b.buf_len("out").eq(2), [b.resume("t")]),
    )  # fmt: skip
    with pytest.raises(TrapRaised):
        run(source, (), handlers={"t": ignore})


def test_parked_invocations_are_passed_over_by_barriers_and_wake_at_their_resume() -> None:
    source = program(
        [updating("s", 1), out(4)], 2,
        b.let("x", 1),
        b.if_(gid().eq(1), [b.assign("x", 2), b.loop("k", 4, 9, [b.trap(v("k") + 3, "t")])]),
        b.barrier(),
        b.grid_sync(),
        b.let("seen", b.load("s", 0) + 1),
        b.assign("x", v("x") + 10),
        b.resume("other"),
        b.resume("t"),
        b.store("out", gid(), v("x") * 100 + v("seen") * 10 + b.load("s", 0)),
    )  # fmt: skip

    def handle(requests: Sequence[TrapRequest], buffers: dict[str, np.ndarray]) -> None:
        assert list(requests) == [TrapRequest(1, "t", 7)]
        buffers["s"] = u32(5)

    # What was declared between is zero for the invocation that was parked.
    assert output(source, [u32(3)], grid=(2,), handlers={"t": handle}) == [1145, 205, 1145, 1145]


@every_schedule
def test_traps_in_a_loop_are_handled_pass_by_pass(schedule: Schedule) -> None:
    source = program(
        [updating("s", 1), out(2)], 1,
        b.let("sum", 0),
        b.loop("k", 0, 3, [
            b.if_(gid().eq(v("k") & 1), [b.trap(v("k"), "t")]),
            b.resume("t"),
            b.assign("sum", v("sum") * 10 + b.load("s", 0)),
        ]),
        b.store("out", gid(), v("sum")),
    )  # fmt: skip
    seen = []

    def handle(requests: Sequence[TrapRequest], buffers: dict[str, np.ndarray]) -> None:
        seen.append([(request.invocation, request.address) for request in requests])
        buffers["s"][0] += 1

    assert output(source, [u32(0)], grid=(2,), handlers={"t": handle}, schedule=schedule) == [123, 123]
    assert seen == [[(0, 0)], [(1, 1)], [(0, 2)]]


def test_parked_invocations_go_on_when_all_others_have_returned() -> None:
    source = program(
        [out(4)], 2,
        b.if_(gid() >= 2, [b.return_()]),
        b.trap(gid(), "t"),
        b.resume("t"),
        b.store("out", gid(), 1),
    )  # fmt: skip
    assert output(source, handlers={"t": ignore}) == [1, 1, 0, 0]


def test_a_parked_invocation_that_the_others_leave_behind_is_an_error() -> None:
    """The others break out of the loop, so that the resume it waits for cannot be a point of the grid."""
    source = program(
        [out(2)], 2,
        b.loop("k", 0, 2, [
            b.if_(gid().eq(0), [b.trap(0, "t")]),
            b.if_(b.buf_len("out").eq(2), [b.break_()]),
            b.resume("t"),
        ]),
        b.grid_sync(),
    )  # fmt: skip
    with pytest.raises(DispatchFailed, match=r"invocation 0 waits at entry\[0\].body\[2\], pass 0") as caught:
        run(source, (), handlers={"t": ignore}, checked=True)
    assert caught.value.code == "barrier-mismatch"


@pytest.mark.parametrize("new", [u32(1, 2), np.zeros(1, np.int32), None], ids=["length", "type", "nothing"])
def test_a_handler_may_not_leave_another_kind_of_buffer(new: object) -> None:
    def handle(_requests: Sequence[TrapRequest], buffers: dict[str, object]) -> None:
        buffers["log"] = new

    with pytest.raises(BadInputs, match="handler of 'fault'"):
        run(PAGING, [u32(5, 0, 6, 0), u32(1)], handlers={"fault": handle})


@every_schedule
def test_collectives_of_one_rank(schedule: Schedule) -> None:
    source = program(
        [updating("s", 4), out(3, "all"), out(4, "part")], 2,
        b.store("s", gid(), b.load("s", gid()) + gid()),
        b.all_reduce("add", "s"),
        b.all_gather("s", "all"),
        b.reduce_scatter("add", "s", "part"),
        b.broadcast("s"),
        b.store("s", gid(), 0),
    )  # fmt: skip
    result = run(source, [u32(10, 10, 10, 10)], grid=(2,), schedule=schedule)
    assert values(result, "all") == [10, 11, 12]
    assert values(result, "part") == [10, 11, 12, 13]
    assert values(result, "s") == [0, 0, 0, 0]


def test_a_collective_orders_what_is_before_and_after() -> None:
    source = program(
        [updating("s", 4), out(4)], 2,
        b.store("s", gid(), gid()),
        b.all_reduce("max", "s"),
        b.store("out", gid(), b.load("s", 3 - gid())),
    )  # fmt: skip
    result = run(source, [u32(0, 0, 0, 0)], races=True)
    assert values(result) == [3, 2, 1, 0]
    assert result.races == ()

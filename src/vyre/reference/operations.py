"""How is one operation carried out? A closure over register numbers, applied to an invocation's registers.

Everything an operation needs is in the registers: the invocation itself, the memory it touches, the log of what
went out of bounds and of who accessed what. So a compiled program holds no state and can be run many times at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from vyre.errors import DispatchFailed
from vyre.ir.nodes import AsyncLoad, AsyncStore, CopyBytes
from vyre.ir.places import Place
from vyre.reference.memory import decoder, encoder
from vyre.semantics.operators import AtomicOp
from vyre.semantics.reductions import reduce_lanes
from vyre.semantics.scalars import Meaning, Value, scalar_meaning, to_bits, zero
from vyre.semantics.types import DType

if TYPE_CHECKING:
    from vyre.reference.races import AccessKind

Frame = list[Any]
Op = Callable[[Frame], None]
Meeting = Callable[[dict[int, Frame]], None]

# The registers every program has: the invocation, the out-of-bounds counts by site, the log of accesses.
SELF: Final = 0
MISSES: Final = 1
ACCESSES: Final = 2
FIRST_FREE: Final = 3

Site = tuple[Place, str]


def copy(to: int, source: int) -> Op:
    def run(r: Frame) -> None:
        r[to] = r[source]

    return run


def constant(to: int, value: Value) -> Op:
    def run(r: Frame) -> None:
        r[to] = value

    return run


def increment(register: int) -> Op:
    def run(r: Frame) -> None:
        r[register] += 1

    return run


def less(to: int, left: int, right: int) -> Op:
    def run(r: Frame) -> None:
        r[to] = r[left] < r[right]

    return run


def unary(meaning: Meaning, to: int, a: int) -> Op:
    def run(r: Frame) -> None:
        r[to] = meaning(r[a])

    return run


def binary(meaning: Meaning, to: int, a: int, b: int) -> Op:
    def run(r: Frame) -> None:
        r[to] = meaning(r[a], r[b])

    return run


def ternary(meaning: Meaning, to: int, a: int, b: int, c: int) -> Op:
    def run(r: Frame) -> None:
        r[to] = meaning(r[a], r[b], r[c])

    return run


def select(to: int, condition: int, true_value: int, false_value: int) -> Op:
    def run(r: Frame) -> None:
        r[to] = r[true_value] if r[condition] else r[false_value]

    return run


def load(to: int, cells: int, index: int, dtype: DType, site: Site) -> Op:
    nothing, decode = zero(dtype), decoder(dtype)

    if decode is None:

        def run(r: Frame) -> None:
            try:
                r[to] = r[cells][r[index]]
            except IndexError:
                r[MISSES][site] += 1
                r[to] = nothing

        return run

    def run_decoding(r: Frame) -> None:
        try:
            r[to] = decode(r[cells][r[index]])
        except IndexError:
            r[MISSES][site] += 1
            r[to] = nothing

    return run_decoding


def store(cells: int, index: int, value: int, dtype: DType, site: Site) -> Op:
    encode = encoder(dtype)

    if encode is None:

        def run(r: Frame) -> None:
            try:
                r[cells][r[index]] = r[value]
            except IndexError:
                r[MISSES][site] += 1

        return run

    def run_encoding(r: Frame) -> None:
        try:
            r[cells][r[index]] = encode(r[value])
        except IndexError:
            r[MISSES][site] += 1

    return run_encoding


def atomic(
    op: AtomicOp, to: int, cells: int, index: int, expected: int | None, value: int | None, dtype: DType, site: Site
) -> Op:
    """An atomic on an integer element, whose cell is its value."""
    combine = scalar_meaning(op.operator, dtype) if op.operator else None

    def run(r: Frame) -> None:
        memory, at = r[cells], r[index]
        try:
            old = memory[at]
        except IndexError:
            r[MISSES][site] += 1
            r[to] = 0
            return
        if value is not None and (expected is None or old == r[expected]):
            memory[at] = r[value] if combine is None else combine(old, r[value])
        # Last, because the result may take an operand's register.
        r[to] = old

    return run


def note_access(
    kind: AccessKind, buffer: str, cells: int, index: int, value: int | None, dtype: DType, place: Place
) -> Op:
    """Tells the race detector of an access that is about to happen; ``value`` is what a plain write writes."""

    def run(r: Frame) -> None:
        at = r[index]
        if at < len(r[cells]):
            bits = None if value is None else to_bits(r[value], dtype)
            r[ACCESSES].record(r[SELF], buffer, at, kind, place, bits)

    return run


def ballot(to: int, predicate: int) -> Meeting:
    def meet(lanes: dict[int, Frame]) -> None:
        bits = sum(1 << lane for lane, r in lanes.items() if r[predicate])
        for r in lanes.values():
            r[to] = bits

    return meet


def shuffle(to: int, value: int, lane: int, dtype: DType) -> Meeting:
    nothing = zero(dtype)

    def meet(lanes: dict[int, Frame]) -> None:
        values = {number: r[value] for number, r in lanes.items()}
        for r in lanes.values():
            r[to] = values.get(r[lane], nothing)

    return meet


def reduce(to: int, op: str, value: int, dtype: DType, width: int) -> Meeting:
    def meet(lanes: dict[int, Frame]) -> None:
        result = reduce_lanes(op, dtype, {number: r[value] for number, r in lanes.items()}, width)
        for r in lanes.values():
            r[to] = result

    return meet


class Transfer(msgspec.Struct, frozen=True):
    """Bytes captured when an asynchronous copy was issued, and where its wait writes them."""

    buffer: str
    destination: Any
    start: int
    data: bytes


class Copying(msgspec.Struct, frozen=True):
    """The registers of an asynchronous copy: the bytes of both buffers, the offset in one of them, the size."""

    source: int
    destination: int
    offset: int
    size: int


def issue(statement: AsyncLoad | AsyncStore, registers: Copying, place: Place, where: Callable[[], str]) -> Op:
    """Captures the bytes that the wait will write."""
    tag, is_load = statement.tag, isinstance(statement, AsyncLoad)
    source, destination, offset, size = msgspec.structs.astuple(registers)

    def run(r: Frame) -> None:
        transfers = r[SELF].transfers
        if tag in transfers:
            raise DispatchFailed(
                f"{where()} issues transfer '{tag}' of invocation {r[SELF].linear} while one of that tag is pending.",
                "wait for the first, or give the second a tag of its own.",
                code="async-already-pending",
            )
        begin, start = (r[offset], 0) if is_load else (0, r[offset])
        # Bytes beyond the destination would vanish, so they are not captured.
        length = min(r[size], max(0, len(r[destination]) - start))
        data = bytes(r[source][begin : begin + length])
        if r[ACCESSES] is not None:
            r[ACCESSES].record_bytes(r[SELF], statement.source, begin, data, place, writes=False)
        transfers[tag] = Transfer(statement.destination, r[destination], start, data.ljust(length, b"\0"))

    return run


def wait(tag: str, place: Place, where: Callable[[], str]) -> Op:
    """Writes what the transfer of that tag captured."""

    def run(r: Frame) -> None:
        transfer = r[SELF].transfers.pop(tag, None)
        if transfer is None:
            raise DispatchFailed(
                f"{where()} waits for the transfer '{tag}', which invocation {r[SELF].linear} has not issued.",
                "issue it first, on every path to the wait.",
                code="async-wait-without-issue",
            )
        if r[ACCESSES] is not None:
            r[ACCESSES].record_bytes(r[SELF], transfer.buffer, transfer.start, transfer.data, place, writes=True)
        transfer.destination[transfer.start : transfer.start + len(transfer.data)] = transfer.data

    return run


def copy_bytes(
    statement: CopyBytes, source: int, destination: int, begin: int, start: int, size: int, place: Place
) -> Op:
    """Copies bytes from one buffer to another at once."""

    def run(r: Frame) -> None:
        length = min(r[size], max(0, len(r[destination]) - r[start]))
        data = bytes(r[source][r[begin] : r[begin] + length])
        if r[ACCESSES] is not None:
            r[ACCESSES].record_bytes(r[SELF], statement.source, r[begin], data, place, writes=False)
        data = data.ljust(length, b"\0")
        if r[ACCESSES] is not None:
            r[ACCESSES].record_bytes(r[SELF], statement.destination, r[start], data, place, writes=True)
        r[destination][r[start] : r[start] + length] = data

    return run

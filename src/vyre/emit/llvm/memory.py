"""Memory operations of a vector of invocations: loads, stores, atomics and copies.

A lane whose index is out of bounds loads zero and stores nothing. A uniform index is one scalar access, consecutive
indices are one masked vector access, and all others are a gather or a scatter. Lanes store in order, so the last wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from vyre.emit.llvm.operators import Lanes
from vyre.emit.llvm.text import STORED, Code, shaped, spread, suffix
from vyre.ir.nodes import MemoryOrder
from vyre.semantics.operators import AtomicOp
from vyre.semantics.types import DType, Kind


class Place(msgspec.Struct, frozen=True):
    """A buffer in a function: a pointer to its first element and its length in elements (u32).

    In a short buffer, certainly no index in bounds has the top bit. A privatized buffer may have several ``copies``,
    ``copy_bytes`` apart: neighbouring lanes change different copies, so that a load need not wait for the store of the
    lane before.
    """

    pointer: str
    length: str
    dtype: DType
    is_shared: bool
    copies: int = 1
    copy_bytes: int = 0
    is_short: bool = False


_LINE_BYTES: Final = 64
ALL = "splat (i1 true)"
NONE = "zeroinitializer"
ZEROS = "@zeros"
ZEROS_DEFINITION = "@zeros = internal constant [64 x i8] zeroinitializer, align 64"


def element_address(code: Code, place: Place, index: str, lanes: int) -> str:
    wide = code.put(f"zext {shaped('i32', lanes)} {index} to {shaped('i64', lanes)}")
    return code.put(f"getelementptr {STORED[place.dtype]}, ptr {place.pointer}, {shaped('i64', lanes)} {wide}")


def first_address(code: Code, place: Place, base: str) -> str:
    """Return the address of the first of consecutive elements, whose indices wrap around in short buffers only.

    In a short buffer a base with the top bit is negative: the indices in bounds are those after the wrap-around.
    """
    if not place.is_short:
        return element_address(code, place, base, 0)
    wide = code.put(f"sext i32 {base} to i64")
    return code.put(f"getelementptr {STORED[place.dtype]}, ptr {place.pointer}, i64 {wide}")


def in_bounds(code: Code, place: Place, index: str, lanes: int) -> str:
    length = place.length
    if lanes:
        length = spread(code, "i32", length, lanes)
    return code.put(f"icmp ult {shaped('i32', lanes)} {index}, {length}")


def load_uniform(code: Code, place: Place, index: str, *, checked: bool, predicted: bool) -> str:
    """Load the element at a uniform index; zero if it is out of bounds.

    A ``predicted`` check is a branch, so that the processor can load speculatively.
    """
    address = element_address(code, place, index, 0)
    if checked and predicted:
        inside, outside, end = (code.label(hint) for hint in ("inside", "outside", "end"))
        code.branch(in_bounds(code, place, index, 0), inside, outside, likely=True)
        code.begin(inside)
        kind = STORED[place.dtype]
        found = code.put(f"load {kind}, ptr {address}, align {place.dtype.bytes}")
        code.go(end)
        code.begin(outside)
        code.fall_through(end)
        raw = code.put(f"phi {kind} [ {found}, %{inside} ], [ zeroinitializer, %{outside} ]")
        return Lanes(code, 0).from_memory(place.dtype, raw)
    if checked:
        address = code.put(f"select i1 {in_bounds(code, place, index, 0)}, ptr {address}, ptr {ZEROS}")
    raw = code.put(f"load {STORED[place.dtype]}, ptr {address}, align {place.dtype.bytes}")
    return Lanes(code, 0).from_memory(place.dtype, raw)


def load_consecutive(code: Code, dtype: DType, address: str, mask: str, lanes: int, *, prefetch: bool = False) -> str:
    """Load consecutive elements under the mask.

    ``prefetch`` also prefetches the memory that is ``%ahead`` bytes further.
    """
    kind, size = shaped(STORED[dtype], lanes), dtype.bytes
    if prefetch:
        further = code.put(f"getelementptr i8, ptr {address}, i64 %ahead")
        for line in range(0, lanes * size, _LINE_BYTES):
            there = code.put(f"getelementptr i8, ptr {further}, i64 {line}") if line else further
            # A read of data, into the second-level cache.
            code.intrinsic("prefetch", "void", [("ptr", there), ("i32", "0"), ("i32", "2"), ("i32", "1")], ["p0"])
    if mask == ALL:
        return code.put(f"load {kind}, ptr {address}, align {size}")
    arguments = [(f"ptr align {size}", address), (shaped("i1", lanes), mask), (kind, "zeroinitializer")]
    return code.intrinsic("masked.load", kind, arguments, [suffix(STORED[dtype], lanes), "p0"])


def gather(code: Code, place: Place, index: str, mask: str, lanes: int, *, cold: bool = False) -> str:
    """Load the elements at the indices, as stored."""
    stored, size = STORED[place.dtype], place.dtype.bytes
    kind, pointers = shaped(stored, lanes), shaped("ptr", lanes)

    def write(inner: Code, names: list[str]) -> str:
        local = Place(names[0], "", place.dtype, place.is_shared)
        address = element_address(inner, local, names[1], lanes)
        arguments = [(f"{pointers} align {size}", address), (shaped("i1", lanes), names[2]), (kind, "zeroinitializer")]
        return inner.intrinsic("masked.gather", kind, arguments, [suffix(stored, lanes), f"v{lanes}p0"])

    # Processors gather words; gathers that run lane by lane are outlined.
    if size >= 4 and not cold:
        return write(code, [place.pointer, index, mask])
    arguments = [("ptr", place.pointer), (shaped("i32", lanes), index), (shaped("i1", lanes), mask)]
    return code.helper(f"gather.{suffix(stored, lanes)}", kind, arguments, write, "nounwind willreturn memory(read)")


def store_uniform(code: Code, place: Place, index: str, raw: str, *, checked: bool, is_private: bool) -> None:
    """Store one element; the caller ensures that a lane is active.

    Unless the element is private to an invocation (``is_private``), an equal value is not stored again: every vector
    executes this store, and a cache line that several threads write bounces between their cores.
    """
    done = code.label("stored")
    if checked:
        write = code.label("store")
        code.branch(in_bounds(code, place, index, 0), write, done)
        code.begin(write)
    kind, size = STORED[place.dtype], place.dtype.bytes
    address = element_address(code, place, index, 0)
    if place.is_shared:
        code.do(f"store {kind} {raw}, ptr {address}, align {size}")
    elif is_private:
        code.do(f"store atomic {kind} {raw}, ptr {address} monotonic, align {size}")
    else:
        old = code.put(f"load atomic {kind}, ptr {address} monotonic, align {size}")
        change = code.label("change")
        code.branch(code.put(f"icmp eq {kind} {old}, {raw}"), done, change)
        code.begin(change)
        code.do(f"store atomic {kind} {raw}, ptr {address} monotonic, align {size}")
    if checked or not (place.is_shared or is_private):
        code.fall_through(done)


def is_whole_line(code: Code, dtype: DType, address: str, lanes: int) -> str:
    """Return whether stores of a vector at an address are to bypass the caches: it is aligned, and ``%cached`` is 0."""
    number = code.put(f"ptrtoint ptr {address} to i64")
    beside = code.put(f"or i64 {code.put(f'and i64 {number}, {_aligned_bytes(dtype, lanes) - 1}')}, %cached")
    return code.put(f"icmp eq i64 {beside}, 0")


def _aligned_bytes(dtype: DType, lanes: int) -> int:
    return min(_LINE_BYTES, dtype.bytes * lanes)


def store_consecutive(
    code: Code, dtype: DType, address: str, raw: str, mask: str, lanes: int, *, past_caches: str = ""
) -> None:
    """Store consecutive elements under the mask; complete vectors bypass the caches on a condition, if there is one."""
    kind, size = shaped(STORED[dtype], lanes), dtype.bytes
    if past_caches:
        past, through, done = (code.label(hint) for hint in ("past", "through", "done"))
        is_whole = past_caches
        if mask != ALL:
            bits = code.put(f"bitcast <{lanes} x i1> {mask} to i{lanes}")
            is_whole = code.put(f"and i1 {is_whole}, {code.put(f'icmp eq i{lanes} {bits}, -1')}")
        code.branch(is_whole, past, through)
        code.begin(past)
        code.do(f"store {kind} {raw}, ptr {address}, align {_aligned_bytes(dtype, lanes)}, !nontemporal !1")
        code.go(done)
        code.begin(through)
    if mask == ALL:
        code.do(f"store {kind} {raw}, ptr {address}, align {size}")
    else:
        arguments = [(kind, raw), (f"ptr align {size}", address), (shaped("i1", lanes), mask)]
        code.intrinsic("masked.store", "void", arguments, [suffix(STORED[dtype], lanes), "p0"])
    if past_caches:
        code.fall_through(done)


def scatter(code: Code, place: Place, index: str, raw: str, mask: str, lanes: int, *, cold: bool = False) -> None:
    stored, size = STORED[place.dtype], place.dtype.bytes
    kind, pointers = shaped(stored, lanes), shaped("ptr", lanes)

    def write(inner: Code, names: list[str]) -> str:
        local = Place(names[0], "", place.dtype, place.is_shared)
        address = element_address(inner, local, names[1], lanes)
        arguments = [(kind, names[2]), (f"{pointers} align {size}", address), (shaped("i1", lanes), names[3])]
        return inner.intrinsic("masked.scatter", "void", arguments, [suffix(stored, lanes), f"v{lanes}p0"])

    if size >= 4 and not cold:
        write(code, [place.pointer, index, raw, mask])
        return
    arguments = [("ptr", place.pointer), (shaped("i32", lanes), index), (kind, raw), (shaped("i1", lanes), mask)]
    code.helper(f"scatter.{suffix(stored, lanes)}", "void", arguments, write, "nounwind willreturn")


# LLVM's names of memory orders; a load cannot release.
_ORDERS: Final = {
    MemoryOrder.RELAXED: "monotonic",
    MemoryOrder.ACQUIRE: "acquire",
    MemoryOrder.RELEASE: "release",
    MemoryOrder.ACQ_REL: "acq_rel",
    MemoryOrder.SEQ_CST: "seq_cst",
}
_LOAD_ORDERS: Final = _ORDERS | {MemoryOrder.RELEASE: "monotonic", MemoryOrder.ACQ_REL: "acquire"}


def _change_cell(
    code: Code, op: AtomicOp, order: MemoryOrder, place: Place, address: str, value: str, expected: str
) -> str:
    """Change one element atomically; return the old value."""
    kind, size, name = STORED[place.dtype], place.dtype.bytes, _ORDERS[order]
    if op is AtomicOp.COMPARE_EXCHANGE:
        orders = f"{name} {_LOAD_ORDERS[order]}"
        pair = code.put(f"cmpxchg ptr {address}, {kind} {expected}, {kind} {value} {orders}, align {size}")
        return code.put(f"extractvalue {{ {kind}, i1 }} {pair}, 0")
    if op is AtomicOp.LOAD:
        return code.put(f"load atomic {kind}, ptr {address} {_LOAD_ORDERS[order]}, align {size}")
    match op:
        case AtomicOp.STORE | AtomicOp.EXCHANGE:
            change = "xchg"
        case AtomicOp.MIN | AtomicOp.MAX:
            change = op.value if place.dtype.kind is Kind.SIGNED else f"u{op.value}"
        case _:
            change = op.value
    if not place.is_shared:
        return code.put(f"atomicrmw {change} ptr {address}, {kind} {value} {name}, align {size}")
    # One thread runs a whole workgroup, so workgroup memory needs no atomic instruction.
    old = code.put(f"load {kind}, ptr {address}, align {size}")
    new = value if op.operator is None else Lanes(code, 0).binary(op.operator, place.dtype, old, value)
    code.do(f"store {kind} {new}, ptr {address}, align {size}")
    return old


def _for_each_lane(code: Code, mask: str, lanes: int, write: Callable[[str], None]) -> None:
    """Write a loop over the lanes of a mask, in order; ``write`` receives the lane's number as i64."""
    bits = f"i{lanes}"
    left = code.allocate(bits)
    head, body, done = (code.label(hint) for hint in ("lanes", "lane", "done"))
    code.do(f"store {bits} {code.put(f'bitcast <{lanes} x i1> {mask} to {bits}')}, ptr {left}")
    code.fall_through(head)
    rest = code.put(f"load {bits}, ptr {left}")
    code.branch(code.put(f"icmp ne {bits} {rest}, 0"), body, done)
    code.begin(body)
    first = code.intrinsic("cttz", bits, [(bits, rest), ("i1", "true")], [bits])
    write(code.put(f"zext {bits} {first} to i64"))
    less = code.put(f"sub {bits} {rest}, 1")
    code.do(f"store {bits} {code.put(f'and {bits} {rest}, {less}')}, ptr {left}")
    code.go(head)
    code.begin(done)


def _stack_vector(code: Code, element: str, vector: str, lanes: int) -> str:
    """Store a vector on the stack, so that its lanes can be indexed."""
    kind = shaped(element, lanes)
    board = code.allocate(kind)
    code.do(f"store {kind} {vector}, ptr {board}, align 64")
    return board


def _stack_element(code: Code, element: str, board: str, lane: str) -> str:
    return code.put(f"load {element}, ptr {code.put(f'getelementptr {element}, ptr {board}, i64 {lane}')}")


def change_each(
    code: Code, op: AtomicOp, order: MemoryOrder, place: Place, index: str, value: str, expected: str, mask: str,
    lanes: int, *, wanted: bool = True,
) -> str:  # fmt: skip
    """Change an element atomically for each lane of the mask, in order; return the old values if ``wanted``."""
    if place.is_shared and not wanted:
        return _change_all_or_each(code, op, order, place, index, value, mask, lanes)
    return _change_in_turn(code, op, order, place, index, value, expected, mask, lanes, wanted)


def _change_all_or_each(
    code: Code, op: AtomicOp, order: MemoryOrder, place: Place, index: str, value: str, mask: str, lanes: int
) -> str:
    """Change memory that no other thread accesses, without a result; unrolled if all lanes are active."""
    full, some, end = (code.label(hint) for hint in ("full", "some", "end"))
    bits = code.put(f"bitcast <{lanes} x i1> {mask} to i{lanes}")
    code.branch(code.put(f"icmp eq i{lanes} {bits}, -1"), full, some, likely=True)
    code.begin(full)
    for lane, at in enumerate(_indices(code, place, index, lanes)):
        copy = copy_of(code, place, lane % place.copies)
        one = code.put(f"extractelement {shaped(STORED[place.dtype], lanes)} {value}, i32 {lane}")
        change_one(code, op, order, copy, at, one, "", checked=False)
    code.go(end)
    code.begin(some)
    _change_in_turn(code, op, order, place, index, value, "zeroinitializer", mask, lanes, False)
    code.fall_through(end)
    return "zeroinitializer"


def _indices(code: Code, place: Place, vector: str, lanes: int) -> list[str]:
    """Return the lanes of indices that are all in bounds as scalars, extracted several at a time as a word."""
    most = int(place.length) if place.length.isdecimal() else 1 << 32
    bits = 8 if most <= 1 << 8 else 16 if most <= 1 << 16 else 32
    short = vector if bits == 32 else code.put(f"trunc <{lanes} x i32> {vector} to <{lanes} x i{bits}>")
    size = min(64, lanes * bits)
    words, together = lanes * bits // size, size // bits
    packed = code.put(f"bitcast <{lanes} x i{bits}> {short} to <{words} x i{size}>")
    found = []
    for word in range(words):
        taken = code.put(f"extractelement <{words} x i{size}> {packed}, i32 {word}")
        for lane in range(together):
            shifted = code.put(f"lshr i{size} {taken}, {lane * bits}")
            masked = code.put(f"and i{size} {shifted}, {(1 << bits) - 1}")
            change = "zext" if size < 32 else "trunc"
            found.append(masked if size == 32 else code.put(f"{change} i{size} {masked} to i32"))
    return found


def copy_of(code: Code, place: Place, number: int) -> Place:
    """Return one of the copies of a privatized buffer."""
    pointer = code.put(f"getelementptr i8, ptr {place.pointer}, i64 {number * place.copy_bytes}")
    return msgspec.structs.replace(place, pointer=pointer)


def _change_in_turn(
    code: Code, op: AtomicOp, order: MemoryOrder, place: Place, index: str, value: str, expected: str, mask: str,
    lanes: int, wanted: bool,
) -> str:  # fmt: skip
    element = STORED[place.dtype]
    kind = shaped(element, lanes)

    def write(inner: Code, names: list[str]) -> str:
        pointer, *vectors, active = names
        local = Place(pointer, "", place.dtype, place.is_shared)
        boards = [
            (each, _stack_vector(inner, each, v, lanes))
            for each, v in zip(("i32", element, element), vectors, strict=True)
        ]
        olds = _stack_vector(inner, element, "zeroinitializer", lanes)

        def change(lane: str) -> None:
            at, one, want = (_stack_element(inner, each, board, lane) for each, board in boards)
            old = _change_cell(inner, op, order, place, element_address(inner, local, at, 0), one, want)
            if wanted:
                inner.do(f"store {element} {old}, ptr {inner.put(f'getelementptr {element}, ptr {olds}, i64 {lane}')}")

        _for_each_lane(inner, active, lanes, change)
        return inner.put(f"load {kind}, ptr {olds}, align 64")

    where = "shared" if place.is_shared else "global"
    arguments = [
        ("ptr", place.pointer), (shaped("i32", lanes), index), (kind, value), (kind, expected),
        (shaped("i1", lanes), mask),
    ]  # fmt: skip
    name = f"atomic.{op.value}.{order.value}.{place.dtype.label}.{where}.{lanes}{'' if wanted else '.quiet'}"
    return code.helper(name, kind, arguments, write)


def change_one(
    code: Code, op: AtomicOp, order: MemoryOrder, place: Place, index: str, value: str, expected: str, *, checked: bool
) -> str:
    """Change one element atomically for one invocation; return the old value, zero out of bounds."""
    if not checked:
        return _change_cell(code, op, order, place, element_address(code, place, index, 0), value, expected)
    start, change, changed, done = (code.label(hint) for hint in ("start", "change", "changed", "done"))
    code.fall_through(start)
    code.branch(in_bounds(code, place, index, 0), change, done)
    code.begin(change)
    old = _change_cell(code, op, order, place, element_address(code, place, index, 0), value, expected)
    code.fall_through(changed)
    code.fall_through(done)
    return code.put(f"phi {STORED[place.dtype]} [ 0, %{start} ], [ {old}, %{changed} ]")


def copy_bytes(
    code: Code, source: Place, destination: Place, source_offset: str, destination_offset: str, size: str, mask: str,
    lanes: int,
) -> None:  # fmt: skip
    """Copy bytes for each lane of the mask, in order, or for the single invocation of scalar code."""
    vector = shaped("i32", lanes)

    def write(inner: Code, names: list[str]) -> str:
        origin, target, origin_bytes, target_bytes, *vectors, active = names

        def both(name: str, a: str, b: str) -> str:
            return inner.intrinsic(name, "i64", [("i64", a), ("i64", b)], ["i64"])

        def copy(words: list[str]) -> None:
            start, place, length = (inner.put(f"zext i32 {word} to i64") for word in words)
            room = both("umin", length, both("usub.sat", target_bytes, place))
            there = both("umin", room, both("usub.sat", origin_bytes, start))
            to_address = inner.put(f"getelementptr i8, ptr {target}, i64 {place}")
            from_address = inner.put(f"getelementptr i8, ptr {origin}, i64 {start}")
            inner.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to_address}, ptr {from_address}, i64 {there}, i1 false)")
            behind = inner.put(f"getelementptr i8, ptr {to_address}, i64 {there}")
            padding = inner.put(f"sub i64 {room}, {there}")
            inner.do(f"call void @llvm.memset.p0.i64(ptr {behind}, i8 0, i64 {padding}, i1 false)")

        if not lanes:
            copy(vectors)
            return ""
        boards = [_stack_vector(inner, "i32", one, lanes) for one in vectors]
        _for_each_lane(
            inner, active, lanes, lambda lane: copy([_stack_element(inner, "i32", board, lane) for board in boards])
        )
        return ""

    code.module.declarations.update(MEMORY_INTRINSICS)
    lengths = []
    for place in (source, destination):
        elements = code.put(f"zext i32 {place.length} to i64")
        lengths.append(code.put(f"mul i64 {elements}, {place.dtype.bytes}"))
    arguments = [
        ("ptr", source.pointer), ("ptr", destination.pointer), ("i64", lengths[0]), ("i64", lengths[1]),
        (vector, source_offset), (vector, destination_offset), (vector, size), (shaped("i1", lanes), mask),
    ]  # fmt: skip
    code.helper(f"copy_bytes.{lanes}", "void", arguments, write)


MEMORY_INTRINSICS = {
    "llvm.memcpy.p0.p0.i64": "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    "llvm.memset.p0.i64": "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
}

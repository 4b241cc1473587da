"""Loads and stores of a vector, selected by the shape of the index and by bounds proofs.

An access whose index is in bounds in every active lane is in ``proved`` (by identity) and needs no check. Otherwise the
lanes that are out of bounds are masked off. For consecutive indices, one scalar comparison shows that all lanes are in
bounds and do not wrap around; the access then has no mask, which is twice as fast on some processors. Accesses with an
address in ``facts`` are known to be in bounds, and consecutive, in the part of a row that is being written (``rows``).
"""

from __future__ import annotations

from typing import Final

from vyre.analyze.shapes import Layout, Shape
from vyre.emit.llvm import memory as m
from vyre.emit.llvm.masks import Masks
from vyre.emit.llvm.memory import ALL
from vyre.emit.llvm.streams import MIN_VECTOR_BYTES, Streams
from vyre.emit.llvm.text import ELEMENT, STORED, shaped, spread
from vyre.emit.llvm.values import NO_FACTS, LoopContext, Value
from vyre.ir import nodes as n
from vyre.semantics.types import DType

_LANE_BY_LANE: Final = frozenset({"gathers", "strided loads", "scatters", "strided stores", "atomics"})


class Accesses(Masks):
    """Writer of loads and stores.

    ``fixed`` are the buffers that do not change during a launch. Their elements at literal indices are loaded once, by
    the shell: ``launch_loads`` has the names of those that were asked for. ``streams`` are the buffers to prefetch or
    to store past the caches. ``mask`` is the execution mask; ``has_active_lane``: it is certainly not empty. Where
    there are ``facts``, ``row_place`` is the id of lane 0 along the lanes' axis, as i64, and ``row_mask`` the lanes of
    which they hold.
    """

    def __init__(self, width: int, layout: Layout) -> None:
        super().__init__(width)
        self.layout, self.step = layout, layout.step
        self.proved: frozenset[int] = frozenset()
        self.facts = NO_FACTS
        self.row_place, self.row_mask = "", ALL
        self.prefetch: frozenset[int] = frozenset()
        self.streams = Streams()
        self.mask, self.has_active_lane = ALL, True
        self.places: dict[str, m.Place] = {}
        self.fixed: frozenset[str] = frozenset()
        self.launch_loads: dict[tuple[str, int], str] = {}
        self.loops: list[LoopContext] = []
        # Accesses in loops: of whole vectors, and lane by lane.
        self.loop_accesses = [0, 0]
        self.notes = dict.fromkeys(
            ("uniform loads", "linear loads", "strided loads", "gathers", "uniform stores", "linear stores",
             "strided stores", "scatters", "atomics", "checks kept", "checks removed", "masked branches",
             "uniform branches", "divergent loops", "uniform loops"), 0
        )  # fmt: skip

    def _count(self, kind: str) -> None:
        self.notes[kind] += 1
        if self.loops:
            self.loop_accesses[kind in _LANE_BY_LANE] += 1

    def _iota(self, stride: int = 1, dtype: DType = DType.U32) -> str:
        element, most = ELEMENT[dtype], 1 << dtype.bits
        return f"<{', '.join(f'{element} {stride * lane % most}' for lane in range(self.width))}>"

    def _vector(self, value: Value) -> str:
        if value.shape is Shape.VARYING:
            return value.text
        element = ELEMENT[value.dtype]
        first = spread(self.code, element, value.text, self.width)
        if value.shape.stride:
            return self.vector.op("add", element, first, self._iota(value.shape.stride, value.dtype))
        return first

    def _is_proved(self, access: n.Node, *, happens_anyway: bool = False) -> bool:
        """Whether an access needs no check.

        An access that ``happens_anyway`` runs even if no lane is active, and proofs do not cover that.
        """
        proved = id(access) in self.proved and (self.has_active_lane or not happens_anyway)
        proved = proved or id(access) in self.facts.addresses
        self.notes["checks removed" if proved else "checks kept"] += 1
        return proved

    def _allowed(self, place: m.Place, index: str, proved: bool) -> str:
        """Return the mask of active lanes whose index is in bounds."""
        return self.mask if proved else self._and(self.mask, m.in_bounds(self.code, place, index, self.width))

    def _load(self, load: n.Load | n.Atomic, index: Value) -> Value:
        code, width, place = self.code, self.width, self.places[load.buffer]
        proved = self._is_proved(load, happens_anyway=index.shape is Shape.UNIFORM)
        if index.shape is Shape.UNIFORM:
            self._count("uniform loads")
            if isinstance(load.index, n.Lit) and load.buffer in self.fixed:
                name = self.launch_loads.setdefault((load.buffer, load.index.bits), f"%launch{len(self.launch_loads)}")
                return Value(place.dtype, Shape.UNIFORM, name)
            # In scalar code loads form dependency chains, so the next load should not wait for a check.
            text = m.load_uniform(code, place, index.text, checked=not proved, predicted=not width)
            return Value(place.dtype, Shape.UNIFORM, text)
        if id(load) in self.facts.addresses:
            self._count("linear loads")
            prefetch = id(load) in self.prefetch and self._fills_lines(place)
            address = self._row_address(load, place)
            raw = m.load_consecutive(code, place.dtype, address, self.row_mask, width, prefetch=prefetch)
        elif index.shape.stride == 1:
            self._count("linear loads")
            prefetch = id(load) in self.prefetch and self._fills_lines(place)
            raw = self._load_linear(place, index, proved, prefetch)
        else:
            self._count("strided loads" if index.shape.stride else "gathers")
            vector = self._vector(index)
            raw = m.gather(code, place, vector, self._allowed(place, vector, proved), width)
        return Value(place.dtype, Shape.VARYING, self.vector.from_memory(place.dtype, raw))

    def _row_address(self, access: n.Node, place: m.Place) -> str:
        """Return the address of lane 0's element, for an access that is consecutive along the row."""
        start = self.facts.addresses[id(access)]
        return self.code.put(f"getelementptr {STORED[place.dtype]}, ptr {start}, i64 {self.row_place}")

    def _fills_lines(self, place: m.Place) -> bool:
        return place.dtype.bytes * self.width >= MIN_VECTOR_BYTES

    def _load_linear(self, place: m.Place, index: Value, proved: bool, prefetch: bool) -> str:
        code, width = self.code, self.width
        is_straight = place.is_short or not index.shape.wraps
        if is_straight and proved:
            address = m.first_address(code, place, index.text)
            return m.load_consecutive(code, place.dtype, address, self.mask, width, prefetch=prefetch)
        near, far, end = (code.label(hint) for hint in ("near", "far", "end"))
        self._branch_if_near(place, index, proved, near, far)
        code.begin(near)
        # Inactive lanes may load too: their values are never used.
        address, mask = m.first_address(code, place, index.text), self.mask if proved else ALL
        straight = m.load_consecutive(code, place.dtype, address, mask, width, prefetch=prefetch)
        code.go(end)
        code.begin(far)
        vector = self._vector(index)
        if is_straight:
            address = m.first_address(code, place, index.text)
            around = m.load_consecutive(code, place.dtype, address, m.in_bounds(code, place, vector, width), width)
        else:
            around = m.gather(code, place, vector, self._allowed(place, vector, proved), width, cold=True)
        code.fall_through(end)
        kind = shaped(STORED[place.dtype], width)
        return code.put(f"phi {kind} [ {straight}, %{near} ], [ {around}, %{far} ]")

    def _branch_if_near(self, place: m.Place, index: Value, proved: bool, near: str, far: str) -> None:
        """Branch to ``near`` if the indices do not wrap around and, unless that is proved, all are in bounds."""
        code, last = self.code, self.width - 1
        if proved:
            limit = str((1 << 32) - last)
        else:
            limit = code.intrinsic("usub.sat", "i32", [("i32", place.length), ("i32", str(last))], ["i32"])
        code.branch(code.put(f"icmp ult i32 {index.text}, {limit}"), near, far, likely=True)

    def _store(self, store: n.Store, index: Value, value: Value) -> None:
        code, width, place = self.code, self.width, self.places[store.buffer]
        proved = self._is_proved(store)
        if index.shape is Shape.UNIFORM and value.shape is Shape.UNIFORM:
            self._count("uniform stores")
            self._store_uniform(place, index, value, proved)
            return
        raw = self.vector.to_memory(place.dtype, self._vector(value))
        if id(store) in self.facts.addresses:
            self._count("linear stores")
            past_caches = self.facts.past_caches.get(id(store), "") if self.row_mask == ALL else ""
            address = self._row_address(store, place)
            m.store_consecutive(code, place.dtype, address, raw, self.mask, width, past_caches=past_caches)
            return
        vector = self._vector(index)
        if index.shape.stride != 1:
            self._count("strided stores" if index.shape.stride else "scatters")
            m.scatter(code, place, vector, raw, self._allowed(place, vector, proved), width)
            return
        self._count("linear stores")
        is_straight = place.is_short or not index.shape.wraps
        if is_straight and (proved or self.mask != ALL):
            mask = self._allowed(place, vector, proved)
            self._store_linear(store, place, index, raw, mask)
            return
        near, far, end = (code.label(hint) for hint in ("near", "far", "end"))
        self._branch_if_near(place, index, proved, near, far)
        code.begin(near)
        self._store_linear(store, place, index, raw, self.mask)
        code.go(end)
        code.begin(far)
        allowed = self._allowed(place, vector, proved)
        if is_straight:
            m.store_consecutive(code, place.dtype, m.first_address(code, place, index.text), raw, allowed, width)
        else:
            m.scatter(code, place, vector, raw, allowed, width, cold=True)
        code.fall_through(end)

    def _store_linear(self, store: n.Store, place: m.Place, index: Value, raw: str, mask: str) -> None:
        code, width, past_caches = self.code, self.width, ""
        address = m.first_address(code, place, index.text)
        if self._is_streamed(store, place):
            past_caches = m.is_whole_line(code, place.dtype, address, width)
        m.store_consecutive(code, place.dtype, address, raw, mask, width, past_caches=past_caches)

    def _is_streamed(self, store: n.Store, place: m.Place) -> bool:
        return store.buffer in self.streams.written and self._fills_lines(place)

    def _store_uniform(self, place: m.Place, index: Value, value: Value, proved: bool) -> None:
        code = self.code
        raw = self.scalar.to_memory(place.dtype, value.text)
        end = self._skip_if_none_active()
        # In scalar code each invocation has its own index, unless it is a literal.
        is_private = not self.width and index.text.startswith("%")
        m.store_uniform(code, place, index.text, raw, checked=not proved, is_private=is_private)
        if end:
            code.fall_through(end)

    def _skip_if_none_active(self) -> str:
        """Branch over the following code if no lane is active; return its end label, "" if no branch is needed."""
        if self.has_active_lane:
            return ""
        some, end = self.code.label("any_active"), self.code.label("end")
        self.code.branch(self._any(self.mask), some, end)
        self.code.begin(some)
        return end

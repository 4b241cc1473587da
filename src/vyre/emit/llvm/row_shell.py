"""The loop over rows: kernels whose invocations do not depend on their workgroup run over rows of the whole grid."""

from __future__ import annotations

from typing import Final

from vyre.analyze.shapes import Shape
from vyre.emit.llvm.memory import ALL
from vyre.emit.llvm.rows import Row
from vyre.emit.llvm.shell import GRID, Shell
from vyre.emit.llvm.streams import Streams
from vyre.emit.llvm.text import spread
from vyre.emit.llvm.values import NO_FACTS, Facts, Value
from vyre.ir import nodes as n
from vyre.semantics.types import DType

_MAX_UNPOLLED_INVOCATIONS: Final = 1 << 14


class RowShell(Shell):
    """Writer of the loop over rows."""

    def _loop_over_invocations(self) -> None:
        """Loop over the rows of a range of invocations; ids of the slower axes change from row to row."""
        code, body = self.code, self.body
        orders = {0: (0, 1, 2), 1: (1, 0, 2), 2: (2, 1, 0)}
        lanes, *others = orders[self.axis]
        at, begin, *counters = (code.allocate(kind) for kind in ("i64", "i64", "i32", "i32"))
        code.begin("start")
        rest = "%first"
        extents = [self._extent(axis) for axis in (lanes, others[0])]
        code.do(f"store i64 %first, ptr {at}")
        for place, extent in zip((begin, counters[0]), extents, strict=True):
            left = code.put(f"urem i64 {rest}, {extent}")
            kind = "i64" if place is begin else "i32"
            code.do(f"store {kind} {left if kind == 'i64' else code.put(f'trunc i64 {left} to i32')}, ptr {place}")
            rest = code.put(f"udiv i64 {rest}, {extent}")
        code.do(f"store i32 {code.put(f'trunc i64 {rest} to i32')}, ptr {counters[1]}")
        code.fall_through("row")
        here = code.put(f"load i64, ptr {at}")
        code.branch(code.put(f"icmp ult i64 {here}, %last"), "invocations", "finish")
        code.begin("invocations")
        first = code.put(f"load i64, ptr {begin}")
        left = code.put(f"sub i64 {extents[0]}, {first}")
        there = code.put(f"sub i64 %last, {here}")
        count = code.intrinsic("umin", "i64", [("i64", left), ("i64", there)], ["i64"])
        for axis, counter in zip(others, counters, strict=True):
            self._set_row_ids(axis, code.put(f"load i32, ptr {counter}"))
        self._write_row(first, code.put(f"add i64 {first}, {count}"))
        code.begin("ran")
        code.do(f"store i64 {code.put(f'add i64 {here}, {count}')}, ptr {at}")
        code.do(f"store i64 0, ptr {begin}")
        more = code.put(f"add i32 {code.put(f'load i32, ptr {counters[0]}')}, 1")
        full = code.put(f"icmp eq i32 {more}, {code.put(f'trunc i64 {extents[1]} to i32')}")
        code.do(f"store i32 {code.put(f'select i1 {full}, i32 0, i32 {more}')}, ptr {counters[0]}")
        carry = code.put(f"zext i1 {full} to i32")
        slowest = code.put(f"load i32, ptr {counters[1]}")
        code.do(f"store i32 {code.put(f'add i32 {slowest}, {carry}')}, ptr {counters[1]}")
        body.poll("row")

    def _extent(self, axis: int) -> str:
        """Return the invocations along an axis of the grid; an empty grid runs nothing, but must not divide by zero."""
        count = self.code.intrinsic("umax", "i64", [("i64", f"{GRID[axis]}.wide"), ("i64", "1")], ["i64"])
        return self.code.put(f"mul i64 {count}, {self.program.workgroup_size[axis]}")

    def _set_row_ids(self, axis: int, place: str) -> None:
        """Set the ids along an axis that are the same in a whole row."""
        size = str(self.program.workgroup_size[axis])
        for kind, operation in ((n.InvocationId, ""), (n.LocalId, "urem"), (n.WorkgroupId, "udiv")):
            if (kind, axis) in self.ids:
                text = self.code.put(f"{operation} i32 {place}, {size}") if operation else place
                self.body.id_values[kind, axis] = Value(DType.U32, Shape.UNIFORM, text)

    def _write_row(self, first: str, last: str) -> None:
        """Write the vectors of a row, which start at multiples of their width.

        The invocations in front of the interior and behind it run general code, which is written once, in a loop that
        is entered twice. In the interior, complete vectors run code without masks; of the first and the last vector,
        only the invocations of the interior take part. Long programs are general code only.
        """
        body, code = self.body, self.code
        if not self.width:
            self._loop_over_whole(first, last, "ran", NO_FACTS)
            return
        has_interior = self.has_interior
        row = Row(first, last, first, last)
        if has_interior and self.check_elimination:
            row = body.row(self.segments[0], first, last)
        if row.is_active:
            code.branch(row.is_active, "active", "ran")
            code.begin("active")
        first, last = row.begin, row.end
        before, behind, has_partial = row.first, row.last, bool(row.facts.addresses)
        if not has_partial:
            before = code.put(f"and i64 {code.put(f'add i64 {before}, {self.step - 1}')}, {-self.step}")
            behind = self._vector_start(behind)
        exists = code.put(f"icmp slt i64 {before}, {behind}") if has_interior else "false"
        before = code.put(f"select i1 {exists}, i64 {before}, i64 {last}")
        at, since, until = (code.allocate("i64") for _ in range(3))

        def enter(start: str, end: str) -> None:
            for place, text in ((at, self._vector_start(start)), (since, start), (until, end)):
                code.do(f"store i64 {text}, ptr {place}")
            code.go("edges")

        enter(first, before)
        code.begin("edges")
        place, start, end = (code.put(f"load i64, ptr {name}") for name in (at, since, until))
        begin = code.intrinsic("umax", "i64", [("i64", place), ("i64", start)], ["i64"])
        code.branch(code.put(f"icmp ult i64 {begin}, {end}"), "edge", "edged")
        code.begin("edge")
        notes, streams, body.streams = dict(body.notes), body.streams, Streams()
        self._write_partial(place, start, end, row.edge_facts)
        code.do(f"store i64 {code.put(f'add i64 {place}, {self.step}')}, ptr {at}")
        body.poll("edges")
        code.begin("edged")
        if not has_interior:
            code.go("ran")
            return
        code.branch(code.put(f"icmp eq i64 {end}, {last}"), "ran", "interior")
        code.begin("interior")
        inside = self._vector_start(before)
        code.do(f"store i64 {inside}, ptr {at}")
        if has_partial:
            code.branch(code.put(f"icmp ult i64 {inside}, {before}"), "partial", "whole")
            code.begin("partial")
            place = code.put(f"load i64, ptr {at}")
            self._write_partial(place, before, behind, row.facts)
            code.do(f"store i64 {code.put(f'add i64 {place}, {self.step}')}, ptr {at}")
            code.go("whole")
        else:
            code.go("whole")
        code.begin("whole")
        body.notes, body.streams = notes, streams
        inside = code.put(f"load i64, ptr {at}")
        end = self._vector_start(behind)
        self._loop_over_whole(inside, end, "passed", row.facts)
        code.begin("passed")
        if has_partial:
            # The loop over whole vectors may have had none to run, where the interior ends in its first vector.
            next_ = code.intrinsic("umax", "i64", [("i64", inside), ("i64", end)], ["i64"])
            code.do(f"store i64 {next_}, ptr {at}")
            code.branch(code.put(f"icmp ult i64 {next_}, {behind}"), "partial", "behind")
            code.begin("behind")
        enter(behind, last)

    def _vector_start(self, place: str) -> str:
        """Return the start of the vector in which an id lies."""
        return self.code.put(f"and i64 {place}, {-self.step}")

    def _write_partial(self, place: str, first: str, last: str, facts: Facts) -> None:
        """Write the vector at ``place`` for its invocations between two ids; there is one."""
        body = self.body
        body.run_end, body.mask = self.code.label("next"), self._mask_between(place, first, last)
        body.row_place, body.row_mask = place, body.mask
        self._vector_ids(place)
        body.write_run(self.segments[0], facts)
        self.code.fall_through(body.run_end)

    def _mask_between(self, place: str, first: str, last: str) -> str:
        """Return the lanes of the vector at ``place`` whose ids are in the row."""
        lanes = self._lanes_from(self.code.put(f"trunc i64 {place} to i32"))
        vector, words = self.body.vector, [self.code.put(f"trunc i64 {limit} to i32") for limit in (first, last)]
        limits = [spread(self.code, "i32", word, self.width) for word in words]
        inside = (vector.op("icmp uge", "i32", lanes, limits[0]), vector.op("icmp ult", "i32", lanes, limits[1]))
        return vector.op("and", "i1", *inside)

    def _loop_over_whole(self, first: str, last: str, exit_: str, facts: Facts) -> None:
        """Write a loop over complete vectors, which polls the stop word once for many of them."""
        body, code = self.body, self.code
        at = code.allocate("i64")
        spans, head, lanes, pause = (code.label(hint) for hint in ("spans", "chunk", "lanes", "pause"))
        body.run_end, body.mask = code.label("next"), ALL
        code.do(f"store i64 {first}, ptr {at}")
        code.fall_through(spans)
        begin = code.put(f"load i64, ptr {at}")
        far = code.put(f"add i64 {begin}, {_MAX_UNPOLLED_INVOCATIONS}")
        span = code.intrinsic("umin", "i64", [("i64", far), ("i64", last)], ["i64"])
        code.fall_through(head)
        here = code.put(f"load i64, ptr {at}")
        code.branch(code.put(f"icmp ult i64 {here}, {span}"), lanes, pause)
        code.begin(lanes)
        body.row_place, body.row_mask = here, ALL
        self._vector_ids(here)
        body.write_run(self.segments[0], facts)
        code.fall_through(body.run_end)
        code.do(f"store i64 {code.put(f'add i64 {here}, {self.step}')}, ptr {at}")
        code.go(head)
        code.begin(pause)
        onward = code.label("onward")
        code.branch(code.put(f"icmp ult i64 {here}, {last}"), onward, exit_)
        code.begin(onward)
        body.poll(spans)

    def _vector_ids(self, place: str) -> None:
        """Set the ids along the lanes' axis. Vectors start at multiples of their width."""
        body, size = self.body, self.program.workgroup_size[self.axis]
        base = self.code.put(f"trunc i64 {place} to i32")
        within = not self.width or size % self.step == 0
        lanes, first = (body.scalar, base) if within else (body.vector, "")
        for kind, axis in self.ids:
            if axis != self.axis:
                continue
            if kind is n.InvocationId:
                body.id_values[kind, axis] = Value(DType.U32, Shape.LINEAR if self.width else Shape.UNIFORM, base)
                continue
            first = first or self._lanes_from(base)
            text = lanes.binary("mod" if kind is n.LocalId else "div", DType.U32, first, lanes.constant("i32", size))
            shape = Shape.UNIFORM if kind is n.WorkgroupId or not self.width else Shape.LINEAR
            body.id_values[kind, axis] = Value(DType.U32, shape if within else Shape.VARYING, text)

"""The loop over workgroups: the vectors of each, segment after segment where barriers cut it."""

from __future__ import annotations

import msgspec

from vyre.analyze.shapes import Shape
from vyre.emit.llvm.memory import ALL
from vyre.emit.llvm.shell import GRID, Shell, bytes_of
from vyre.emit.llvm.text import ELEMENT, spread
from vyre.emit.llvm.values import Value
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.lower import DONE
from vyre.semantics.types import DType


class WorkgroupShell(Shell):
    """Writer of the loop over workgroups."""

    def _loop_over_workgroups(self) -> None:
        code = self.code
        at, *axes = (code.allocate(kind) for kind in ("i64", "i32", "i32", "i32"))
        code.begin("start")
        code.do(f"store i64 %first, ptr {at}")
        self._first_workgroup(axes)
        code.fall_through("group")
        here = code.put(f"load i64, ptr {at}")
        code.branch(code.put(f"icmp ult i64 {here}, %last"), "workgroup", "finish")
        code.begin("workgroup")
        self.group = [code.put(f"load i32, ptr {axis}") for axis in axes]
        shared = sum(-(-bytes_of(decl) // 64) * 64 for decl in self.program.shared_buffers())
        if shared:
            self._clear(0, shared)
        if self.cut.straight:
            for segment in self.segments:
                self._run(segment)
        else:
            self._dispatch_segments()
        self._next_workgroup(axes)
        code.do(f"store i64 {code.put(f'add i64 {here}, 1')}, ptr {at}")
        self.body.poll("group")

    def _first_workgroup(self, axes: list[str]) -> None:
        code = self.code
        rest = "%first"
        for axis, name in zip(axes, GRID, strict=True):
            # An empty grid runs nothing, but must not divide by zero.
            size = code.intrinsic("umax", "i64", [("i64", f"{name}.wide"), ("i64", "1")], ["i64"])
            place = code.put(f"urem i64 {rest}, {size}")
            code.do(f"store i32 {code.put(f'trunc i64 {place} to i32')}, ptr {axis}")
            rest = code.put(f"udiv i64 {rest}, {size}")

    def _next_workgroup(self, axes: list[str]) -> None:
        code = self.code
        carry = "1"
        for axis, here, name in zip(axes, self.group, GRID, strict=True):
            more = code.put(f"add i32 {here}, {carry}")
            full = code.put(f"icmp eq i32 {more}, {name}")
            code.do(f"store i32 {code.put(f'select i1 {full}, i32 0, i32 {more}')}, ptr {axis}")
            carry = code.put(f"zext i1 {full} to i32")

    def _dispatch_segments(self) -> None:
        """Dispatch segments by the control word; one thread runs the workgroup, so barriers need no waiting."""
        code = self.code
        control = self.body.next_slots[self.cut.control].pointer
        code.fall_through("segment0")
        for number, segment in enumerate(self.cut.segments):
            if number:
                code.begin(f"segment{number}")
            code.do(f"store i32 {DONE}, ptr {control}")
            self._run(self.segments[number])
            following = [to for to in segment.exits if to != DONE]
            if any(to <= number for to in following):
                onward = code.label("onward")
                self.body.poll(onward)
                code.begin(onward)
            targets = " ".join(f"i32 {to}, label %segment{to}" for to in following)
            code.do(f"switch i32 {code.put(f'load i32, ptr {control}')}, label %done [ {targets} ]")
        code.begin("done")

    def _run(self, segment: Program) -> None:
        """Write a loop that runs a segment for each vector of the workgroup."""
        body, code, width = self.body, self.code, self.width
        at = code.allocate("i32")
        head, lanes, after = (code.label(hint) for hint in ("run", "lanes", "ran"))
        body.run_end = code.label("next")
        code.do(f"store i32 0, ptr {at}")
        code.fall_through(head)
        body.chunk = code.put(f"load i32, ptr {at}")
        code.branch(code.put(f"icmp ult i32 {body.chunk}, {self.chunks}"), lanes, after)
        code.begin(lanes)
        first = code.put(f"mul i32 {body.chunk}, {self.step}")
        lane = self._lanes_from(first)
        body.mask = ALL
        if self.step < width:
            body.mask = f"<{', '.join(f'i1 {int(lane < self.step)}' for lane in range(width))}>"
        elif width and self.size % width:
            body.mask = body.vector.op("icmp ult", "i32", lane, body.vector.constant("i32", self.size))
        self._group_ids(first, lane)
        body.write_run(segment)
        code.fall_through(body.run_end)
        code.do(f"store i32 {code.put(f'add i32 {body.chunk}, 1')}, ptr {at}")
        code.go(head)
        code.begin(after)
        filled = {s.buffer for s in walk.statements(segment.entry) if isinstance(s, n.Store)}
        for slot in self.cut.slots:
            if slot.is_uniform and slot.buffer in filled:
                kind, old, new = ELEMENT[slot.dtype], body.slots[slot.buffer], body.next_slots[slot.buffer]
                code.do(f"store {kind} {code.put(f'load {kind}, ptr {new.pointer}')}, ptr {old.pointer}")

    def _group_ids(self, first: str, lane: str) -> None:
        body, code = self.body, self.code
        x, y, z = self.program.workgroup_size
        linear = Shape.LINEAR if self.width else Shape.UNIFORM
        if y == 1 and z == 1:
            zero = Value(DType.U32, Shape.UNIFORM, "0")
            local = [Value(DType.U32, linear, first), zero, zero]
        else:
            rows = x % self.step == 0
            lanes, at = (body.scalar, first) if rows else (body.vector, lane)
            rest = lanes.binary("div", DType.U32, at, lanes.constant("i32", x))
            texts = (
                lanes.binary("mod", DType.U32, at, lanes.constant("i32", x)),
                lanes.binary("mod", DType.U32, rest, lanes.constant("i32", y)),
                lanes.binary("div", DType.U32, rest, lanes.constant("i32", y)),
            )
            shapes = (linear, Shape.UNIFORM, Shape.UNIFORM) if rows else (Shape.VARYING,) * 3
            local = [Value(DType.U32, s, t) for s, t in zip(shapes, texts, strict=True)]
        for kind, axis in self.ids:
            group = Value(DType.U32, Shape.UNIFORM, self.group[axis])
            if kind is n.WorkgroupId:
                value = group
            elif kind is n.LocalId:
                value = local[axis]
            else:
                start = code.put(f"mul i32 {group.text}, {self.program.workgroup_size[axis]}")
                lanes = body.scalar
                if local[axis].shape is Shape.VARYING:
                    lanes, start = body.vector, spread(code, "i32", start, self.width)
                value = msgspec.structs.replace(local[axis], text=lanes.op("add", "i32", local[axis].text, start))
            body.id_values[kind, axis] = value

"""What do optimizers work on here? Integer code of any size, as a program and as LLVM's, and what it computes.

Each statement computes two operations from values before it: any of them (wide), or always the last one (chain).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from random import Random
from time import perf_counter
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np

from peers import Array
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.program import Program
from vyre.semantics.operators import OPERATORS
from vyre.semantics.scalars import scalar_cast, scalar_meaning
from vyre.semantics.types import DType

INPUTS = 16
_STORED = 16
_ONES = 0xFFFFFFFF
_LITERALS = (0, 1, 2, 3, 5, 7, 8, 10, 16, 255, 1000, 12345, 0xFFFF, 0x80000000, _ONES)
_MEANINGS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b & _ONES, "sub": lambda a, b: a - b & _ONES, "mul": lambda a, b: a * b & _ONES,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b & _ONES, "shr": lambda a, b: a >> b,
}  # fmt: skip


class Step(NamedTuple):
    """An operation of the value of an earlier step (or an input, counted from -1 down) and another, or a literal."""

    op: str
    left: int
    right: int
    has_literal: bool


def integer_code(size: int, shape: str, seed: int = 1) -> list[Step]:
    """So many operations."""
    random = Random(seed)
    steps: list[Step] = []

    def earlier(first: int) -> int:
        behind = len(steps) // 2
        if behind == 0 or random.random() < 0.1:
            return -1 - random.randrange(INPUTS)
        return 2 * random.randrange(max(0, first), behind) + 1

    for number in range(size):
        op = random.choice(list(_MEANINGS))
        left = number - 1 if number % 2 or (shape == "chain" and number) else earlier(0)
        if op in ("shl", "shr"):
            steps.append(Step(op, left, random.randrange(32), True))
        elif random.random() < 0.3:
            steps.append(Step(op, left, random.choice(_LITERALS), True))
        else:
            steps.append(Step(op, left, earlier(number // 2 - 64 if shape == "chain" else 0), False))
    return steps


def _stored(steps: list[Step]) -> list[int]:
    """The steps whose values are results."""
    return [*range(_STORED - 1, len(steps) - 1, _STORED), len(steps) - 1]


def computed(steps: list[Step], given: Array) -> Array:
    """What the code computes, said by Python's numbers."""
    values: list[int] = []
    inputs = given.tolist()
    for op, left, right, has_literal in steps:
        one = values[left] if left >= 0 else inputs[-1 - left]
        other = right if has_literal else values[right] if right >= 0 else inputs[-1 - right]
        values.append(_MEANINGS[op](one, other))
    return np.array([values[step] for step in _stored(steps)], np.uint32)


def as_program(steps: list[Step]) -> Program:
    """Two steps are one statement."""
    names = [n.Var(f"x{k}") for k in range(INPUTS)]
    body: list[n.Stmt] = [n.Let(var.name, n.Load("given", n.lit(k))) for k, var in enumerate(names)]
    values: list[n.Expr] = []
    places = {step: place for place, step in enumerate(_stored(steps))}
    for number, (op, left, right, has_literal) in enumerate(steps):
        one = values[left] if left >= 0 else names[-1 - left]
        other = n.lit(right) if has_literal else values[right] if right >= 0 else names[-1 - right]
        value: n.Expr = n.BinOp(op, one, other)
        if number % 2 or number + 1 == len(steps):
            var = n.Var(f"v{number}")
            body.append(n.Let(var.name, value))
            value = var
        values.append(value)
        if number in places:
            body.append(n.Store("out", n.lit(places[number]), value))
    buffers = [BufferDecl.read("given", 0, DType.U32, INPUTS), BufferDecl.output("out", 1, DType.U32, len(places))]
    return Program.new(buffers, 1, body)


def executed(program: Program, given: Array) -> Array:
    """What a program without branches computes, by the meanings of the operators.

    (The interpreter takes too long to begin with programs of a hundred thousand statements.)
    """
    out = np.zeros(program.buffer("out").count, np.uint32)
    values: dict[str, tuple[Any, DType]] = {}
    for statement in program.entry:
        match statement:
            case n.Let(name, value):
                values[name] = _value(value, values, given)
            case n.Store("out", n.Lit(place), value):
                out[place] = _value(value, values, given)[0]
            case _:
                raise TypeError(f"{type(statement).__name__} is not in code without branches")
    return out


def _value(root: n.Expr, values: dict[str, tuple[Any, DType]], given: Array) -> tuple[Any, DType]:
    stack: list[tuple[Any, DType]] = []
    for node in walk.postorder(root):
        count = len(walk.operands(node))
        operands = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        match node:
            case n.Lit():
                stack.append((node.value, node.dtype))
            case n.Var(name):
                stack.append(values[name])
            case n.Load("given"):
                stack.append((int(given[operands[0][0]]), DType.U32))
            case n.BinOp(op) | n.UnOp(op):
                dtype = operands[0][1]
                value = scalar_meaning(op, dtype)(*(value for value, _ in operands))
                stack.append((value, OPERATORS[op].result_type(dtype)))
            case n.Select():
                stack.append(operands[1] if operands[0][0] else operands[2])
            case n.Cast(target):
                stack.append((scalar_cast(operands[0][1], target)(operands[0][0]), target))
            case _:
                raise TypeError(f"{type(node).__name__} is not in integer code")
    return stack[0]


def as_llvm(steps: list[Step]) -> str:
    """The same as one function of LLVM's."""
    lines = ["define void @run(ptr noalias %given, ptr noalias %out) {"]
    lines += [f"%p{k} = getelementptr i32, ptr %given, i32 {k}\n%x{k} = load i32, ptr %p{k}" for k in range(INPUTS)]
    places = {step: place for place, step in enumerate(_stored(steps))}
    for number, (op, left, right, has_literal) in enumerate(steps):
        one = f"%v{left}" if left >= 0 else f"%x{-1 - left}"
        other = str(right) if has_literal else f"%v{right}" if right >= 0 else f"%x{-1 - right}"
        lines.append(f"%v{number} = {'lshr' if op == 'shr' else op} i32 {one}, {other}")
        if number in places:
            place = places[number]
            lines.append(f"%q{place} = getelementptr i32, ptr %out, i32 {place}\nstore i32 %v{number}, ptr %q{place}")
    return "\n".join([*lines, "ret void", "}"]) + "\n"


class Passes:
    """LLVM's instcombine, sccp and adce, on code that has been read before."""

    def __init__(self, text: str) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.text = text
        self.module = llvm.parse_assembly(text)

    def run(self) -> float:
        """The seconds that the passes take."""
        self.module = llvm.parse_assembly(self.text)
        target = llvm.Target.from_default_triple().create_target_machine()
        builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options())
        passes = llvm.create_new_module_pass_manager()
        passes.add_instruction_combine_pass()
        passes.add_sccp_pass()
        passes.add_aggressive_dce_pass()
        start = perf_counter()
        passes.run(self.module, builder)
        return perf_counter() - start

    def instructions(self) -> int:
        blocks = self.module.get_function("run").blocks
        return sum(1 for block in blocks for _ in block.instructions)

    def results(self, given: Array, count: int) -> Array:
        """What the code as it is now computes."""
        target = llvm.Target.from_default_triple().create_target_machine(opt=0, codemodel="large")
        engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(str(self.module)), target)
        engine.finalize_object()
        out = np.zeros(count, np.uint32)
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("run"))
        function(given.ctypes.data, out.ctypes.data)
        return out

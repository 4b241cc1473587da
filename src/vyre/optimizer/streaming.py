"""How does the reader's program get what it reads? As streams of bytes: while it reads one, the next is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain
from threading import Event
from typing import Any, Final

import msgspec
import numpy as np

from vyre.ir import nodes as n
from vyre.ir.binding import Array
from vyre.ir.program import Program, Stats
from vyre.optimizer.dispatcher import OptimizerDispatcher, ResidentRange, ResidentStep, words_of
from vyre.optimizer.reader import DEEPEST, LEAVES, RECORD, RESULT, forms, operations

COLUMNS: Final = ("head", "a0", "a1", "level")
_FOUND: Final = ("result", "values", "ends", "fresh", "thirds", "memory", *COLUMNS)


class Part(msgspec.Struct, frozen=True, eq=False):
    """Some of the nodes, as bytes, and the reader's parameters for them."""

    stream: Array
    params: Array


def parts(known: Sequence[Any], run: n.Body, at_once: int, first: Sequence[int], names: list[str]) -> Iterator[Part]:
    """What is known and a run, so many statements at once, up to some that nest too deeply to be written.

    ``first`` are the numbers of the next row, version and event. ``names`` are given those of the declarations, while
    these are in the processor's caches and something else is being read.
    """
    count = 0
    for start in range(0, len(run), at_once):
        statements = run[start : start + at_once]
        nodes: Sequence[Any] = statements if start else [*known, *statements]
        try:
            stream = msgspec.msgpack.encode(nodes)
        except RecursionError:
            return
        names += [one.name for one in statements if type(one) is n.Let]
        count += len(nodes)
        begins = 1 if len(nodes) < 16 else 3 if len(nodes) < 1 << 16 else 5
        params = np.array([begins, len(known), count, *first], np.uint32)
        yield Part(np.frombuffer(stream, np.uint8), params)


def room(stats: Stats, known: int, run: int, letters: int) -> dict[str, int]:
    """The words of the reader's own buffers: enough for every run of a program with these ``stats``.

    Only the ``letters`` of long names are a guess, and what comes when there is no more room for them is not read.
    """

    def count(*classes: type[n.Node]) -> int:
        return sum(stats.kinds.get(cls.__name__, 0) for cls in classes)

    # A quarter of the table stays empty.
    words = known + run + count(n.Lit, *LEAVES)
    rows = stats.expressions - count(n.Var) + count(n.Store)
    sizes = {"words": RECORD << (4 * words // 3).bit_length(), "letters": letters}
    sizes |= {"stack": RECORD * DEEPEST, "result": len(RESULT), **dict.fromkeys(COLUMNS, rows)}
    sizes |= {"values": run, "ends": 2 * min(run, count(n.Store))}
    sizes |= {"fresh": 2 * count(n.Load), "thirds": 2 * count(n.Load, n.Select, n.Fma)}
    return {name: max(1, size) for name, size in sizes.items()}


def read_plainly(
    dispatcher: OptimizerDispatcher, program: Program, given: Mapping[str, Array], sizes: Mapping[str, int], part: Part
) -> dict[str, Array]:
    """What the reader finds in the only part."""
    blank = {name: np.zeros(size, np.uint32) for name, size in sizes.items()}
    memory = {**_tables(), **given, **blank, "stream": part.stream, "params": part.params}
    inputs = [(data := memory[decl.name].tobytes()) + bytes(-len(data) % 4) for decl in program.input_buffers()]
    outputs = dispatcher.dispatch(program, inputs, (1,))
    return {
        decl.name: words_of(decl.name, data, memory[decl.name].size)
        for decl, data in zip(program.output_buffers(), outputs, strict=True)
    }


def read_resident(
    dispatcher: OptimizerDispatcher,
    program: Program,
    given: Mapping[str, Array],
    sizes: Mapping[str, int],
    first: Part,
    others: Iterator[Part] | None,
) -> dict[str, Array]:
    """What the reader finds in all parts, for which the host waits once."""
    given = {**_tables(), **given}
    words = {name: column.size for name, column in given.items()} | dict(sizes)

    with ExitStack() as buffers:
        held = buffers.enter_context(dispatcher.held({name: 4 * size for name, size in words.items()}))
        # While one part is being read, the next one is put where the one before it was.
        own: list[tuple[int, dict[str, int]]] = [(0, {}), (0, {})]

        def step(part: Part) -> ResidentStep:
            """The part is on the device, and what will read it."""
            room, handles = own.pop(0)
            if room < part.stream.nbytes:
                # A quarter more than is needed now, in whole words.
                room = (part.stream.nbytes // 16 + 1) * 20
                handles = buffers.enter_context(dispatcher.held({"stream": room, "params": part.params.nbytes}))
            own.append((room, handles))
            dispatcher.upload_many([(handles["stream"], _bytes(part.stream)), (handles["params"], _bytes(part.params))])
            handles = held | handles
            return ResidentStep(program, tuple(handles[decl.name] for decl in program.buffers), (1,))

        blank = [(held[name], 4 * words[name], 0) for name in ("words", "result")]
        uploads = [(held[name], _bytes(column)) for name, column in given.items()]
        dispatcher.run_sequence([], [], fills=blank, uploads=uploads)
        if others is None:
            dispatcher.dispatch_sequence([step(first)])
        else:
            _run_in_turn(dispatcher, map(step, chain((first,), others)))
        data = dispatcher.read_ranges([ResidentRange(held[name], 0, 4 * words[name]) for name in _FOUND])
    return {name: words_of(name, part, words[name]) for name, part in zip(_FOUND, data, strict=True)}


def _tables() -> dict[str, Array]:
    return {"forms": forms(), "operations": operations()}


def _bytes(column: Array) -> memoryview:
    return column.view(np.uint8).data


def _run_in_turn(dispatcher: OptimizerDispatcher, steps: Iterator[ResidentStep]) -> None:
    """Runs one step after another, each while the next one is being made."""

    def begin(step: ResidentStep) -> Future[None]:
        begun = Event()

        def run() -> None:
            begun.set()
            dispatcher.dispatch_sequence([step])

        running = threads.submit(run)
        # Whoever makes the next step does not let go of Python's lock, which this takes to begin.
        begun.wait()
        return running

    with ThreadPoolExecutor(1, "vyre-reader") as threads:
        running: Future[None] | None = None
        for step in steps:
            if running is not None:
                running.result()
            running = begin(step)
        if running is not None:
            running.result()

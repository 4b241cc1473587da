"""Dispatches as data: kernels with their bindings and workgroups, and the commands that run them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

_STORAGE_BINDING: Final = re.compile(r"var<storage, (read|read_write)>")

# Bytes of a buffer: where they begin, and how many.
Region = tuple[Any, int, int]


def whole_words(byte_count: int) -> int:
    """The bytes of the words that hold ``byte_count`` bytes, at least one word."""
    return max(4, -(-byte_count // 4) * 4)


def whole(buffer: Any) -> Region:
    """The region that is all of a buffer."""
    return buffer, 0, buffer.size


def storage_access(text: str) -> tuple[str, ...]:
    """The access modes of a kernel's storage buffers, "read" or "read_write", in binding order."""
    return tuple(_STORAGE_BINDING.findall(text))


class Pipeline:
    """A compiled kernel and the layout of its bindings."""

    __slots__ = ("layout", "pipeline")

    def __init__(self, pipeline: Any, layout: Any) -> None:
        self.pipeline = pipeline
        self.layout = layout


class Work(msgspec.Struct, frozen=True, eq=False):
    """One dispatch on the device: a pipeline, its bindings and its workgroups.

    With ``arguments``, a buffer and an offset, the workgroups are read from there when it runs. A dispatch that runs
    ``always`` also does after the last pass. ``cost`` is an upper bound of the loop iterations of all its invocations.
    """

    pipeline: Pipeline
    group: Any
    groups: tuple[int, int, int] = (1, 1, 1)
    has_faults: bool = False
    arguments: tuple[Any, int] | None = None
    always: bool = False
    cost: float = 0


def encode(compute: Any, works: Iterable[Work]) -> None:
    """Encode dispatches into a compute pass, and end it."""
    pipeline = group = None
    for work in works:
        if work.pipeline is not pipeline:
            pipeline = work.pipeline
            compute.set_pipeline(pipeline.pipeline)
        if work.group is not group:
            group = work.group
            compute.set_bind_group(0, group)
        if work.arguments is None:
            compute.dispatch_workgroups(*work.groups)
        else:
            compute.dispatch_workgroups_indirect(*work.arguments)
    compute.end()

"""The way of a program in docs/architecture.md is the one that it takes: each hop, in its order, on both backends."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import cpu_support
import vyre
import webgpu_support
from vyre.driver import Backend, DispatchConfig
from vyre.ir import parse

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SOURCE = Path(vyre.__file__).parent
HOP = re.compile(r"`([a-z_/]+\.py): ([A-Za-z_.]+)`")
PROGRAM = """
program walked(workgroup 2) {
  buffer 0 a: u32[64] readwrite
  let x = a[gid.x]
  for k in 0 .. NUMBER { grid_sync; x = x + 1 }
  a[gid.x] = x
}
"""


def steps(backend: str) -> list[tuple[str, str]]:
    """The hops that the page lists for a backend, in order."""
    start = PAGE.index("On `cpu`:")
    middle = PAGE.index("On `webgpu`,")
    end = PAGE.index("## Packages")
    return HOP.findall(PAGE[start:middle] if backend == "cpu" else PAGE[middle:end])


def called(run: Callable[[], object]) -> list[tuple[str, str]]:
    """Every function of vyre that a call enters, in the order of the first time."""
    found: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(SOURCE)):
            found.setdefault((str(Path(name).relative_to(SOURCE)), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(found)


@pytest.mark.parametrize("name", ["cpu", "webgpu"])
def test_the_way_of_a_program_is_the_one_on_the_page(name: str) -> None:
    on: Backend = cpu_support.backend(None, 2) if name == "cpu" else webgpu_support.backend()
    assert on.capabilities is not None  # the device is open before the way begins
    program = parse(PROGRAM.replace("NUMBER", "5" if name == "cpu" else "6"))
    data = np.arange(64, dtype=np.uint32)
    # The optimizer goes the same way with its own programs, on the processor.
    config = DispatchConfig(optimize=False)
    outputs: list[memoryview] = []
    way = called(lambda: outputs.extend(on.dispatch(program, [data], config)))
    assert np.frombuffer(outputs[0], np.uint32).tolist() == [value + (5 if name == "cpu" else 6) for value in data]
    listed = steps(name)
    assert len(listed) == len(set(listed)) >= 6, "no hop is visited twice"
    places = [way.index(hop) for hop in listed]
    assert places == sorted(places), [hop for _, hop in listed]


def test_every_hop_of_the_page_exists() -> None:
    for path, name in HOP.findall(PAGE):
        text = (SOURCE / path).read_text(encoding="utf-8")
        assert re.search(rf"^\s*(def|class) {name.rpartition('.')[2]}\b", text, re.MULTILINE), (path, name)

"""The examples do what they say."""

from __future__ import annotations

import importlib.util
import struct
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Any:
    return lambda: capsys.readouterr().out


def test_saxpy(said: Any) -> None:
    example("saxpy").main(1000)
    out = said()
    assert "the same as NumPy, to the bit: True" in out
    assert "y[i] = a * x[i] + y[i]" in out


def test_mandelbrot_writes_a_picture(tmp_path: Path, said: Any) -> None:
    path = tmp_path / "m.png"
    example("mandelbrot").main(str(path), 96, 64)
    assert "96 x 64" in said()
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (96, 64)
    start = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[start - 4 : start])
    rows = np.frombuffer(zlib.decompress(data[start + 4 : start + 4 + length]), np.uint8).reshape(64, 97)[:, 1:]
    assert rows[32, 64] == 0  # the origin is in the set
    assert rows[0, 0] > 0
    assert (rows == rows[:1]).all() == np.False_


def test_reduction(said: Any) -> None:
    example("reduction").main(5000)
    first, second = said().splitlines()
    sums = first.split(" is ")[1].split("; NumPy says ")
    assert sums[0] == sums[1]
    assert second == "races on the first thousand: 0 - depends on the order: False"


@pytest.mark.parametrize("generations", [40, 41])
def test_life(said: Any, generations: int) -> None:
    module = example("life")
    module.main(16, generations)
    drawn = np.array([[cell == "#" for cell in row] for row in said().splitlines()[1:]])
    world = np.zeros((16, 16), int)
    world[:3, :3] = module.GLIDER
    for _ in range(generations):
        around = sum(np.roll(world, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1)) - world
        world = ((around == 3) | ((around == 2) & (world == 1))).astype(int)
    assert (drawn == world).all()


def test_bfs(said: Any) -> None:
    module = example("bfs")
    module.main(300, 600)
    offsets, targets = module.random_graph(300, 600)
    counts, seen, front = [], {0}, [0]
    while front:
        counts.append(len(front))
        reached = {int(t) for node in front for t in targets[offsets[node] : offsets[node + 1]]} - seen
        seen |= reached
        front = sorted(reached)
    assert said().splitlines()[1] == f"by level: {' '.join(map(str, counts))}"


def test_lcs(said: Any) -> None:
    module = example("lcs")
    a, b = b"gattaca tagacat", b"tacgatacatag"
    module.main(a, b)
    head, found = said().rstrip("\n").split("\n")
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    assert f"share {table[-1][-1]} letters" in head
    assert len(found) == table[-1][-1]
    for text in (a.decode(), b.decode()):
        letters = iter(text)
        assert all(letter in letters for letter in found)


def test_nbody(said: Any) -> None:
    example("nbody").main(40, 5)
    first, second = said().splitlines()
    assert first.startswith("40 bodies, 5 steps: fastest ")
    assert all(abs(float(part)) < 0.01 for part in second.split("[")[1].rstrip("]").split())

"""Thousands of generated programs give the reference's bytes: in every setting, alone and shared with another thread.

A block of seeds fails with those that failed, and the first of them reduced to a few lines. If one takes the process
down, ``-n0 -s -k seeds_FIRST_`` prints each seed before it runs. The long suite goes on from ``VYRE_FIRST_SEED``.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest

from cpu_support import Outcome, backend, compare, meaning, outcome, sharing_backend
from generated import Made, made, told
from vyre.backends.cpu import CpuBackend
from vyre.backends.cpu.kernels import SCALAR, WIDTHS
from vyre.conform import Case
from vyre.ir import nodes as n

BLOCKS, SEEDS_PER_BLOCK = 50, 100
LONG_BLOCKS, SEEDS_PER_LONG_BLOCK = 100, 1000
FIRST_LONG_SEED = int(os.environ.get("VYRE_FIRST_SEED", "10000"))

# A width, and whether accesses that are proved to be in bounds go unchecked.
Setting = tuple[int, bool]
SETTINGS: list[Setting] = list(product((SCALAR, *WIDTHS), (True, False)))


def blocks(first: int, count: int, size: int) -> list[Any]:
    """Blocks of seeds, each with one of the settings in turn, named by their ranges."""
    return [
        pytest.param(start, SETTINGS[start // size % len(SETTINGS)], id=f"seeds_{start}_{start + size}")
        for start in range(first, first + count * size, size)
    ]


def backends(setting: Setting) -> dict[str, CpuBackend]:
    width, checks = setting
    return {
        "alone": backend(width, 1, checks, keep=False),
        "shared": sharing_backend(2, width, checks, keep=False),
    }


def made_for(seed: int, setting: Setting) -> Made:
    return made(seed, subgroups=False) if setting[0] == SCALAR else made(seed)


def wrong_with(seed: int, setting: Setting) -> tuple[str, str] | None:
    """Where a seed's program gives something else than it must, and what."""
    what = made_for(seed, setting)
    expected = meaning(what.case)
    for name, on in backends(setting).items():
        found = compare(expected, outcome(what.case, on, optimize=what.optimize))
        if found is not None:
            return name, found
    return None


@contextmanager
def rarely_collecting() -> Iterator[None]:
    """Programs are made and dropped by the thousand; what was there before need not be looked at each time."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def check_block(first: int, count: int, setting: Setting) -> None:
    failed = []
    with rarely_collecting():
        for seed in range(first, first + count):
            print(seed, end=" ", flush=True)
            found = wrong_with(seed, setting)
            if found is not None:
                failed.append((seed, *found))
    if not failed:
        return
    seed, name, found = failed[0]
    what, on = made_for(seed, setting), backends(setting)[name]
    shown = told(
        what.case,
        f"seed {seed}: {found} (width {setting[0]}, check_elimination={setting[1]}, {name}, optimize={what.optimize})",
        lambda smaller: compare(meaning(smaller), outcome(smaller, on, optimize=what.optimize)) is not None,
    )
    pytest.fail(f"{len(failed)} of {count} seeds fail: {[one for one, _, _ in failed]}\n{shown}", pytrace=False)


@pytest.mark.parametrize(("first", "setting"), blocks(0, BLOCKS, SEEDS_PER_BLOCK))
def test_generated_programs_give_the_bytes_of_the_reference(first: int, setting: Setting) -> None:
    check_block(first, SEEDS_PER_BLOCK, setting)


@pytest.mark.long
@pytest.mark.parametrize(("first", "setting"), blocks(FIRST_LONG_SEED, LONG_BLOCKS, SEEDS_PER_LONG_BLOCK))
def test_many_generated_programs_give_the_bytes_of_the_reference(first: int, setting: Setting) -> None:
    check_block(first, SEEDS_PER_LONG_BLOCK, setting)


def test_a_failure_names_its_seed_and_shows_a_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_select(case: Case, on: CpuBackend, *, optimize: bool) -> Outcome:  # noqa: ARG001
        return "wrong" if case.program.stats().has(n.Select) else meaning(case)

    monkeypatch.setattr(sys.modules[__name__], "outcome", without_select)
    with pytest.raises(pytest.fail.Exception) as caught:
        check_block(0, 6, SETTINGS[0])
    text = str(caught.value)
    first = next(seed for seed in range(6) if made_for(seed, SETTINGS[0]).case.program.stats().has(n.Select))
    assert f"seed {first}: expected outputs, got wrong (width 1" in text
    assert "select(" in text
    assert len(text.splitlines()) < 16

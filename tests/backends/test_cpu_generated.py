"""Thousands of generated programs give the reference's bytes: in every setting, alone and shared with another thread.

Each is also run optimised, on the processor or on the reference, for half of the programs with one of the optimizer's
switches off; what is optimised is no larger, and stays as it is when optimised again. Half of the blocks do with little
memory what is meant for much.

A block of seeds fails with those that failed, and the first of them reduced to a few lines. If one takes the process
down, ``-n0 -s -k seeds_FIRST_`` prints each seed before it runs. The long suite goes on from ``VYRE_FIRST_SEED``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import msgspec
import pytest

from cpu_support import Outcome, as_if_large, backend, code_made_once, compare, meaning, outcome, sharing_backend
from generated import Made, made, told
from vyre.backends.cpu import CpuBackend
from vyre.backends.cpu.kernels import SCALAR, WIDTHS
from vyre.conform import Case
from vyre.driver.optimizing import optimize
from vyre.ir import nodes as n
from vyre.ir.program import Program
from vyre.ir.wire import program_bytes
from vyre.optimizer.rules import GROUPS
from vyre.optimizer.switches import PASSES, Optimization

BLOCKS, SEEDS_PER_BLOCK = 50, 100
LONG_BLOCKS, SEEDS_PER_LONG_BLOCK = 100, 1000
FIRST_LONG_SEED = int(os.environ.get("VYRE_FIRST_SEED", "10000"))

# A width, and whether accesses that are proved to be in bounds go unchecked.
Setting = tuple[int, bool]
SWITCHES = (*PASSES, *GROUPS)
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


def ways(
    seed: int, setting: Setting, code: bool, *, thorough: bool
) -> dict[str, Callable[[Case, Outcome], str | None]]:
    """The ways in which a seed's program is tried; each says what is different from what it must give.

    ``code`` says whether it is to be as good as it can be. Unless it is to be thorough, the processor runs every other
    program as it is, and the reference the optimised one.
    """
    plain = Optimization(program=False, code=code)
    off = (SWITCHES[seed // 4 % len(SWITCHES)],) if seed % 4 < 2 else ()
    switches = Optimization(frozenset(off), code=code, keep=False)
    on = backends(setting)

    def on_processor(name: str, optimize: Optimization) -> Callable[[Case, Outcome], str | None]:
        return lambda case, expected: compare(expected, outcome(case, on[name], optimize=optimize))

    tried: dict[str, Callable[[Case, Outcome], str | None]] = {}
    if thorough or seed % 2:
        tried |= {f"optimised, {name}": on_processor(name, switches) for name in on}
    if thorough or not seed % 2:
        tried |= {name: on_processor(name, plain) for name in on}
        tried["optimised, on the reference"] = lambda case, expected: wrong_on_reference(case, expected, switches)
    return tried


def wrong_on_reference(case: Case, expected: Outcome, switches: Optimization) -> str | None:
    """What is wrong with the optimised program, as the reference sees it."""
    made, report = optimize(case.program, report=True, switches=switches)
    found = compare(expected, meaning(msgspec.structs.replace(case, program=made)))
    if found is not None:
        return found
    if report.rows_after > report.rows_before:
        return f"{report.rows_before} rows became {report.rows_after}"
    if switches.off:
        # What is left because a switch is off may be seen for what it is by the next round.
        return None
    again = optimize(made, switches=switches)
    if without_names(again) != without_names(made):
        return f"optimising again gives another program:\n{made}\n{again}"
    return None


def without_names(program: Program) -> tuple[object, object]:
    """What a program is but for what its variables are called: on the wire, names are numbers in order of first use."""
    parts = msgspec.msgpack.decode(program_bytes(program))
    return program.buffers, parts[6]


def wrong_with(seed: int, setting: Setting, *, thorough: bool) -> tuple[str, str] | None:
    """Where a seed's program gives something else than it must, and what."""
    made = made_for(seed, setting)
    case, expected = made.case, meaning(made.case)
    for name, difference in ways(seed, setting, made.optimize, thorough=thorough).items():
        found = difference(case, expected)
        if found is not None:
            return name, found
    return None


def check_block(first: int, count: int, setting: Setting, *, thorough: bool = False) -> None:
    large = first // count // len(SETTINGS) % 2 == 1
    failed = []
    with as_if_large(large), code_made_once():
        for seed in range(first, first + count):
            print(seed, end=" ", flush=True)
            found = wrong_with(seed, setting, thorough=thorough)
            if found is not None:
                failed.append((seed, *found))
    if not failed:
        return
    seed, name, found = failed[0]
    made = made_for(seed, setting)
    difference = ways(seed, setting, made.optimize, thorough=thorough)[name]
    where = f"width {setting[0]}, check_elimination={setting[1]}, {name}{', as if large' if large else ''}"
    with as_if_large(large):
        shown = told(
            made.case,
            f"seed {seed}: {found} ({where})",
            lambda smaller: difference(smaller, meaning(smaller)) is not None,
        )
    pytest.fail(f"{len(failed)} of {count} seeds fail: {[one for one, _, _ in failed]}\n{shown}", pytrace=False)


@pytest.mark.parametrize(("first", "setting"), blocks(0, BLOCKS, SEEDS_PER_BLOCK))
def test_generated_programs_give_the_bytes_of_the_reference(first: int, setting: Setting) -> None:
    check_block(first, SEEDS_PER_BLOCK, setting)


@pytest.mark.long
@pytest.mark.parametrize(("first", "setting"), blocks(FIRST_LONG_SEED, LONG_BLOCKS, SEEDS_PER_LONG_BLOCK))
def test_many_generated_programs_give_the_bytes_of_the_reference(first: int, setting: Setting) -> None:
    check_block(first, SEEDS_PER_LONG_BLOCK, setting, thorough=True)


def test_a_failure_names_its_seed_and_shows_a_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_select(case: Case, on: CpuBackend, *, optimize: Optimization) -> Outcome:  # noqa: ARG001
        return "wrong" if case.program.stats().has(n.Select) else meaning(case)

    monkeypatch.setattr(sys.modules[__name__], "outcome", without_select)
    with pytest.raises(pytest.fail.Exception) as caught:
        check_block(0, 6, SETTINGS[0])
    text = str(caught.value)
    first = next(seed for seed in range(6) if made_for(seed, SETTINGS[0]).case.program.stats().has(n.Select))
    assert f"seed {first}: expected outputs, got wrong (width 1" in text
    assert "select(" in text
    assert len(text.splitlines()) < 16

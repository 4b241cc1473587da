"""What is computed again behind a cut, and what is carried: by what it costs, and to the same results."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from everywhere import SCHEDULES, backend_for
from vyre.driver import routes
from vyre.driver.config import DispatchConfig
from vyre.ir import nodes as n
from vyre.ir import parse, walk
from vyre.ir.program import Program
from vyre.lower import cut_program, rematerialise

INVOCATIONS, OWN = 4, 8


def carried(program: Program) -> list[list[str]]:
    """The variables that each cut's segment is handed."""
    state = cut_program(program).state
    assert state is not None
    return [[one.name for one in spill.carried] for spill in state.spills.at]


def carried_for_others(program: Program) -> set[str]:
    """Variables that cross a cut behind which only others ask for them."""
    state = cut_program(program).state
    if state is None:
        return set()
    loop_variables = {s.var for s in walk.statements(program.entry) if isinstance(s, n.Loop)}
    spills = state.spills
    return {
        one.name
        for cut, spill in zip(spills.tree.cuts, spills.at, strict=True)
        for one in spill.carried
        if one.name not in spills.live[cut.number] | loop_variables
    }


def random_program(seed: int) -> Program:
    """Values made of one another, some of memory, with stores and barriers between them, and loops around."""
    random = Random(seed)
    lines: list[str] = []
    count = 0

    def value(known: list[str]) -> str:
        one, other = random.choice(known), random.choice(known)
        return random.choice((
            f"{one} + {other}", f"{one} * 3 ^ {other}", f"{one} % ({other} | 1)", f"fixed[{one} & 3] + {other}",
            f"own[{place(known)}] + {one}", f"select({one} < {other}, {other}, {one} - 1)",
        ))  # fmt: skip

    def place(known: list[str]) -> str:
        return f"gid.x * {OWN} + ({random.choice(known)} & {OWN - 1})"

    def write(known: list[str], depth: int) -> None:
        nonlocal count
        known = list(known)
        for _ in range(random.randint(6, 18)):
            match random.choices(("let", "sync", "store", "loop", "assign"), (12, 3, 4, 2 * (depth < 2), 1))[0]:
                case "let":
                    count += 1
                    lines.append(f"let v{count} = {value(known)}")
                    known.append(f"v{count}")
                case "sync":
                    lines.append("grid_sync")
                case "store":
                    lines.append(f"own[{place(known)}] = {value(known)}")
                case "assign":
                    lines.append(f"cell = {value(known)}")
                case _:
                    count += 1
                    lines.append(f"for k{count} in 0 .. {random.randint(1, 3)} {{")
                    write([*known, f"k{count}"], depth + 1)
                    lines.append("}")
        lines.append(f"own[{place(known)}] = {value(known[-4:])}")

    write(["gid.x", "cell", "num_wg.x"], 0)
    text = "\n".join(lines)
    return parse(f"""program made(workgroup 2) {{
      buffer 0 fixed: u32[4] read
      buffer 1 own: u32[{INVOCATIONS * OWN}] readwrite
      let cell = 7
      {text}
    }}""")


@pytest.mark.parametrize("cost", [rematerialise.SPILL_COST, 2, 4, 7])
def test_whatever_is_carried_the_results_are_the_same(cost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rematerialise, "SPILL_COST", cost)
    config = DispatchConfig(grid_override=(INVOCATIONS // 2,))
    random = np.random.default_rng(cost)
    cut = for_others = 0
    for seed in range(150):
        program = random_program(seed)
        inputs = [random.integers(0, 1 << 32, size, dtype=np.uint32).tobytes() for size in (4, INVOCATIONS * OWN)]
        expected = backend_for("native", SCHEDULES[0]).dispatch(program, inputs, config)
        for route in ("resident", "host"):
            backend = backend_for(route, SCHEDULES[seed % len(SCHEDULES)])
            found = routes.dispatch(backend, program, inputs, config, route=route)
            assert [bytes(view) for view in found] == [bytes(view) for view in expected], f"seed {seed}\n{program}"
        cut += len(cut_program(program).segments) > 1
        for_others += bool(carried_for_others(program))
    assert cut > 100
    assert for_others > 5, "a value that is carried only because others are made of it is what this is about"


def test_what_many_values_share_is_counted_once() -> None:
    sums = "\n".join(f"let v{k} = one + other + {k}" for k in range(8))
    uses = " + ".join(f"v{k}" for k in range(8))
    program = parse(f"""
    program shared(workgroup 2) {{
      buffer 0 a: u32[8] readwrite
      let one = ((gid.x * 3 ^ 5) + 7 & 63) ^ 9
      let other = ((gid.x * 5 ^ 3) + 9 & 31) ^ 7
      {sums}
      for k in 0 .. 9 {{
        a[gid.x] = {uses}
        grid_sync
      }}
    }}""")
    assert carried(program) == [["k"]]


def test_what_many_values_share_is_carried_in_their_place_if_it_costs_much() -> None:
    parts = "\n".join(f"let p{k} = (p{k - 1} ^ {k}) % 1000003" for k in range(1, 9))
    sums = "\n".join(f"let v{k} = p8 + {k}" for k in range(8))
    uses = " + ".join(f"v{k}" for k in range(8))
    program = parse(f"""
    program shared(workgroup 2) {{
      buffer 0 a: u32[8] readwrite
      let p0 = gid.x
      {parts}
      {sums}
      grid_sync
      a[gid.x] = {uses}
    }}""")
    assert carried(program) == [["p8"]]


def test_a_chain_over_many_cuts_is_not_computed_from_its_start() -> None:
    length = 200
    steps = "\n".join(f"grid_sync\n let v{k} = v{k - 1} * 3 ^ {k}" for k in range(1, length))
    program = parse(f"""
    program chain(workgroup 2) {{
      buffer 0 a: u32[8] readwrite
      let v0 = gid.x
      {steps}
      a[gid.x] = v{length - 1}
    }}""")
    cut = cut_program(program)
    assert max(segment.program.stats().statements for segment in cut.segments) < 30
    assert all(len(names) <= 1 for names in carried(program))

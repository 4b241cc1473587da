"""The generated programs of a test run: which case a seed gives, and what is told about one that fails."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from vyre.conform import EVERYTHING, Case, generate, reproducer, shrink
from vyre.errors import VyreError

# Most are small, because small ones find as much in less time; half of those are one kernel, because several take as
# many times longer to compile; a few are large, or of more than one thread's share.
SMALL: Final = msgspec.structs.replace(EVERYTHING, expression_depth=2)
KERNEL: Final = msgspec.structs.replace(SMALL, grid_syncs=False)
WIDE: Final = msgspec.structs.replace(SMALL, max_invocations=6000, max_repetition=6)
KINDS: Final = ((2, KERNEL), (2, SMALL), (4, EVERYTHING), (24, EVERYTHING), (80, EVERYTHING), (3, WIDE))
WEIGHTS: Final = (120, 60, 10, 6, 1, 3)
TRIES: Final = 600


class Made(msgspec.Struct, frozen=True, eq=False):
    """The case of a seed, and whether code for it is to be as good as it can be."""

    case: Case
    optimize: bool


def made(seed: int, **switches: bool) -> Made:
    """What a seed gives: chosen at random, so that it does not go along with what seeds are asked for in turn.

    ``switches`` are those of a profile, for who lacks something.
    """
    random = Random(f"run {seed}")
    size, profile = random.choices(KINDS, WEIGHTS)[0]
    case = generate(seed, size, msgspec.structs.replace(profile, **switches))
    if random.random() < 0.4:
        case = msgspec.structs.replace(case, handled=())
    return Made(case, random.random() < 0.08)


def told(case: Case, what: str, still_fails: Callable[[Case], bool]) -> str:
    """A failure for people: what is wrong, and the smallest program found that shows it."""
    try:
        return f"{what}\n\n{reproducer(shrink(case, still_fails, TRIES))}"
    except VyreError as error:
        # The shrinker asks for a case that the reference runs to its end, always with the same result.
        return f"{what}\nnot reduced: {error}\n\n{case.program}"

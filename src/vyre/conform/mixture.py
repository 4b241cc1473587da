"""Which program does a seed give, in a run over many? Mostly small ones, because they find as much in less time.

Half of the small ones are one kernel, because several take as many times longer to compile; a few are large, or of
more than one thread's share.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec

from vyre.conform.case import Case
from vyre.conform.generator import generate
from vyre.conform.profile import EVERYTHING

_SMALL: Final = msgspec.structs.replace(EVERYTHING, expression_depth=2)
_KERNEL: Final = msgspec.structs.replace(_SMALL, grid_syncs=False)
_WIDE: Final = msgspec.structs.replace(_SMALL, max_invocations=6000, max_repetition=6)
_KINDS: Final = ((2, _KERNEL), (2, _SMALL), (4, EVERYTHING), (24, EVERYTHING), (80, EVERYTHING), (3, _WIDE))
_WEIGHTS: Final = (120, 60, 10, 6, 1, 3)


class Made(msgspec.Struct, frozen=True, eq=False):
    """The case of a seed, and whether code for it is to be as good as it can be."""

    case: Case
    optimize: bool


def made(seed: int, **limits: Any) -> Made:
    """What a seed gives: chosen at random, so that it does not go along with what seeds are asked for in turn.

    ``limits`` are fields of a profile, for who lacks something.
    """
    random = Random(f"run {seed}")
    size, profile = random.choices(_KINDS, _WEIGHTS)[0]
    case = generate(seed, size, msgspec.structs.replace(profile, **limits))
    if random.random() < 0.4:
        case = msgspec.structs.replace(case, handled=())
    return Made(case, random.random() < 0.08)

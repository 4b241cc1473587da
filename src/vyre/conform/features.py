"""What must generated programs cover? Every operator of every type, every cast, every atomic, every statement.

A program is asked for a few of these by its seed, in turn, so that consecutive seeds cover all of them.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Final

import msgspec

from vyre.conform.profile import STATEMENT_WEIGHTS, Profile
from vyre.semantics.operators import OPERATORS, REDUCTIONS, AtomicOp
from vyre.semantics.types import FUSED_TYPES, DType

FEATURES_PER_PROGRAM = 4


class Feature(msgspec.Struct, frozen=True):
    """One thing to cover: a production, the name it is about, and its types (a cast has two: from, to)."""

    kind: str
    name: str = ""
    dtypes: tuple[DType, ...] = ()


@lru_cache(maxsize=64)
def features(profile: Profile) -> tuple[Feature, ...]:
    """Everything that a profile allows, in a fixed order."""
    types = profile.usable_types
    found = [
        Feature("operator", row.name, (dtype,))
        for row in OPERATORS.values()
        if row.name in profile.operators
        for dtype in row.types
        if dtype in types and row.result_type(dtype) in types
    ]
    found += [Feature("cast", "", (source, target)) for source in types for target in types]
    found += [
        Feature("bitcast", "", (source, target)) for source in types for target in types if source.bits == target.bits
    ]
    if profile.fma:
        found += [Feature("fma", "", (dtype,)) for dtype in FUSED_TYPES if dtype in types]
    if profile.atomics:
        found += [Feature("atomic", op.value, (d,)) for op in AtomicOp for d in profile.atomic_types if d in types]
    if profile.subgroups:
        found += [Feature("reduce", op, (d,)) for op in REDUCTIONS for d in OPERATORS[op].types if d in types]
        found += [Feature("shuffle", "", (d,)) for d in types]
    found += [Feature("statement", name) for name in STATEMENT_WEIGHTS if profile.weight(name) > 0]
    return tuple(found)


_SWITCH_OF_KIND: Final = {"atomic": "atomics", "reduce": "subgroups", "shuffle": "subgroups"}
_SWITCHES_OF_STATEMENT: Final = {
    "change": ("atomics",),
    "fixpoint": ("grid_syncs",),
    "return": ("early_returns",),
    "barrier": ("workgroup_barriers",),
    "grid_sync": ("grid_syncs",),
    "transfer": ("transfers",),
    "copy": ("transfers",),
    "trap": ("traps", "grid_syncs"),
    "collective": ("collectives", "grid_syncs"),
    "opaque": ("extensions",),
}
_SWITCHES: Final = (
    "atomics", "subgroups", "early_returns", "workgroup_barriers", "grid_syncs", "workgroup_memory", "transfers",
    "traps", "collectives", "extensions",
)  # fmt: skip


def thinned(profile: Profile, wanted: tuple[Feature, ...], needs: tuple[str, ...], random: Random) -> Profile:
    """The profile without some of its features: programs that use a few things find more than alike mixtures do."""
    needed = {*needs, *(_SWITCH_OF_KIND.get(feature.kind, "") for feature in wanted)}
    needed.update(switch for f in wanted if f.kind == "statement" for switch in _SWITCHES_OF_STATEMENT.get(f.name, ()))
    dropped = [switch for switch in _SWITCHES if random.random() < 0.4 and switch not in needed]
    return msgspec.structs.replace(profile, **dict.fromkeys(dropped, False))


def features_for(profile: Profile, seed: int) -> tuple[Feature, ...]:
    """The features that the program of a seed is asked for."""
    every = features(profile)
    return tuple(every[(seed * FEATURES_PER_PROGRAM + k) % len(every)] for k in range(FEATURES_PER_PROGRAM))


def seeds_that_cover(profile: Profile) -> int:
    """How many consecutive seeds cover every feature."""
    return -(-len(features(profile)) // FEATURES_PER_PROGRAM)

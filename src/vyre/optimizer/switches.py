"""Optimizer switches: which passes and groups of rules may run. Results are the same with any of them off."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from vyre.arguments import listed
from vyre.errors import BadInputs

EVERY_BIT: Final = 0xFFFFFFFF
# The bit of each pass that has a switch, in a word whose lower bits are the groups of rules.
PASSES: Final = {
    "fold": 1 << 31,
    "share": 1 << 30,
    "motion": 1 << 29,
    "dead": 1 << 28,
    "bits": 1 << 27,
    "barriers": 1 << 26,
    "stores": 1 << 25,
    "cells": 1 << 24,
    "guards": 1 << 23,
}


class Optimization(msgspec.Struct, frozen=True):
    """How a program is optimized.

    ``off`` names passes and groups of rules to leave out: "fold" evaluates constants, "share" computes equal values
    once, "motion" moves values out of loops, "dead" removes dead assignments, "bits" uses known bits, "barriers"
    removes barriers that separate nothing, "stores" removes stores that nothing reads, "cells" keeps elements in
    variables inside loops, "guards" decides conditions by those that dominate them; docs/rules.md lists the groups.
    ``program=False`` turns off vyre's optimizer, ``code=False`` that of the compiler behind it (LLVM). ``keep=False``
    neither reads nor writes the caches. A failure of the optimizer raises, or, with ``on_failure="original"``, the
    program runs unoptimized.
    """

    off: frozenset[str] = frozenset()
    program: bool = True
    code: bool = True
    keep: bool = True
    on_failure: Literal["raise", "original"] = "raise"

    def __post_init__(self) -> None:
        if type(self.off) is not frozenset:
            names = (self.off,) if isinstance(self.off, str) else listed(self.off, "off")
            msgspec.structs.force_setattr(self, "off", frozenset(names))
        unknown = sorted(self.off - PASSES.keys() - {*_groups()}) if self.off else []
        if unknown:
            known = ", ".join((*PASSES, *_groups()))
            raise BadInputs(f"the optimizer has no switch '{unknown[0]}'.", f"its switches are: {known}.")
        if self.on_failure not in ("raise", "original"):
            raise BadInputs(f"on_failure is {self.on_failure!r}.", 'give "raise" or "original".')

    def without(self, name: str) -> Optimization:
        """Return the same with one more switch off."""
        return msgspec.structs.replace(self, off=self.off | {name})

    @property
    def bits(self) -> int:
        """The switches as one word, for the kernels and the cache key."""
        if not self.off:
            return EVERY_BIT
        bits = PASSES | group_bits()
        return EVERY_BIT & ~sum(bits[name] for name in self.off)

    @property
    def key(self) -> tuple[bool, bool, int]:
        """The part that decides the compiled code, for cache keys."""
        return self.program, self.code, self.bits


def group_bits() -> dict[str, int]:
    """Return the bit of each group of rules."""
    return {name: 1 << place for place, name in enumerate(_groups())}


def _groups() -> tuple[str, ...]:
    from vyre.optimizer.rules import GROUPS

    return GROUPS


EVERYTHING: Final = Optimization()
NOTHING: Final = Optimization(program=False, code=False)
CODE_ONLY: Final = Optimization(program=False)

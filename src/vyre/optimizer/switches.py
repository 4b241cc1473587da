"""What may the optimizer do? Everything, unless it is told what to leave out. The results are the same."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from vyre.arguments import listed
from vyre.errors import BadInputs

EVERY_BIT: Final = 0xFFFFFFFF
# The passes that have a switch, each with its bit in the word whose lower bits are the groups of rules.
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
    """What is done to make a program better.

    ``off`` names passes and groups of rules to leave out: "fold" computes constants, "share" computes equal values
    once, "motion" moves values out of loops, "dead" drops assignments that nobody needs, "bits" uses what is known of
    single bits, "barriers" removes barriers that separate nothing, "stores" removes stores that nothing reads,
    "cells" keeps in variables what loops load and store, "guards" decides conditions by those that dominate them;
    docs/rules.md has the groups.
    ``program`` and ``code`` switch all of vyre's optimizer, and that of the compiler behind it. Results are looked up
    and stored in caches if ``keep`` is true. If optimising fails, that is an error, or the program runs as it is
    (``on_failure="original"``).
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
        """The same with one more switch off."""
        return msgspec.structs.replace(self, off=self.off | {name})

    @property
    def bits(self) -> int:
        """The word that tells the kernels what to do."""
        if not self.off:
            return EVERY_BIT
        bits = PASSES | group_bits()
        return EVERY_BIT & ~sum(bits[name] for name in self.off)

    @property
    def key(self) -> tuple[bool, bool, int]:
        """What code depends on."""
        return self.program, self.code, self.bits


def group_bits() -> dict[str, int]:
    """The bit of each group of rules."""
    return {name: 1 << place for place, name in enumerate(_groups())}


def _groups() -> tuple[str, ...]:
    from vyre.optimizer.rules import GROUPS

    return GROUPS


EVERYTHING: Final = Optimization()
NOTHING: Final = Optimization(program=False, code=False)
AS_IT_IS: Final = Optimization(program=False)

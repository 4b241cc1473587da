"""The passes of the optimizer, each callable by itself.

``optimize_with`` runs them together, in one sequence on the device and to a fixpoint. Here each runs alone, with the
switches of all others off: ``passes.fold(program, dispatcher)`` returns the program with its constants computed, and a
report with the pass's own stage time. Every pass propagates copies and constants, since the arena replaces a variable
by its value; ``pack`` does nothing else.
"""

from __future__ import annotations

from typing import Final

import msgspec

from vyre.ir.program import Program
from vyre.optimizer.dispatcher import OptimizerDispatcher
from vyre.optimizer.pipeline import optimize_with
from vyre.optimizer.report import Report
from vyre.optimizer.switches import PASSES, group_bits


class Pass(msgspec.Struct, frozen=True):
    """One pass: its name, what it does, and the switches it needs."""

    name: str
    doc: str
    switches: tuple[str, ...]
    is_on_host: bool = False

    def __call__(self, program: Program, dispatcher: OptimizerDispatcher) -> tuple[Program, Report]:
        """Run this pass alone on a legal program."""
        bits = PASSES | group_bits()
        chosen = [name for name in bits if name in self.switches or (self is rewrite and name not in _OWN)]
        # A pass on the host has a stage of its own.
        stage = "kernels" if self.is_on_host else self.name
        return optimize_with(program, dispatcher, groups=sum(bits[name] for name in chosen), stage=stage)


canonicalise: Final = Pass("canonicalise", "move literals to the right and normalize sums and shifts", ("order",))
fold: Final = Pass("fold", "evaluate operations on constants", ("fold",))
rewrite: Final = Pass("rewrite", "apply the rules and the facts about known bits", ("bits",))
intern: Final = Pass("intern", "compute equal values once", ("share",))
live: Final = Pass("live", "remove dead code", ("dead",))
place: Final = Pass("place", "move values out of loops", ("motion",))
pack: Final = Pass("pack", "read the result back and decode it", ())
stores: Final = Pass("stores", "remove stores that nothing reads", ("stores",), is_on_host=True)
barriers: Final = Pass("barriers", "remove barriers that separate nothing", ("barriers",), is_on_host=True)
cells: Final = Pass("cells", "keep elements in variables inside loops", ("cells",), is_on_host=True)
guards: Final = Pass("guards", "decide conditions by those that dominate them", ("guards",), is_on_host=True)
ALL_PASSES: Final = (guards, stores, barriers, cells, canonicalise, fold, rewrite, intern, live, place, pack)
# Switches that ``rewrite`` leaves to the other passes; it applies all other groups of rules.
_OWN: Final = (*(name for name in PASSES if name != "bits"), "order")

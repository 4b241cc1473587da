"""How do I trust it? Programs generated from a seed, failures reduced to a few lines, and tests that are text files."""

from vyre.conform.case import Case, answer_traps, run_on_reference
from vyre.conform.generator import generate
from vyre.conform.profile import EVERYTHING, Profile
from vyre.conform.shrinker import reproducer, shrink

__all__ = ["EVERYTHING", "Case", "Profile", "answer_traps", "generate", "reproducer", "run_on_reference", "shrink"]

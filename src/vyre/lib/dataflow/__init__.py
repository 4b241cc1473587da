"""Dataflow analysis: IFDS problems, gen/kill problems and exploded supergraphs.

* ``IfdsBuilder`` describes an interprocedural problem; ``ifds`` solves it in parallel, ``ifds_worklist`` on the host.
* ``gen_kill`` solves bit-vector problems on one control flow graph; ``reaching_definitions`` and ``liveness`` are two.
* ``exploded_csr`` builds the exploded supergraph of procedures of one shape, for searches of any kind.
"""

from __future__ import annotations

from vyre.lib.dataflow.bitvector import gen_kill, liveness, reaching_definitions
from vyre.lib.dataflow.exploded import (
    EXPLODED_CSR,
    exploded_csr,
    exploded_csr_program,
    exploded_csr_reference,
    exploded_parameters,
)
from vyre.lib.dataflow.ifds import ifds
from vyre.lib.dataflow.problem import IfdsBuilder, IfdsProblem, Procedure
from vyre.lib.dataflow.solution import IfdsSolution
from vyre.lib.dataflow.witness import Step
from vyre.lib.dataflow.worklist import ifds_worklist

__all__ = [
    "EXPLODED_CSR", "IfdsBuilder", "IfdsProblem", "IfdsSolution", "Procedure", "Step", "exploded_csr",
    "exploded_csr_program", "exploded_csr_reference", "exploded_parameters", "gen_kill", "ifds", "ifds_worklist",
    "liveness", "reaching_definitions",
]  # fmt: skip

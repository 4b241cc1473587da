"""What is a program that was made ready once to be run many times?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from vyre.arguments import listed
from vyre.driver.binding import binder_of
from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig, require_config
from vyre.driver.improved import Improved
from vyre.driver.outputs import OutputBuffers
from vyre.driver.pending import Inputs, PendingDispatch, copied_inputs
from vyre.driver.timing import TimedResult
from vyre.errors import BadInputs
from vyre.ir.program import Program, require_program
from vyre.lower.plan import contains_grid_sync
from vyre.words import counted

if TYPE_CHECKING:
    from vyre.driver.backend import Backend


def pipeline_key(backend: Backend, program: Program, config: DispatchConfig) -> bytes:
    """What compiled code is cached by: the exact program, the config that shapes code, the backend and the device."""
    require_config(config)
    exact, device = require_program(program).fingerprint(), backend.capabilities.device
    parts = (exact, config.code_generation, backend.id, backend.version, device)
    return blake2b(msgspec.msgpack.encode(parts), digest_size=32).digest()


class CompiledPipeline:
    """A program on a backend. This one asks the backend's ``dispatch``; backends that compile give a better one.

    Whatever the pipeline is, it gives the bytes of ``dispatch``, and may be called from several threads. A program with
    grid-wide points goes the route that fits each call.
    """

    def __init__(self, backend: Backend, program: Program, config: DispatchConfig | None = None) -> None:
        self.backend = backend
        self.program = program
        self.config = config or DEFAULT_CONFIG
        binder_of(program)
        require_config(config)
        self.is_routed = contains_grid_sync(program)
        # The routes bring the lowering with them, which only such programs need.
        if self.is_routed:
            from vyre.driver import routes

            self._dispatch: Callable[..., list[memoryview]] = partial(routes.dispatch, backend)
            self._dispatch_timed: Callable[..., TimedResult] = partial(routes.dispatch_timed, backend)
        else:
            self._dispatch, self._dispatch_timed = backend.dispatch, backend.dispatch_timed

    @property
    def improved(self) -> Improved:
        """The program that runs, before it is cut and sized, and how it came from the caller's."""
        return binder_of(self.program).improved(self.config, self.backend.capabilities)

    @property
    def key(self) -> bytes:
        return pipeline_key(self.backend, self.program, self.config)

    def dispatch(
        self, inputs: Inputs, config: DispatchConfig | None = None, *, into: OutputBuffers | None = None
    ) -> list[memoryview]:
        """Runs the program; a config given here replaces the pipeline's, but cannot change the code."""
        known = self.config if config is None else self._call_config(config)
        return self._dispatch(self.program, inputs, known, into=into)

    def dispatch_timed(
        self, inputs: Inputs, config: DispatchConfig | None = None, *, into: OutputBuffers | None = None
    ) -> TimedResult:
        """A dispatch and how long it took."""
        return self._dispatch_timed(self.program, inputs, self._call_config(config), into=into)

    def submit(self, inputs: Inputs, config: DispatchConfig | None = None) -> PendingDispatch:
        """Begins a dispatch; the inputs may be changed as soon as this returns."""
        if not self.is_routed:
            return self.backend.submit(self.program, inputs, self._call_config(config))
        owned = copied_inputs(inputs)
        return self.backend.workers.start(lambda: self.dispatch(owned, config))

    def dispatch_batch(
        self,
        batch: Iterable[Inputs],
        config: DispatchConfig | None = None,
        *,
        into: Sequence[OutputBuffers] | None = None,
    ) -> list[list[memoryview]]:
        """Runs the program on each of several inputs, in order."""
        batch = listed(batch, "the batch")
        into = None if into is None else listed(into, "into")
        if into is not None and len(into) != len(batch):
            raise BadInputs(
                f"a batch of {len(batch)} was given {len(into)} OutputBuffers.", "give one for each, or none."
            )
        slots = [None] * len(batch) if into is None else into
        return [self.dispatch(inputs, config, into=one) for inputs, one in zip(batch, slots, strict=True)]

    def explain(self, inputs: Inputs | None = None) -> str:
        """What this pipeline is, for people; with inputs, also how it would run on them."""
        program, improved = self.program, self.improved
        stats, report = improved.program.stats(), improved.report
        lines = [
            f"{program.name} on {self.backend.id} {self.backend.version}",
            f"  optimizer: {'not used' if report is None else report.line}",
            f"  workgroup {self.config.workgroup_override or program.workgroup_size}, "
            f"{counted(stats.statements, 'statement')}, {counted(stats.grid_syncs, 'grid barrier')}",
            f"  route: {self._explain_route(inputs)}",
            f"  key: {self.key.hex()}",
        ]
        for decl in program.buffers:
            size = decl.count or "run-time sized"
            lines.append(f"  buffer {decl.binding} {decl.name}: {decl.dtype}, {size}, {decl.role.value}")
        return "\n".join(lines)

    def _explain_route(self, inputs: Inputs | None) -> str:
        if not self.is_routed:
            return "plain"
        if inputs is None:
            return "chosen for each call"
        from vyre.driver.routes import choose_route

        return choose_route(self.backend, self.program, inputs, self.config)

    def _call_config(self, config: DispatchConfig | None) -> DispatchConfig:
        if config is None or config is self.config:
            return self.config
        try:
            is_other_code = config.code_generation != self.config.code_generation
        except AttributeError:
            require_config(config)
            raise
        if is_other_code:
            raise BadInputs(
                "the call's config would change the compiled code "
                "(workgroup_override, ulp_budget, cooperative or optimize differ).",
                "compile another pipeline with it.",
            )
        return config

"""Compilation: the way from a program to an executable, in one function.

Check, optimize, cut at grid barriers, compile each segment. Everything that can be wrong with a program, for a
backend, is found here.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from vyre.checker import check
from vyre.driver import trace
from vyre.driver.binding import binder_of
from vyre.driver.config import DispatchConfig, Route, require_config
from vyre.driver.device import Code
from vyre.driver.executable import Compiled, Executable
from vyre.driver.optimizer_cache import Optimized, optimized
from vyre.driver.profile import missing_grid_point, require_supported
from vyre.errors import BadInputs, UnsupportedFeature, locate
from vyre.ir.program import Program, require_program
from vyre.lower.plan import contains_grid_sync, cut_program, uncut

if TYPE_CHECKING:
    from vyre.driver.backend import Backend

_ONE_LAUNCH: Final = "a grid barrier in one launch"
_ALLOW_ANOTHER: Final = "choose a backend that has it, or allow another route (route=, cooperative=)."


def executable_key(backend: Backend, program: Program, config: DispatchConfig, route: Route = "auto") -> bytes:
    """Return the cache key of an executable: the exact program, the config that shapes code, backend and device."""
    require_config(config)
    exact, device = require_program(program).fingerprint(), backend.capabilities.device
    parts = (exact, config.code_generation, backend.id, backend.version, device, route)
    return blake2b(msgspec.msgpack.encode(parts), digest_size=32).digest()


def compile_program(backend: Backend, program: Program, config: DispatchConfig, route: Route = "auto") -> Executable:
    """Check, optimize and cut a program, and compile its segments for a backend's device."""
    source = _checked(program, config)
    chosen = choose_route(backend, source, config, route)
    require_supported(backend.accepts, source)
    better = _optimized(backend, source, config)
    is_whole = chosen == "plain" or (chosen == "native" and not backend.device.runs_schedules)
    cut = uncut(better.program) if is_whole else cut_program(better.program, checked=True)
    code: dict[int, Code] = {}
    with trace.span("compile", backend.id, program=program.name):
        for order, segment in enumerate(cut.segments):
            try:
                for part in segment.launched:
                    code[id(part)] = _code(backend, part, better.program, config, chosen)
            except Exception as error:
                if len(cut.segments) > 1:
                    locate(error, f"segment {order} of '{program.name}' ({segment.label})")
                raise
    key = executable_key(backend, program, config, route)
    compiled = Compiled(program, config, route, chosen, key, binder_of(source), better, cut, code)
    return backend.executable_class(backend, compiled)


def choose_route(backend: Backend, source: Program, config: DispatchConfig, route: Route) -> str:
    """The name of the route that a program takes: "plain" if there is nothing to cut, else the first that is open."""
    if not contains_grid_sync(source):
        return "plain"
    profile = backend.capabilities
    missing = missing_grid_point(profile, source)
    is_open = {
        "native": missing is None and config.cooperative != "never",
        "resident": profile.resident and config.cooperative != "require",
        "host": profile.allows_host_grid_sync_split and config.cooperative != "require",
    }
    if route != "auto" and route not in is_open:
        raise BadInputs(f"there is no route '{route}'.", 'give "auto", "native", "resident" or "host".')
    for name in is_open if route == "auto" else (route,):
        if is_open[name]:
            return name
    wanted = missing or (_ONE_LAUNCH if route in ("auto", "native") else f"the {route} route")
    raise UnsupportedFeature(wanted, backend.id, _ALLOW_ANOTHER)


def _checked(program: Program, config: DispatchConfig) -> Program:
    """The legal program that runs, calls inlined, of the workgroup size that the config asks for."""
    source = binder_of(program).program
    if config.workgroup_override is None:
        return source
    source = source.with_workgroup_size(config.workgroup_override)
    check(source).raise_if_invalid()
    return source


def _optimized(backend: Backend, source: Program, config: DispatchConfig) -> Optimized:
    if backend.capabilities.as_given:
        return Optimized(source)
    return optimized(source, config.optimization, backend.cache)


def _code(backend: Backend, part: Program, source: Program, config: DispatchConfig, route: str) -> Code:
    """The device's code for a program that is ``source`` or a segment of it; the routes of a program share it."""
    # The key names the program by identity, so the entry keeps it alive.
    key = id(part), config.ulp_budget, config.optimization.code
    known = backend.code.get(key)
    if known is None:
        known = part, backend.device.compile(part, source=source, config=config)
        backend.code.put(key, known)
    return known[1] if route != "host" else backend.host_device.moved(part, known[1])

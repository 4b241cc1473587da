"""What was compared, and how is that checked again? A certificate: everything that decides a run, and its digests.

The same seeds on the same version give the same programs, so whoever runs them again can compare both digests.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, Final

import msgspec

import vyre
from vyre.conform.case import Case
from vyre.conform.mixture import made
from vyre.conform.runner import Outcome, judge, limits_for, reduced, trial_of
from vyre.driver.backend import Backend
from vyre.driver.profile import DeviceProfile
from vyre.errors import BadInputs

FORMAT: Final = 1
EXACT: Final = "exact: every float gives the reference's bits"
NOT_COMPARED: Final = "not compared: the device's floats are not exact, so programs with floats are left out"


class Failure(msgspec.Struct, frozen=True):
    """A program that a backend gets wrong: its seed, the way it was run, what differs, and a small file to show it."""

    seed: int
    way: str
    what: str
    program: str


class Certificate(msgspec.Struct, frozen=True):
    """A differential run. ``ways`` counts comparisons, ``refused`` what the backend said that it cannot run.

    ``programs`` is the digest of what was run, with its data, ``results`` of what the backend gave.
    """

    backend: str
    version: str
    device: str
    profile: dict[str, Any]
    float_policy: str
    first_seed: int
    cases: int
    ways: dict[str, int]
    refused: dict[str, int]
    failures: tuple[Failure, ...]
    programs: str
    results: str
    vyre: str = vyre.__version__
    format: int = FORMAT

    @property
    def holds(self) -> bool:
        """Whether the backend gave something to compare, and nothing was different."""
        return not self.failures and self.ways.get(self.backend, 0) > 0


Progress = Callable[[int, float], None]


def certify(
    backend: Backend,
    *,
    first_seed: int = 0,
    cases: int | None = None,
    seconds: float | None = None,
    progress: Progress = lambda _done, _seconds: None,
    reduce: bool = True,
) -> Certificate:
    """Compares the programs of consecutive seeds, so many or for so long, and stops at the first that is wrong.

    That one is made small, if it is to be told to somebody who has not seen it: ``reduce``.
    """
    trial, device = trial_of(backend), backend.capabilities
    limits = limits_for(backend.accepts)
    programs, results = blake2b(digest_size=32), blake2b(digest_size=32)
    ways: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    failures: list[Failure] = []
    seed = first_seed
    for seed in _seeds(first_seed, cases, seconds, progress):
        case = made(seed, **limits).case
        programs.update(_bytes_of_case(case))
        verdict = judge(trial, case, seed)
        ways.update(verdict.given.keys())
        refused.update(verdict.refused.values())
        results.update(_bytes_of(verdict.given.get(backend.id)))
        if verdict.wrong:
            way, what = next(iter(verdict.wrong.items()))
            failures.append(Failure(seed, way, what, reduced(trial, case, way, seed) if reduce else str(case.program)))
            break
    return Certificate(
        backend=backend.id,
        version=backend.version,
        device=device.device,
        profile=_plain(device),
        float_policy=EXACT if device.float_exact else NOT_COMPARED,
        first_seed=first_seed,
        cases=seed - first_seed + 1,
        ways=dict(ways),
        refused=dict(refused),
        failures=tuple(failures),
        programs=programs.hexdigest(),
        results=results.hexdigest(),
    )


def _seeds(first: int, cases: int | None, seconds: float | None, progress: Progress) -> Iterator[int]:
    """Consecutive seeds, at least one."""
    start = time.monotonic()
    for seed in itertools.count(first):
        yield seed
        done, spent = seed - first + 1, time.monotonic() - start
        progress(done, spent)
        if (cases is not None and done >= cases) or (seconds is not None and spent >= seconds):
            return


def _plain(device: DeviceProfile) -> dict[str, Any]:
    """A profile as JSON has it, with its types in order."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(device))
    return {**plain, "dtypes": sorted(plain["dtypes"])}


def _bytes_of_case(case: Case) -> bytes:
    inputs = sorted((name, data.tobytes()) for name, data in case.inputs.items())
    return msgspec.msgpack.encode((case.program.fingerprint(), inputs, case.grid, case.elements, case.handled))


def _bytes_of(outcome: Outcome | None) -> bytes:
    return msgspec.msgpack.encode(sorted(outcome.items()) if isinstance(outcome, dict) else str(outcome))


def read_certificate(data: bytes, name: str = "the certificate") -> Certificate:
    """A certificate from JSON."""
    try:
        found = msgspec.json.decode(data, type=Certificate)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInputs(f"{name} is no certificate ({error}).", "give a file that `vyre conform` wrote.") from None
    if found.format != FORMAT or found.cases < 1:
        raise BadInputs(
            f"{name} has format {found.format} and {found.cases} cases.", "make it again with this version."
        )
    return found


def write_certificate(certificate: Certificate) -> bytes:
    return msgspec.json.format(msgspec.json.encode(certificate), indent=2) + b"\n"


def verify(certificate: Certificate, backend: Backend, progress: Progress = lambda _done, _seconds: None) -> list[str]:
    """Runs what a certificate says again; every sentence is something in it that is not so."""
    first, count = certificate.first_seed, certificate.cases
    now = certify(backend, first_seed=first, cases=count, progress=progress, reduce=False)
    fields = ("vyre", "backend", "version", "device", "float_policy", "cases", "ways", "refused")
    pairs = [(name.replace("_", " "), getattr(certificate, name), getattr(now, name)) for name in fields]
    wrong = [f"{name} was {then!r} and is {here!r}." for name, then, here in pairs if then != here]
    if certificate.profile != now.profile:
        changed = [name for name in now.profile if certificate.profile.get(name) != now.profile[name]]
        wrong.append(f"the device's profile is another: {', '.join(changed) or 'fields were added'}.")
    if certificate.programs != now.programs:
        wrong.append("the seeds give other programs: the generator is not the one that made the certificate.")
    elif certificate.results != now.results:
        wrong.append("the same programs gave other results.")
    if now.failures:
        wrong.append(f"seed {now.failures[0].seed} is wrong now: {now.failures[0].way}: {now.failures[0].what}.")
    if certificate.failures:
        wrong.append(f"the certificate itself tells of a failure at seed {certificate.failures[0].seed}.")
    return wrong

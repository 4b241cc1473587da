"""The differential runner: what is right holds, what is wrong is caught, reduced and told, and both can be checked."""

from __future__ import annotations

import json

import msgspec
import pytest

from conform.wrong_backend import FailingBackend, RefusingBackend, WrongBackend
from vyre.backends.reference import ReferenceBackend, ReferenceDevice
from vyre.conform.certificate import NOT_COMPARED, certify, read_certificate, verify, write_certificate
from vyre.conform.directives import case_of_run, read_filetest
from vyre.conform.mixture import made
from vyre.conform.runner import judge, limits_for, meaning, reduced, trial_of
from vyre.driver.backend import Backend
from vyre.driver.profile import DeviceProfile
from vyre.driver.registry import backend
from vyre.errors import BadInputs
from vyre.ir.parser import parse
from vyre.lower.plan import contains_grid_sync
from vyre.semantics.types import DType


def test_the_processor_holds_in_every_way_and_again() -> None:
    with backend("cpu") as cpu:
        first = next(seed for seed in range(1000) if contains_grid_sync(made(seed).case.program))
        told: list[int] = []
        certificate = certify(cpu, first_seed=first, cases=2, progress=lambda done, _: told.append(done))
        assert certificate.holds
        assert told == [1, 2]
        ways = {"cpu", "cpu, optimizer off", "optimised", "optimised with a switch off", "text", "wire"}
        ways |= {f"cpu, {route} route" for route in ("native", "resident", "host")}
        assert {*certificate.ways} == ways | {"reference, reversed", "reference, in random order", "reference, races"}
        again = read_certificate(write_certificate(certificate))
        assert again == certificate
        assert verify(again, cpu) == []


def test_a_certificate_that_is_not_so_is_told() -> None:
    with ReferenceBackend() as reference:
        good = certify(reference, cases=1)

        def wrong(**changes: object) -> list[str]:
            return verify(msgspec.structs.replace(good, **changes), reference)

        assert wrong() == []
        assert wrong(results="00") == ["the same programs gave other results."]
        assert wrong(programs="00") == [
            "the seeds give other programs: the generator is not the one that made the certificate."
        ]
        assert wrong(version="0.0") == [f"version was '0.0' and is '{reference.version}'."]
        assert wrong(device="abacus") == ["device was 'abacus' and is 'interpreter'."]
        assert wrong(profile={**good.profile, "traps": False}) == ["the device's profile is another: traps."]


@pytest.mark.parametrize("data", [b"", b"[]", b'{"backend": 3}', b"\xff", b"nonsense"])
def test_what_is_no_certificate_is_told(data: bytes) -> None:
    with pytest.raises(BadInputs, match=r"is no certificate .* Fix: "):
        read_certificate(data, "file.json")


def test_a_certificate_without_cases_certifies_nothing() -> None:
    with ReferenceBackend() as reference:
        plain = json.loads(write_certificate(certify(reference, cases=1)))
    with pytest.raises(BadInputs, match="0 cases"):
        read_certificate(json.dumps({**plain, "cases": 0}).encode())


def test_a_wrong_backend_is_caught_and_its_fault_reduced() -> None:
    certificate = certify(WrongBackend(), cases=200)
    assert not certificate.holds
    (failure,) = certificate.failures
    assert failure.way == "wrong"
    assert failure.what.startswith("outputs differ: ")
    program = parse(failure.program)
    assert program.stats().statements <= 3
    assert program.stats().kinds["BinOp"] == 1
    assert " - " in str(program)
    (run,) = read_filetest("fault", failure.program).runs
    case = case_of_run(run, program)
    assert judge(trial_of(WrongBackend()), case).wrong
    assert not judge(trial_of(ReferenceBackend()), case).wrong


def test_a_failure_is_told_with_its_sentence_and_a_file_that_says_what_it_expects() -> None:
    (failure,) = certify(FailingBackend(), cases=1).failures
    told = f"[dispatch-failed] case_{failure.seed} made the fan fall off. Fix: put it back."
    assert failure.what == f"expected outputs, got {told}"
    assert parse(failure.program).stats().statements == 0
    (run,) = read_filetest("fault", failure.program).runs
    assert run.expected


def test_a_backend_that_refuses_everything_is_not_certified() -> None:
    certificate = certify(RefusingBackend(), cases=2)
    assert "refusing" not in certificate.ways
    assert sum(certificate.refused.values()) >= 4
    assert not certificate.holds


@pytest.mark.parametrize(
    ("body", "way"),
    [
        ("a[0] = gid.x", "reference, reversed"),
        ("let ticket = atomic_add(a, 0, 1)\n  a[ticket + 1] = gid.x", "reference, reversed"),
        ("if gid.x == 1 { a[0] = 5 }\n  a[gid.x + 1] = a[0] * 0", "reference, races"),
    ],
    ids=["race", "tickets", "race without effect"],
)
def test_programs_without_one_meaning_are_recognised(body: str, way: str) -> None:
    program = parse(f"program p(workgroup 4) {{\n  buffer 0 a: u32[8] output\n  {body}\n}}")
    (run,) = read_filetest("t", "# run: p(grid=1) == a=zeros(8)").runs
    wrong = judge(trial_of(ReferenceBackend()), case_of_run(run, program)).wrong
    assert next(iter(wrong)) == way


def test_a_case_that_traps_is_compared_too_and_not_reduced() -> None:
    program = parse('program p(workgroup 1) {\n  buffer 0 a: u32[1] output\n  trap(2 - 1, "no")\n}')
    (run,) = read_filetest("t", '# run: p(grid=1) traps "no"').runs
    case = case_of_run(run, program)
    assert meaning(case) == "trap-raised"
    assert judge(trial_of(ReferenceBackend()), case).wrong == {}
    assert reduced(trial_of(WrongBackend()), case, "wrong").startswith("# not reduced: [trap-raised] ")


class Rounding(ReferenceDevice):
    """A device whose floats are not exact."""

    @property
    def profile(self) -> DeviceProfile:  # type: ignore[override]
        return msgspec.structs.replace(super().profile, float_exact=False)


def test_floats_that_are_not_exact_are_left_out_and_that_is_said() -> None:
    inexact = Backend(Rounding())
    certificate = certify(inexact, cases=3)
    assert certificate.holds
    assert certificate.float_policy == NOT_COMPARED
    limits = limits_for(inexact.accepts)
    for seed in range(20):
        assert not any(dtype.is_float for dtype in made(seed, **limits).case.program.stats().dtypes)


def test_programs_have_nothing_that_the_device_lacks() -> None:
    basic = frozenset({DType.BOOL, DType.U32, DType.I32, DType.F32})
    device = DeviceProfile(backend="small", dtypes=basic, float_exact=True)
    for seed in range(40):
        stats = made(seed, **limits_for(device)).case.program.stats()
        assert stats.dtypes <= basic
        assert not stats.has_subgroup_ops
        assert not stats.has_async

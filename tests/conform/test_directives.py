"""The directives of a filetest: what they may say, and that a wrong answer is found."""

import numpy as np
import pytest

from vyre.conform import Case
from vyre.conform.directives import (
    BadDirective,
    case_of_run,
    read_array,
    read_element,
    read_filetest,
    write_array,
    write_run,
)
from vyre.conform.filetest import diagnostics_wrong, runs_wrong, schedules_wrong
from vyre.conform.values import array_of_patterns, edge_patterns
from vyre.ir.parser import parse
from vyre.semantics.types import ALL_TYPES, DType

PROGRAM = """
program add(workgroup 4) {
  buffer 0 a:   u32[] read
  buffer 1 n:   f32[1] uniform
  buffer 2 out: u32[] output

  out[gid.x] = a[gid.x] + u32(n[0])
}
"""


def test_values_are_written_in_many_ways() -> None:
    directive = "# run: add(a=[1, 0x10] + zeros(2) + iota(3)\n#    + repeat(7, 2), n=1.5, grid=2) == out=5"
    case = case_of_run(read_filetest("t", directive + PROGRAM).runs[0], parse(PROGRAM))
    assert case.inputs["a"].tolist() == [1, 16, 0, 0, 0, 1, 2, 7, 7]
    assert case.inputs["n"].tolist() == [1.5]
    assert case.grid == (2, 1, 1)


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_every_edge_value_is_written_and_read_back(dtype: DType) -> None:
    data = array_of_patterns([*edge_patterns(dtype), *[edge_patterns(dtype)[-1]] * 9], dtype)
    program = parse(f"program p(workgroup 1) {{\n buffer 0 a: {dtype}[] readwrite\n}}")
    text = write_run(Case(program, {"a": data}, (1, 2, 3), None, ('odd "tag"',), 10), {"a": data})
    run = read_filetest("t", text).runs[0]
    case = case_of_run(run, program)
    assert case.inputs["a"].tobytes() == data.tobytes()
    assert read_array(run.expected["a"], dtype).tobytes() == data.tobytes()
    assert (case.grid, case.elements, case.handled, case.fuel) == ((1, 2, 3), None, ('odd "tag"',), 10)
    assert "repeat(" in write_array(data, dtype)


def test_a_wrong_output_is_found() -> None:
    right = read_filetest("t", "# run: add(a=[1, 2], n=1.0) == out=[2, 3]" + PROGRAM)
    assert runs_wrong(right, "reference") == []
    for wrong in ("out=[2, 4]", "out=[2]", "out=[2, 3, 0]", "a=[1, 2]"):
        test = read_filetest("t", f"# run: add(a=[1, 2], n=1.0) == {wrong}{PROGRAM}")
        assert len(runs_wrong(test, "reference")) == 1


def test_the_sign_of_zero_and_every_bit_count() -> None:
    program = "\nprogram p(workgroup 1) {\n  buffer 0 out: f32[1] output\n\n  out[0] = 0.0\n}\n"
    assert runs_wrong(read_filetest("t", "# run: p(grid=1) == out=0.0" + program), "reference") == []
    assert runs_wrong(read_filetest("t", "# run: p(grid=1) == out=-0.0" + program), "reference")


def test_a_run_that_should_fail_and_does_not_is_found() -> None:
    for failure in ('traps "t"', "fails fuel-exhausted"):
        test = read_filetest("t", f"# run: add(a=[1], n=1.0) {failure}{PROGRAM}")
        assert len(runs_wrong(test, "reference")) == 1
    endless = "\nprogram p(workgroup 1) {\n  while true {\n  }\n}\n"
    assert runs_wrong(read_filetest("t", "# run: p(grid=1, fuel=9) fails fuel-exhausted" + endless), "reference") == []
    assert runs_wrong(read_filetest("t", '# run: p(grid=1, fuel=9) traps "fuel-exhausted"' + endless), "reference")


def test_diagnostics_must_be_exactly_those_expected() -> None:
    text = "program p(workgroup 4) {{\n  if lid.x == 0 {{\n    barrier{}\n  }}\n}}\n"
    assert diagnostics_wrong(read_filetest("t", text.format("  # error: V010"))) == []
    assert diagnostics_wrong(read_filetest("t", text.format("  # error: V011")))
    assert diagnostics_wrong(read_filetest("t", text.format("") + "# error: V010\n"))
    assert diagnostics_wrong(read_filetest("t", text.format("") + "# run: p(grid=1) fails x\n"))
    before = "program p(workgroup 4) {\n  if lid.x == 0 {\n    # error: V010\n    barrier\n  }\n}\n"
    assert diagnostics_wrong(read_filetest("t", before)) == []
    rendered = text.format("  # error: V010") + "# rendered:\n# something else\n"
    assert diagnostics_wrong(read_filetest("t", rendered))


def test_an_unexpected_dependence_on_the_schedule_is_found_and_an_expected_one_demanded() -> None:
    racy = "\nprogram p(workgroup 4) {\n  buffer 0 out: u32[1] output\n\n  out[gid.x / 9] = gid.x\n}\n"
    run = "# run: p(grid=1) == out=0"
    assert len(schedules_wrong(read_filetest("t", run + racy))) == 2
    assert schedules_wrong(read_filetest("t", "# races\n# order-dependent\n" + run + racy)) == []
    calm = racy.replace("= gid.x\n", "= 1\n")
    assert schedules_wrong(read_filetest("t", run + calm)) == []
    assert len(schedules_wrong(read_filetest("t", "# races\n# order-dependent\n" + run + calm))) == 2


@pytest.mark.parametrize(
    "text",
    [
        "program p(workgroup 1) {\n}",
        "# run: p(",
        "# run: p() ==",
        "# run: p() == out",
        "# run: p(a=[1, 2) == out=1",
        "# run: p(a=1, a=2) == out=1",
        "# run: p(a=zeros(99999999999)) == out=1",
        "# run: p(a=zeros(-1)) == out=1",
        "# run: p() traps t u",
        "# run: p(a=?) == out=1",
    ],
)
def test_a_directive_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadDirective, match="Fix:"):
        read_filetest("t", text)


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("256", DType.U8),
        ("-1", DType.U32),
        ("1.5", DType.I32),
        ("2", DType.BOOL),
        ("0x10", DType.F32),
        ("1e999", DType.F64),
        ("word", DType.I8),
    ],
)
def test_a_value_that_its_type_does_not_have_is_refused(text: str, dtype: DType) -> None:
    with pytest.raises(BadDirective, match="Fix:"):
        read_element(text, dtype)


def test_arguments_that_fit_no_program_are_refused() -> None:
    program = parse(PROGRAM)
    for text in ("other(a=1, n=1) == out=1", "add(a=1, n=1, b=2) == out=1", "add(a=1, n=1, grid=x) == out=1"):
        run = read_filetest("t", f"# run: {text}").runs[0]
        with pytest.raises(BadDirective, match="Fix:"):
            case_of_run(run, program)


def test_host_data_keeps_its_bits() -> None:
    assert read_array(("nan", "-0.0", "inf"), DType.BF16).tolist() == [0x7FC0, 0x8000, 0x7F80]
    assert np.array_equal(read_array(("1", "false", "true"), DType.BOOL), [True, False, True])

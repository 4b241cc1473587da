"""Every ``.vyre`` file here does what its directives say, on every backend."""

from pathlib import Path

import pytest

from vyre.checker import CODES
from vyre.conform.filetest import (
    BACKENDS,
    diagnostics_wrong,
    is_legal,
    load_filetest,
    optimized_wrong,
    round_trips_wrong,
    runs_wrong,
    schedules_wrong,
    with_present_text,
)
from vyre.ir import build as b
from vyre.ir.extensions import CompositeOp, register_op
from vyre.semantics.types import DType

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("*.vyre"))

# What no text can be: nodes built by hand, targets that lack something, and limits that take megabytes to reach.
NOT_IN_TEXT = {
    "V019", "V033", "V041", "V050", "V055", "V061", "V063", "V081", "V085", "V086", "V087", "V088", "V089", "V090",
    "V092",
}  # fmt: skip

register_op(CompositeOp("filetests.meet", (("x", DType.U32),), DType.U32, b.var("x"), (b.barrier(),)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_file(path: Path, request: pytest.FixtureRequest) -> None:
    test = load_filetest(path)
    is_shown = test.rendered is not None or test.optimized is not None
    if is_shown and request.config.getoption("--update-rendered", default=False):
        path.write_text(with_present_text(test), encoding="utf-8")
        test = load_filetest(path)
    wrong = diagnostics_wrong(test)
    if is_legal(test) and not wrong:
        wrong += round_trips_wrong(test)
        wrong += schedules_wrong(test)
        wrong += optimized_wrong(test)
        for backend in BACKENDS:
            wrong += [f"on {backend}, {sentence}" for sentence in runs_wrong(test, backend)]
    assert not wrong, "\n".join(wrong)


def test_every_diagnostic_that_text_can_have_has_a_file_with_its_exact_text() -> None:
    tests = [load_filetest(path) for path in FILES]
    rendered = {code for test in tests if test.rendered is not None for _, code, _ in test.diagnostics}
    assert CODES.keys() - rendered == NOT_IN_TEXT

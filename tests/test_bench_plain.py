"""The benchmark of plain kernels: they mean what the reference says, their peers agree, and promises are judged."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench"
MODULES = ("plain", "comparison", "graphs", "measure", "overheads", "peers", "report", "workloads")
# The rows, here because collecting tests must not load the script.
NAMES = [
    "jacobi-1d", "jacobi-2d", "jacobi-3d", "heat-3d", "fdtd-2d", "diffusion", "advection", "blur", "convolution",
    "copy", "saxpy", "transpose", "reduction", "histogram", "compaction", "kmeans", "spmv", "spmv-rmat", "spmv-zipf",
    "bfs-rmat", "bfs-grid", "lookup", "search", "dfa-50", "dfa-2000", "needle", "matmul", "lu", "floyd", "bitonic",
    "black-scholes", "mandelbrot", "nbody", "collatz",
]  # fmt: skip
KEPT = set(NAMES[:11]) | {"histogram", "kmeans", "spmv", "lookup", "search", "needle", "lu", "floyd"}
EQUAL = {"spmv-rmat", "spmv-zipf"}


def is_of_bench(name: str) -> bool:
    return name in MODULES or name.split(".")[0] == "plain_kernels"


@pytest.fixture(scope="module")
def plain() -> Iterator[ModuleType]:
    """The script as a module. Its imports are by names that tests use too, so nothing of it stays."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if is_of_bench(name)}
    sys.path.insert(0, str(BENCH))
    try:
        import plain

        yield plain
    finally:
        sys.path.remove(str(BENCH))
        for name in [name for name in sys.modules if is_of_bench(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def results(plain: ModuleType, row: str, real: object, backend: str) -> dict[str, np.ndarray]:
    """The results of a row's contenders at its tiny size, by their names."""
    found = plain.ROWS[row].make(plain.Setting(plain.ROWS[row].tiny, real, 2, backend, (2, 4)))
    return {name: one.result(one.run()).copy() for name, one in found.items() if name != "library"}


def test_rows_state_their_promises() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / "plain.py"), "--list"], capture_output=True, text=True, check=True
    )
    rows = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    promises = {
        name: "0.9x the best" if name in KEPT else "1x the best" if name in EQUAL else "printed" for name in NAMES
    }
    assert {name: row.rsplit(": ", 1)[1] for name, row in rows.items()} == promises


@pytest.mark.parametrize("row", NAMES)
def test_kernel_gives_the_bytes_of_the_reference_and_its_peers_result(plain: ModuleType, row: str) -> None:
    real = plain.f32
    on_cpu = results(plain, row, real, "cpu")
    on_reference = results(plain, row, real, "reference")
    variants = [name for name in on_cpu if plain.is_vyre(name)]
    assert variants
    for name in variants:
        assert on_cpu[name].tobytes() == on_reference[name].tobytes(), name
    for name, result in on_cpu.items():
        assert plain.ROWS[row].agrees(result, on_cpu[variants[0]], real), name
    assert np.any(on_cpu[variants[0]])


@pytest.mark.parametrize("row", ["jacobi-2d", "kmeans", "spmv-zipf", "lu", "bitonic", "black-scholes", "nbody"])
def test_kernel_in_f64_gives_the_bytes_of_the_reference_and_its_peers_result(plain: ModuleType, row: str) -> None:
    on_cpu = results(plain, row, plain.f64, "cpu")
    on_reference = results(plain, row, plain.f64, "reference")
    for name, result in on_cpu.items():
        assert result.dtype == np.float64
        assert plain.ROWS[row].agrees(result, on_reference[next(iter(on_reference))], plain.f64), name
        if plain.is_vyre(name):
            assert result.tobytes() == on_reference[name].tobytes(), name


def test_kernels_compute_what_numpy_does(plain: ModuleType) -> None:
    """Independent oracles where NumPy has one: kernels and peers are by one author."""
    real, setting = plain.f64, plain.Setting(plain.ROWS["matmul"].tiny, plain.f64)
    size = setting.size
    square = setting.floats(size, size)
    product = results(plain, "matmul", real, "cpu")["vyre (8, 8)"].reshape(size, size)
    assert np.allclose(product, square @ setting.floats(size, size, seed=2))
    factors = results(plain, "lu", real, "cpu")["vyre (8, 8)"].reshape(size, size)
    assert np.allclose((np.tril(factors, -1) + np.eye(size)) @ np.triu(factors), square + size * np.eye(size))
    keys = plain.Setting(plain.ROWS["bitonic"].tiny, real).floats(plain.ROWS["bitonic"].tiny)
    assert np.array_equal(results(plain, "bitonic", real, "cpu")["vyre"], np.sort(keys))
    kept = plain.Setting(plain.ROWS["compaction"].tiny, real).floats(plain.ROWS["compaction"].tiny)
    kept = kept[kept >= 0.5]
    assert np.array_equal(results(plain, "compaction", real, "cpu")["vyre, 4 chunks"][: len(kept)], kept)
    data = np.random.default_rng(1).integers(0, 256, plain.ROWS["histogram"].tiny, np.uint8)
    assert np.array_equal(results(plain, "histogram", real, "cpu")["vyre, 4 chunks"], np.bincount(data, minlength=256))


def test_row_has_a_setting_for_each_type_and_size(plain: ModuleType) -> None:
    settings = plain.ROWS["jacobi-2d"].settings((plain.f32, plain.f64), 2)
    assert len(settings) == 4
    assert next(iter(settings)) == "Jacobi, 2 axes, f32, in cache, 1000²"
    assert len(plain.ROWS["jacobi-2d"].settings((plain.f32,), 2)) == 2
    assert next(iter(plain.ROWS["collatz"].settings((plain.f32, plain.f64), 2))) == "Collatz, in cache, 65,536"
    assert [row.name for row in plain.ROWS.values() if len(row.cases) == 0] == []
    assert len(plain.ROWS) >= 30


def test_each_variant_is_judged_by_the_fastest_peer(plain: ModuleType) -> None:
    best = {"vyre (64, 1)": 1.0, "vyre (8, 8)": 2.0, "numba": 1.5, "numba, by four": 0.95}
    lines = plain.judge("row", plain.Ratio(0.9), best, {})
    assert [(line.contender, line.ratio, line.verdict) for line in lines] == [
        ("vyre (64, 1)", 0.95, "PASS"), ("vyre (8, 8)", 0.475, "LOSS"), ("numba, by four", None, ""),
        ("numba", None, ""),
    ]  # fmt: skip
    assert lines[0].note == "slowest variant / fastest: 2.00"
    assert [line.verdict for line in plain.judge("row", None, best, {})] == [""] * 4


def test_missing_peer_is_a_gap(plain: ModuleType) -> None:
    (line,) = plain.judge("row", plain.Ratio(0.9), {"vyre": 1.0}, {})
    assert (line.ratio, line.verdict, line.note) == (None, "gap", "gap: no peer was measured")


def test_variant_with_another_result_is_a_loss_and_a_peer_is_left_out(plain: ModuleType) -> None:
    faults = {"vyre (8, 8)": "ANOTHER RESULT", "numba, by four": "RAISED ValueError: no"}
    lines = plain.judge("row", None, {"vyre (64, 1)": 1.0, "numba": 2.0}, faults)
    assert [(line.contender, line.verdict, line.note) for line in lines] == [
        ("vyre (64, 1)", "", ""), ("vyre (8, 8)", "LOSS", "ANOTHER RESULT"), ("numba", "", ""),
        ("numba, by four", "", "RAISED ValueError: no"),
    ]  # fmt: skip


def test_measured_case_compares_with_the_peer_and_takes_samples(plain: ModuleType) -> None:
    def make(_: object) -> dict[str, object]:
        of = {"vyre": 1, "vyre, off by one": 2, "peer": 1}
        contenders = {name: plain.Contender(lambda value=value: np.array([value])) for name, value in of.items()}

        def fail() -> None:
            raise ValueError("no\nmore")

        return {**contenders, "vyre, raising": plain.Contender(fail)}

    row = plain.Row("row", "row", plain.Ratio(1e-9), make, (plain.Case("1", 1),), 1)
    bench = plain.Bench(1, 2, 1e-6, (plain.f32,), {})
    lines = plain.measure(row, "row, 1", plain.Setting(1), bench)
    assert {line.contender: (line.verdict, line.note) for line in lines} == {
        "vyre": ("PASS", ""),
        "vyre, off by one": ("LOSS", "ANOTHER RESULT"),
        "vyre, raising": ("LOSS", "RAISED ValueError: no"),
        "peer": ("", ""),
    }
    assert {name: len(taken) for name, taken in bench.samples["row, 1"].seconds.items()} == {"vyre": 2, "peer": 2}


def test_mean_counts_each_kernel_once(plain: ModuleType) -> None:
    assert plain.mean_ratio({"a": [1.0, 4.0], "b": [8.0], "c": []}) == pytest.approx(4.0)
    *each, whole = plain.mean_lines({"a": [1.0, 4.0], "b": [8.0], "c": []})
    assert [(line.contender, line.ratio, line.verdict) for line in each] == [
        ("a", pytest.approx(2.0), ""), ("b", pytest.approx(8.0), ""),
    ]  # fmt: skip
    assert (whole.ratio, whole.promise, whole.verdict) == (pytest.approx(4.0), "1.5x", "PASS")
    assert plain.mean_lines({"a": [1.0]})[-1].verdict == "LOSS"
    assert plain.mean_lines({"a": []}) == []


def test_close_results_agree_only_where_sums_have_another_order(plain: ModuleType) -> None:
    exact, close = plain.ROWS["jacobi-1d"], plain.ROWS["reduction"]
    one, other = np.array([1.0, 3.0], np.float32), np.array([1.0, 3.00001], np.float32)
    assert not exact.agrees(one, other, plain.f32)
    assert close.agrees(one, other, plain.f32)
    assert not close.agrees(one, other, plain.f64)
    assert not close.agrees(one, np.array([1.0, 3.1], np.float32), plain.f32)
    assert not close.agrees(one, other.astype(np.float64), plain.f32)
    assert not close.agrees(one, other[:1], plain.f32)


def test_quick_run_prints_the_table_and_writes_it(plain: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    import report

    monkeypatch.setattr(report, "RESULTS", tmp_path)
    plain.run(plain.Bench(1, 1, 1e-6, (plain.f32,), {}), ["matmul"])
    printed = capsys.readouterr().out
    assert "| matrix product, f32, in cache, 256² | vyre (64, 1) |" in printed
    # Without a peer there are no ratios.
    has_peer = importlib.util.find_spec("numba") is not None
    assert ("geometric mean, each kernel once" in printed) is has_peer
    assert {path.name for path in tmp_path.iterdir()} == {"plain.json", "plain.md"}

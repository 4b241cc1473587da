import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-rendered",
        action="store_true",
        help="write the present text of diagnostics and of optimized programs into files",
    )

"""A transfer is surely pending or surely not, at every point."""

from __future__ import annotations

import pytest
from checker_support import error_codes, report

ISSUE = 'async_load(b, a, 0, 4, "t")'
WAIT = 'async_wait("t")'

CASES: list[tuple[str, list[str]]] = [
    (f"{ISSUE}\n{WAIT}", []),
    (f"if gid.x == 0 {{ {ISSUE}; {WAIT} }}", []),
    (f"if gid.x == 0 {{ {ISSUE} }}", ["V073"]),
    (f"{ISSUE}\nif gid.x == 0 {{ {WAIT} }}", ["V073", "V072"]),
    (f"{ISSUE}\nif gid.x == 0 {{ {WAIT} }} else {{ {WAIT} }}", []),
    (f"{ISSUE}\nif gid.x == 0 {{ {WAIT}; return }}\n{WAIT}", []),
    (f"{ISSUE}\nif gid.x == 0 {{ if gid.x == 1 {{ {WAIT} }} else {{ {WAIT} }} }} else {{ {WAIT} }}", []),
    (f"for k in 0 .. 4 {{ {ISSUE}; {WAIT} }}", []),
    (f"for k in 0 .. 4 {{ {ISSUE} }}", ["V073"]),
    (f"{ISSUE}\nfor k in 0 .. 4 {{ {WAIT} }}", ["V073", "V072"]),
    (f"{ISSUE}\nfor k in 0 .. 4 {{ {WAIT}; {ISSUE} }}\n{WAIT}", []),
    (f"for k in 0 .. 4 {{ {ISSUE}; if gid.x == 0 {{ break }}; {WAIT} }}", ["V073"]),
    (f"for k in 0 .. 4 {{ {ISSUE}; if gid.x == 0 {{ {WAIT}; break }}; {WAIT} }}", []),
    (f"for k in 0 .. 4 {{ {ISSUE}; if gid.x == 0 {{ continue }}; {WAIT} }}", ["V073"]),
    (f"for k in 0 .. 4 {{ if gid.x == 0 {{ {ISSUE}; for j in 0 .. 2 {{ break }}; {WAIT} }} }}", []),
    (f"for k in 0 .. 4 {{ {ISSUE}; for j in 0 .. 2 {{ {WAIT}; break }}; {WAIT} }}", ["V073"]),
    (f"{ISSUE}\nwhile a[0] == 0 {{ {WAIT}; if gid.x == 0 {{ {ISSUE}; break }}; {ISSUE} }}\n{WAIT}", []),
    (f"{ISSUE}\nreturn", ["V072"]),
    (f'{ISSUE}\nasync_store(a, out, 0, 4, "u")\n{WAIT}\nasync_wait("u")', []),
    (f'{ISSUE}\nasync_store(a, out, 0, 4, "u")\n{WAIT}', ["V072"]),
    (f"{ISSUE}\ngrid_sync\n{WAIT}", []),
    (f'{ISSUE}\nif gid.x == 0 {{ trap(0, "x") }}\n{WAIT}\nresume("x")', ["V091"]),
    (f'if gid.x == 0 {{ trap(0, "x") }}\n{ISSUE}\nresume("x")\n{WAIT}', ["V091"]),
    (f'if gid.x == 0 {{ trap(0, "x") }}\n{ISSUE}\n{WAIT}\nresume("x")', []),
    (f'{ISSUE}\nif gid.x == 0 {{ trap(0, "assertion") }}\n{WAIT}', []),
]


@pytest.mark.parametrize(("body", "codes"), CASES)
def test_transfers(body: str, codes: list[str]) -> None:
    assert error_codes(report(body)) == codes


def test_an_error_of_an_if_is_placed_there() -> None:
    (found,) = report(f"a[0] = 1\nif gid.x == 0 {{ {ISSUE}; a[1] = 1 }}").errors
    assert found.place.statement == 1

"""Where may barriers stand? Legal and illegal neighbours, by what decides the control flow around a barrier."""

from __future__ import annotations

import pytest
from checker_support import error_codes, program, report

from vyre.checker import check

# What is written, and the codes of the errors it must have.
CASES: list[tuple[str, list[str]]] = [
    # conditions
    ("if gid.x < 4 { barrier }", ["V010"]),
    ("if gid.y < 4 { barrier }", []),
    ("if gid.y < 4 { grid_sync }", ["V068"]),
    ("if lid.y == 0 { grid_sync }", []),
    ("if subgroup_lane() == 0 { barrier }", ["V010"]),
    ("if subgroup_size() == 0 { grid_sync }", []),
    ("if subgroup_ballot(true) == 0 { barrier }", ["V010"]),
    ("if subgroup_reduce(add, 1) == 0 { barrier }", ["V010"]),
    ("if atomic_load(a, 0) == 0 { barrier }", ["V010"]),
    ("if b[n[0]] == 0 { grid_sync }", []),
    ("if b[lid.x] == 0 { barrier }", ["V010"]),
    ("if b[wg.x] == 0 { barrier }", []),
    ("if b[wg.x] == 0 { grid_sync }", ["V068"]),
    ("if select(gid.x == 0, 1, 1) == 1 { barrier }", ["V010"]),
    ("if gid.x < 4 { if n[0] == 0 { barrier } }", ["V010"]),
    ("if gid.x < 4 { } else { barrier }", ["V010"]),
    ("if wg.x == 0 { grid_sync } else { grid_sync }", ["V068", "V068"]),
    ("block { region \"r\" { if lid.x == 0 { block { barrier } } } }", ["V010"]),
    # variables
    ("let x = lid.x\nif x == 0 { barrier }", ["V010"]),
    ("let x = lid.x\nx = 0\nif x == 0 { barrier }", []),
    ("let x = 0\nif lid.x == 0 { x = 1 }\nif x == 0 { barrier }", ["V010"]),
    ("let x = 0\nif n[0] == 0 { x = 1 }\nif x == 0 { grid_sync }", []),
    ("let x = 0\nif n[0] == 0 { x = lid.x }\nif x == 0 { barrier }", ["V010"]),
    ("let x = lid.x\nif n[0] == 0 { x = 1 } else { x = 2 }\nif x == 0 { grid_sync }", []),
    ("let x = lid.x\nlet y = 0\nif n[0] == 0 { x = 1 } else { y = 1 }\nif x == 0 { barrier }", ["V010"]),
    ("let x = lid.x\nlet y = 0\nif n[0] == 0 { y = 1 } else { x = 1 }\nif x == 0 { barrier }", ["V010"]),
    ("let x = 0\nif n[0] == 0 { x = lid.x } else { x = 1 }\nif x == 0 { barrier }", ["V010"]),
    ("let x = 0\nif n[0] == 0 { x = 1 } else { x = lid.x }\nif x == 0 { barrier }", ["V010"]),
    ("let x = lid.x\nif n[0] == 0 { if n[1] == 0 { x = 1 } else { x = 2 } }\nif x == 0 { barrier }", ["V010"]),
    (
        "let x = lid.x\nif n[0] == 0 { if n[1] == 0 { x = 1 } else { x = 2 } } else { x = 3 }\nif x == 0 { barrier }",
        [],
    ),
    ("let x = 0\nif n[0] == 0 { for k in 0 .. 4 { x = lid.x } } else { x = 1 }\nif x == 0 { barrier }", ["V010"]),
    ("let x = 0\nif n[0] == 0 { for k in 0 .. 4 { x = lid.x } } else { if x == 0 { barrier } }", []),
    ("let x = lid.x\nif n[0] == 0 { x = 1; if x == 1 { barrier } }", []),
    ("let x = 0\nif n[0] == 0 { x = lid.x } else { if x == 0 { barrier } }", []),
    ("let x = 0\nif n[0] == 0 { if n[1] == 0 { x = lid.x } } else { x = 2 }\nif x == 0 { barrier }", ["V010"]),
    ("let x = 0\nif gid.x == 0 { x = 1; return }\nif x == 0 { grid_sync }", []),
    ("let x = lid.x\nif n[0] == 0 { x = 1 } else { return }\nif x == 1 { barrier }", []),
    ("let x = lid.x\nif n[0] == 0 { return } else { x = 1 }\nif x == 1 { barrier }", []),
    ("let x = 0\nif wg.x == 0 { x = 1 }\nif x == 0 { barrier }", []),
    ("let x = 0\nif wg.x == 0 { x = 1 }\nif x == 0 { grid_sync }", ["V068"]),
    ("let x = 0\nif lid.x == 0 { if n[0] == 0 { x = 1 } }\nif x == 0 { barrier }", ["V010"]),
    # returns count as arrived
    ("if gid.x >= n[0] { return }\nbarrier\ngrid_sync", []),
    ("for k in 0 .. 9 { if lid.x == k { return }\nbarrier }", []),
    ("while true { if lid.x == a[0] { return }\nbarrier }", []),
    # loops
    ("for k in 0 .. 4 { if k == 0 { barrier } }", []),
    ("for k in 0 .. 4 { if k == 0 { grid_sync } }", []),
    ("for k in 0 .. lid.x { barrier }", ["V010"]),
    ("for k in lid.x .. 9 { barrier }", ["V010"]),
    ("for k in lid.x .. lid.x { }\nbarrier", []),
    ("for k in 0 .. wg.x { barrier }", []),
    ("for k in 0 .. wg.x { grid_sync }", ["V068"]),
    ("let x = 0\nfor k in 0 .. lid.x { x = k }\nif x == 0 { barrier }", ["V010"]),
    ("let x = 0\nfor k in 0 .. n[0] { x = k }\nif x == 0 { grid_sync }", []),
    ("let x = 0\nfor k in 0 .. lid.x { x = 7 }\nif x == 0 { barrier }", ["V010"]),
    ("let x = 0\nfor k in 0 .. n[0] { if x == 0 { barrier }\nx = lid.x }", ["V010"]),
    ("let x = 0\nfor k in 0 .. n[0] { x = 0\nif x == 0 { barrier }\nx = lid.x }", []),
    ("let x = 0\nlet y = 0\nfor k in 0 .. 9 { if y == 0 { barrier }\ny = x\nx = lid.x }", ["V010"]),
    ("let x = 0\nwhile x < 4 { barrier\nx = x + 1 }", []),
    ("let x = 0\nwhile x < 4 { barrier\nx = x + lid.x }", ["V010"]),
    ("let x = 0\nwhile x < 4 { x = x + 1\nif lid.x == 0 { break } }\nif x == 0 { barrier }", ["V010"]),
    ("let x = 0\nwhile x < 4 { x = x + 1\nif n[0] == 0 { break } }\nif x == 0 { barrier }", []),
    ("for k in 0 .. 4 { if lid.x == 0 { break }\nbarrier }", ["V010"]),
    ("for k in 0 .. 4 { barrier\nif lid.x == 0 { break } }", ["V010"]),
    ("for k in 0 .. 4 { if lid.x == 0 { continue }\nbarrier }", ["V010"]),
    ("for k in 0 .. 4 { barrier\nif wg.x == 0 { break } }", []),
    ("for k in 0 .. 4 { grid_sync\nif wg.x == 0 { break } }", ["V068"]),
    ("for k in 0 .. 4 { if lid.x == 0 { break } }\nbarrier", []),
    ("for j in 0 .. 4 { for k in 0 .. 4 { if lid.x == 0 { break } }\nbarrier }", []),
    ("for j in 0 .. 4 { for k in 0 .. 4 { barrier }\nif lid.x == 0 { break } }", ["V010"]),
    ("let x = 0\nfor k in 0 .. 4 { if n[k] == 0 { x = lid.x; break } }\nif x == 0 { barrier }", ["V010"]),
    ("let x = 0\nfor k in 0 .. 4 { if n[k] == 0 { x = lid.x; x = 1; break } }\nif x == 0 { barrier }", []),
    ("let x = 0\nfor k in 0 .. 4 { if x == 0 { barrier }\nif n[k] == 0 { x = lid.x; break } }", []),
    ("let x = 0\nfor k in 0 .. 4 { if x == 0 { barrier }\nif n[k] == 0 { x = lid.x; continue } }", ["V010"]),
    ("let x = 0\nfor k in 0 .. 4 { if x == 0 { barrier }\nif n[k] == 0 { x = lid.x; x = 2; continue } }", []),
    ("let x = 0\nfor k in 0 .. 4 { x = lid.x\nif n[k] == 0 { break }\nx = 0 }\nif x == 0 { barrier }", ["V010"]),
    ("let x = 0\nfor k in 0 .. 4 { x = lid.x\nx = 0\nif n[k] == 0 { break } }\nif x == 0 { barrier }", []),
    (
        "let x = 0\nfor j in 0 .. 4 { for k in 0 .. 4 { x = lid.x }\nif n[j] == 0 { break }\nx = 0 }\n"
        "if x == 0 { barrier }",
        ["V010"],
    ),
    # a break in one arm, another value in the other arm, and a second break after them
    (
        "let x = 0\nfor k in 0 .. 4 { if n[k] == 1 { x = 1; break } else { x = lid.x }\n"
        "if n[k] == 2 { break }\nx = 0 }\nif x == 0 { barrier }",
        ["V010"],
    ),
    (
        "let x = 0\nfor k in 0 .. 4 { x = lid.x\nif n[k] == 1 { x = 1; if n[k] == 3 { break } }\n"
        "if n[k] == 2 { break }\nx = 0 }\nif x == 0 { barrier }",
        ["V010"],
    ),
    # nested loops: what enters the inner one, what goes back, what is reset between
    ("let x = 0\nfor j in 0 .. 4 { for k in 0 .. 4 { if x == 0 { barrier }\nx = lid.x } }", ["V010"]),
    ("let x = 0\nfor j in 0 .. 4 { if x == 0 { barrier }\nfor k in 0 .. 4 { x = lid.x } }", ["V010"]),
    ("let x = 0\nfor j in 0 .. 4 { if x == 0 { barrier }\nfor k in 0 .. 4 { x = lid.x }\nx = 0 }", []),
    ("let x = 0\nfor j in 0 .. 4 { x = 0\nfor k in 0 .. 4 { if x == 0 { barrier }\nx = x + 1 }\nx = lid.x }", []),
    ("for j in 0 .. 4 { let x = 0\nfor k in 0 .. 4 { if x == 0 { barrier }\nx = lid.x } }", ["V010"]),
    ("for j in 0 .. 4 { let x = 0\nfor k in 0 .. lid.x { x = x + 1 }\nif x == 0 { barrier } }", ["V010"]),
    (
        "let x = 0\nfor i in 0 .. 4 { for j in 0 .. 4 { for k in 0 .. 4 { x = x + 1 } } }\nif x == 0 { grid_sync }",
        [],
    ),
    (
        "let x = 0\nfor i in 0 .. 4 { for j in 0 .. 4 { for k in 0 .. lid.x { x = x + 1 } } }\nif x == 0 { barrier }",
        ["V010"],
    ),
    (
        "let x = 0\nfor i in 0 .. 4 { for j in 0 .. 4 { if n[0] == 0 { x = lid.x; break } }\nif x == 0 { barrier } }",
        ["V010"],
    ),
    (
        "let x = 0\nlet y = x\nfor i in 0 .. 4 { for j in 0 .. 4 { y = lid.x }\nif x == 0 { barrier } }",
        [],
    ),
    # storage: what is written between the same grid barriers may differ
    ("if a[0] == 0 { grid_sync }", []),
    ("if a[0] == 0 { grid_sync }\na[gid.x] = 1", ["V068"]),
    ("a[gid.x] = 1\nif a[0] == 0 { grid_sync }", ["V068"]),
    ("a[gid.x] = 1\ngrid_sync\nif a[0] == 0 { grid_sync }", []),
    ("a[gid.x] = 1\ngrid_sync\nif a[0] == 0 { grid_sync }\ngrid_sync\na[0] = 1", []),
    ("a[gid.x] = 1\nbarrier\nif a[0] == 0 { barrier }", ["V010"]),
    ("a[gid.x] = 1\nif out[0] == 0 { grid_sync }", []),
    ("let x = atomic_add(a, 0, 1)\nif a[0] == 0 { grid_sync }", ["V068"]),
    ("let x = atomic_load(a, 0)\nif a[0] == 0 { grid_sync }", []),
    ("let x = a[0]\ngrid_sync\na[0] = 1\ngrid_sync\nif x == 0 { grid_sync }", []),
    ("let x = a[0]\na[0] = 1\ngrid_sync\nif x == 0 { grid_sync }", ["V068"]),
    ("if gid.x == 0 { a[0] = 1 } else { let x = a[0] }\nif a[0] == 0 { grid_sync }", ["V068"]),
    ("if n[0] == 0 { grid_sync }\na[gid.x] = 1\ngrid_sync\nif a[0] == 0 { grid_sync }", []),
    ("a[gid.x] = 1\nif n[0] == 0 { grid_sync }\nif a[0] == 0 { grid_sync }", ["V068"]),
    ("a[gid.x] = 1\nif n[0] == 0 { grid_sync; if a[0] == 0 { grid_sync } }", []),
    ('a[gid.x] = 1\nresume("t")\nif a[0] == 0 { grid_sync }', []),
    ('a[gid.x] = 1\nbroadcast(a, 0, "g")\nif a[0] == 0 { grid_sync }', []),
    ('async_load(b, a, 0, 4, "t")\nif a[0] == 0 { grid_sync }\ngrid_sync\nasync_wait("t")', []),
    ('async_load(b, a, 0, 4, "t")\ngrid_sync\nasync_wait("t")\nif a[0] == 0 { grid_sync }', ["V068"]),
    ("copy_bytes(b, a, 0, 0, 4)\nif a[0] == 0 { grid_sync }", ["V068"]),
    ("copy_bytes(b, a, 0, 0, 4)\ngrid_sync\nif a[0] == 0 { grid_sync }", []),
    # the device's own loop condition, with barriers on both sides of the write
    ("while changed[0] != 0 { grid_sync\nif gid.x == 0 { changed[0] = 0 }\ngrid_sync }", []),
    ("while changed[0] != 0 { if gid.x == 0 { changed[0] = 0 }\ngrid_sync }", ["V068"]),
    ("while changed[0] != 0 { grid_sync\nif gid.x == 0 { changed[0] = 0 } }", ["V068"]),
    ("while changed[0] != 0 { grid_sync\nchanged[0] = 0\ngrid_sync }\nchanged[0] = 1", ["V068", "V068"]),
    ("while changed[0] != 0 { grid_sync\nchanged[0] = 0\ngrid_sync }\ngrid_sync\nchanged[0] = 1", []),
    ("changed[0] = 1\nwhile changed[0] != 0 { grid_sync\nchanged[0] = 0\ngrid_sync }", ["V068", "V068"]),
    ("while true { grid_sync\nif a[0] == 0 { break }\ngrid_sync\na[gid.x] = 1 }", []),
    ("while true { if a[0] == 0 { break }\ngrid_sync\na[gid.x] = 1 }", ["V068"]),
    ("while true { grid_sync\nif a[0] == 0 { break }\ngrid_sync\na[gid.x] = 1 }\na[1] = 2", ["V068", "V068"]),
    ("for k in 0 .. 4 { if a[k] == 0 { grid_sync }\ngrid_sync\na[gid.x] = 1 }", ["V068"]),
    ("for k in 0 .. 4 { if a[k] == 0 { grid_sync }\ngrid_sync\na[gid.x] = 1\ngrid_sync }", []),
    ("for k in 0 .. 4 { grid_sync\nif a[k] == 0 { continue }\ngrid_sync\na[gid.x] = 1 }", []),
    ("for k in 0 .. 4 { if a[k] == 0 { grid_sync }\ngrid_sync\na[gid.x] = 1\nif n[0] == 1 { continue }\ngrid_sync }",
     ["V068"]),
    # workgroup memory: at best the same in each workgroup, and written between workgroup barriers
    ("if s[0] == 0 { barrier }", []),
    ("if s[0] == 0 { grid_sync }", ["V068"]),
    ("s[lid.x] = 1\nif s[0] == 0 { barrier }", ["V010"]),
    ("s[lid.x] = 1\nbarrier\nif s[0] == 0 { barrier }", []),
    ("s[lid.x] = 1\ngrid_sync\nif s[0] == 0 { barrier }", []),
    ("s[lid.x] = 1\nbarrier\nif s[lid.x] == 0 { barrier }", ["V010"]),
    ("s[lid.x] = 1\nbarrier\nif s[0] == 0 { barrier }\ns[lid.x] = 2", ["V010"]),
    ("for k in 0 .. 4 { s[lid.x] = 1\nbarrier\nif s[0] == 0 { barrier }\nbarrier }", []),
    ("for k in 0 .. 4 { s[lid.x] = 1\nbarrier\nif s[0] == 0 { barrier } }", ["V010"]),
    ("while s[0] == 0 { barrier\ns[lid.x] = 1\nbarrier }", []),
    ("while s[0] == 0 { barrier\ns[lid.x] = 1 }", ["V010"]),
    # traps: those who are parked keep what the others change until the resume
    ('let x = 0\nif lid.x == 0 { trap(1, "t") }\nx = 1\nresume("t")\nif x == 0 { barrier }', ["V010"]),
    ('let x = 0\nx = 1\nif lid.x == 0 { trap(1, "t") }\nresume("t")\nif x == 0 { grid_sync }', []),
    ('let x = 0\nif n[0] == 0 { trap(1, "t") }\nx = 1\nresume("t")\nif x == 0 { grid_sync }', []),
    ('if lid.x == 0 { trap(1, "t") }\nlet y = 1\nresume("t")\nif y == 0 { barrier }', ["V010"]),
    ('if lid.x == 0 { trap(1, "u") }\nlet y = 1\nresume("t")\nif y == 0 { barrier }', []),
    ('let x = 0\nif lid.x == 0 { x = 1; trap(1, "t"); return }\nresume("t")\nif x == 0 { barrier }', ["V010"]),
    ('let x = 0\nfor k in 0 .. 4 { x = k\nif lid.x == k { trap(1, "t") } }\nresume("t")\nif x == 0 { barrier }',
     ["V010"]),
    ('for k in 0 .. 4 { if lid.x == k { trap(1, "t") }\nif n[k] == 0 { break }\nresume("t") }', ["V069"]),
    ('for k in 0 .. 4 { if n[k] == 0 { break }\nif lid.x == k { trap(1, "t") }\nresume("t") }', []),
    ('let x = 0\nif lid.x == 0 { trap(1, "t") }\nresume("t")\nx = 1\nif x == 0 { grid_sync }', []),
    ('if lid.x == 0 { trap(1, "t") }\nbarrier\nresume("t")\nbarrier', []),
    ('if lid.x == 0 { trap(1, "t"); resume("t") }', ["V069"]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "codes"), CASES)
def test_barriers_stand_in_uniform_control_flow(body: str, codes: list[str]) -> None:
    assert error_codes(report(body)) == codes


@pytest.mark.parametrize(
    "body", ["if lid.x == 0 { barrier }", "if gid.x == 0 { barrier }", "if s[lid.x] == 0 { barrier }"]
)
def test_a_workgroup_of_one_invocation_is_always_uniform(body: str) -> None:
    assert error_codes(report(body, header="workgroup 1")) == []
    assert error_codes(report(body, header="workgroup 2")) == ["V010"]
    assert error_codes(report(body.replace("barrier", "grid_sync"), header="workgroup 1")) == (
        ["V068"] if "lid.x ==" not in body else []
    )


def test_a_diagnostic_tells_why() -> None:
    source = program("let i = gid.x + 1\nlet m = 0\nif i < 4 { m = 1 }\nwhile m != 0 { barrier }", "\n")
    (found,) = check(source).errors
    told = [(source.source.text[slice(*_ends(source, place))], text) for place, text in found.notes]
    assert told == [
        ("m != 0", "m != 0 differs between invocations"),
        ("m = 1", "'m' gets its value here"),
        ("i < 4", "i < 4 differs between invocations"),
        ("let i = gid.x + 1", "'i' gets its value here"),
        ("gid.x", "gid.x differs between invocations"),
    ]


def _ends(source, place) -> tuple[int, int]:  # type: ignore[no-untyped-def]
    span = source.source.span(place)
    return span.start, span.stop


@pytest.mark.parametrize(
    ("body", "last"),
    [
        ("if wg.y == 0 { grid_sync }", "wg.y differs between workgroups"),
        ("a[0] = 1\nif a[n[0]] == 0 { barrier }",
         "a[n[0]] differs between invocations: 'a' is written between the same barriers"),
        ("if s[0] == 0 { grid_sync }", "s[0] differs between workgroups"),
        ("let x = atomic_add(a, 0, 1)\nif x == 0 { barrier }", "atomic_add(a, 0, 1) differs between invocations"),
        ("for k in 0 .. 4 { barrier; if lid.x == 0 { break } }", "lid.x differs between invocations"),
    ],
)  # fmt: skip
def test_the_last_note_is_where_it_begins(body: str, last: str) -> None:
    (found,) = report(body).errors
    assert found.notes[-1][1] == last

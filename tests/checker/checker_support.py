"""Programs for the tests of the checker, from short texts."""

from __future__ import annotations

from vyre.checker import Report, check
from vyre.ir import Program, parse

BUFFERS = """
  buffer 0 a: u32[] readwrite
  buffer 1 b: u32[8] read
  buffer 2 f: f32[] readwrite
  buffer 3 out: u32[16] output
  buffer 4 wo: u32[] writeonly
  buffer 5 n: u32[4] uniform
  buffer 6 i: i32[] readwrite
  buffer 7 w: u64[] readwrite
  buffer 8 changed: u32[1] readwrite
  buffer 0 s: u32[64] workgroup
"""


def program(body: str, buffers: str = BUFFERS, header: str = "workgroup 64") -> Program:
    return parse(f"program p({header}) {{{buffers}\n{body}\n}}", "p.vyre")


def report(body: str, buffers: str = BUFFERS, header: str = "workgroup 64") -> Report:
    return check(program(body, buffers, header))


def error_codes(found: Report) -> list[str]:
    return [diagnostic.code for diagnostic in found.errors]


def all_codes(found: Report) -> list[str]:
    return [diagnostic.code for diagnostic in found.errors + found.warnings]

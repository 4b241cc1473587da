"""Any text: a program that prints and reads back the same, or a ParseError with a place and a fix."""

from __future__ import annotations

import re
from random import Random

import pytest
from text_samples import EVERYTHING, REACH, random_program

from vyre.errors import ParseError
from vyre.ir.parser import parse, parse_expression
from vyre.ir.printer import print_expression, print_program

CASES = 6_000
LONG_CASES = 100_000

SEEDS = (REACH, EVERYTHING, *(print_program(random_program(seed)) for seed in range(20)))
TOKENS = (
    *dict.fromkeys(re.findall(r"\w+|\S", EVERYTHING)),
    "0x", "1e", "1e999", "-", "..", "\n", ";", "{", "}", "(", ")", "[", "]", '"', 'x"', "\\", "#", "nan", "1u8", "٣",
    "\u2028", "\ud800",
)  # fmt: skip
BRACKETS = (("(", ")"), ("a[", "]"), ("min(", ", 1)"), ("-", ""), ("block {", "}"), ("if a {", "}"), ("f32(", ")"))


def mutated(random: Random, text: str) -> str:
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        start = random.randrange(len(text) + 1)
        stop = min(len(text), start + random.choice((0, 1, 1, 3, 10, 200)))
        match random.randrange(8):
            case 0:
                text = text[:start] + text[stop:]
            case 1:
                text = text[:start] + random.choice(TOKENS) + text[start:]
            case 2:
                text = text[:start] + " " + random.choice(TOKENS) + " " + text[stop:]
            case 3:
                pieces = re.split(r"(\s+)", text)
                one, other = random.randrange(len(pieces)), random.randrange(len(pieces))
                pieces[one], pieces[other] = pieces[other], pieces[one]
                text = "".join(pieces)
            case 4:
                text = (
                    text[:start] + chr(random.choice((random.randrange(128), random.randrange(0x3000)))) + text[stop:]
                )
            case 5:
                text = text[:start]
            case 6:
                opening, closing = random.choice(BRACKETS)
                times = random.choice((2, 70, 1_100, 5_000))
                text = text[:start] + opening * times + "1" + closing * random.choice((times, times - 1)) + text[stop:]
            case _:
                digits = "".join(random.choices("0123456789", k=random.choice((3, 12, 25, 400))))
                text = text[:start] + digits + random.choice(("", ".5", "e9", "i8", "u64", "f16")) + text[stop:]
    return text


def random_text(random: Random) -> str:
    length = random.randrange(60)
    match random.randrange(3):
        case 0:
            return "".join(chr(random.randrange(1, 0x250)) for _ in range(length))
        case 1:
            return " ".join(random.choices(TOKENS, k=length))
        case _:
            return "program p(workgroup 1) { " + " ".join(random.choices(TOKENS, k=length)) + " }"


def assert_safe(text: str) -> bool:
    """Whether the text is a program; that everything else is as it should be is asserted."""
    try:
        program = parse(text)
    except ParseError as error:
        assert error.message
        assert error.fix
        assert 1 <= error.line <= text.count("\n") + 1
        assert error.column >= 1
        assert len(error.rendered) < 3_000
        return False
    assert parse(print_program(program)) == program
    return True


def fuzz(cases: int, seed: int) -> None:
    random = Random(seed)
    programs = sum(assert_safe(mutated(random, random.choice(SEEDS))) for _ in range(cases))
    # Mutations that never give programs would test the first error only.
    assert programs > cases // 50
    for _ in range(cases // 3):
        assert_safe(random_text(random))


def test_mutated_and_random_texts() -> None:
    fuzz(CASES, seed=1)


def test_mutated_and_random_expressions() -> None:
    random = Random(2)
    read = 0
    for _ in range(CASES):
        text = mutated(random, " ".join(random.choices(TOKENS, k=random.randrange(1, 6))))
        try:
            expression = parse_expression(text)
        except ParseError:
            continue
        read += 1
        assert parse_expression(print_expression(expression)) == expression
    assert read > CASES // 50


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_many_mutated_and_random_texts(seed: int) -> None:
    fuzz(LONG_CASES // 10, seed=1_000 + seed)

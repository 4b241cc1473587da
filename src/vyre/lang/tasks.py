"""How does a walk over a deep tree call itself? As tasks: generators that yield the task they need the answer of."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")
Task = Generator[Any, Any, T]


def run(task: Task[T]) -> T:
    """Runs a task and all that it asks for, on a stack of its own; depth costs memory and nothing else."""
    stack: list[Task[Any]] = [task]
    answer: Any = None
    while True:
        try:
            needed = stack[-1].send(answer)
        except StopIteration as done:
            stack.pop()
            answer = done.value
            if not stack:
                result: T = answer
                return result
        else:
            stack.append(needed)
            answer = None

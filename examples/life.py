"""Conway's game of life: all generations in one launch, a grid barrier after each."""

import numpy as np

import vyre
from vyre import u32

GLIDER = np.array([[0, 1, 0], [0, 0, 1], [1, 1, 1]], np.uint32)


@vyre.function
def next_state(cells, row, column):
    height, width = cells.shape
    above, below = (row + height - 1) % height, (row + 1) % height
    left, right = (column + width - 1) % width, (column + 1) % width
    around = (
        cells[above, left] + cells[above, column] + cells[above, right] + cells[row, left]
        + cells[row, right] + cells[below, left] + cells[below, column] + cells[below, right]
    )  # fmt: skip
    return 1 if around == 3 or (around == 2 and cells[row, column] == 1) else 0


@vyre.kernel(workgroup=(16, 4))
def life(generations: u32, cells: vyre.InOut[u32, 2], other: vyre.InOut[u32, 2]):
    column, row = vyre.gid(0), vyre.gid(1)
    for generation in range(generations):
        if generation % 2 == 0:
            other[row, column] = next_state(cells, row, column)
        else:
            cells[row, column] = next_state(other, row, column)
        vyre.grid_sync()


def main(size: int = 16, generations: int = 40) -> None:
    cells = np.zeros((size, size), np.uint32)
    cells[:3, :3] = GLIDER
    other = np.zeros_like(cells)
    life[(size, size)](generations, cells, other)
    world = cells if generations % 2 == 0 else other
    print(f"a glider after {generations} generations on a torus of {size} x {size}:")
    print("\n".join("".join(".#"[cell] for cell in row) for row in world))


if __name__ == "__main__":
    main()

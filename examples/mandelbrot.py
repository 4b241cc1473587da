"""The Mandelbrot set as a picture: one invocation for each pixel. Writes mandelbrot.png."""

import struct
import sys
import zlib

import numpy as np

import vyre
from vyre import f32, u8, u32

STEPS = 255


@vyre.function
def escape_time(cx: f32, cy: f32) -> u32:
    x, y = 0.0, 0.0
    for step in range(STEPS):
        if x * x + y * y > 4.0:
            return step
        x, y = x * x - y * y + cx, 2.0 * x * y + cy
    return STEPS


@vyre.kernel(workgroup=(16, 4))
def mandelbrot(left: f32, top: f32, pixel: f32, image: vyre.Out[u8, 2]):
    column, row = vyre.gid(0), vyre.gid(1)
    steps = escape_time(left + f32(column) * pixel, top + f32(row) * pixel)
    image[row, column] = u8(255.0 * vyre.sqrt(f32(steps % STEPS) / STEPS))


def write_png(path: str, image: np.ndarray) -> None:
    """Writes an image of 8-bit greys."""
    height, width = image.shape
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
            (b"IDAT", zlib.compress(rows)),
            (b"IEND", b""),
        ):
            file.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))


def main(path: str = "mandelbrot.png", width: int = 960, height: int = 640) -> None:
    image = np.zeros((height, width), np.uint8)
    mandelbrot[(width, height)](-2.2, -1.1, 3.3 / width, image)
    write_png(path, image)
    print(f"wrote {path}: {width} x {height}, {np.mean(image == 0):.0%} of it in the set")


if __name__ == "__main__":
    main(*sys.argv[1:2])

"""Bodies under gravity: two kernels, repeated as one sequence; the host waits once."""

import numpy as np

import vyre
from vyre import f32


@vyre.kernel
def pull(dt: f32, mass: vyre.In[f32], place: vyre.In[f32, (None, 3)], speed: vyre.InOut[f32, (None, 3)]):
    """Every body is pulled by all others."""
    i = vyre.gid()
    if i < len(mass):
        ax, ay, az = 0.0, 0.0, 0.0
        for j in range(len(mass)):
            dx, dy, dz = place[j, 0] - place[i, 0], place[j, 1] - place[i, 1], place[j, 2] - place[i, 2]
            closeness = vyre.rsqrt(dx * dx + dy * dy + dz * dz + 1e-3)
            force = mass[j] * closeness * closeness * closeness
            ax, ay, az = ax + dx * force, ay + dy * force, az + dz * force
        speed[i, 0] += ax * dt
        speed[i, 1] += ay * dt
        speed[i, 2] += az * dt


@vyre.kernel
def move(dt: f32, speed: vyre.In[f32, (None, 3)], place: vyre.InOut[f32, (None, 3)]):
    i = vyre.gid()
    for axis in range(3):
        place[i, axis] += speed[i, axis] * dt


def main(bodies: int = 512, steps: int = 100, dt: float = 1e-3) -> None:
    random = np.random.default_rng(3)
    mass = random.uniform(0.5, 1.5, bodies).astype(np.float32)
    place = random.normal(size=(bodies, 3)).astype(np.float32)
    speed = np.zeros((bodies, 3), np.float32)
    with vyre.sequence() as s, s.repeat(steps):
        pull[bodies](dt, mass, place, speed)
        move[bodies](dt, speed, place)
    momentum = (mass[:, None] * speed).sum(axis=0)
    print(f"{bodies} bodies, {s.passes} steps: fastest {np.linalg.norm(speed, axis=1).max():.3f}")
    print("momentum, which should stay about zero:", np.round(momentum, 3))


if __name__ == "__main__":
    main()

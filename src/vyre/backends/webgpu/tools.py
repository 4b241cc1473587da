"""The backend's own kernels: fills, copies, convergence tests, and the choice and the size of the next launch."""

from __future__ import annotations

from typing import Final

TOOL_SIZE: Final = 64
_MOST_GROUPS: Final = 1024

FILL: Final = """
struct Fill { first: u32, count: u32, pattern: u32, head: u32, tail: u32 }
@group(0) @binding(0) var<uniform> fill: Fill;
@group(0) @binding(1) var<storage, read_write> words: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  for (var i = gid.x; i < fill.count; i += 64u * groups.x) {
    let mask = select(0xffffffffu, fill.head, i == 0u) & select(0xffffffffu, fill.tail, i == fill.count - 1u);
    words[fill.first + i] = (words[fill.first + i] & ~mask) | (fill.pattern & mask);
  }
}
"""

# Both watchers set the first word of the state if the pass was not the last.
COMPARE: Final = """
struct Watch { count: u32, tail: u32 }
@group(0) @binding(0) var<uniform> watch: Watch;
@group(0) @binding(1) var<storage, read> words: array<u32>;
@group(0) @binding(2) var<storage, read_write> before: array<u32>;
@group(0) @binding(3) var<storage, read_write> state: array<atomic<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  for (var i = gid.x; i < watch.count; i += 64u * groups.x) {
    let mask = select(0xffffffffu, watch.tail, i == watch.count - 1u);
    let now = words[i] & mask;
    if (now != (before[i] & mask)) {
      before[i] = now;
      atomicStore(&state[0], 1u);
    }
  }
}
"""

NONZERO: Final = """
struct Watch { count: u32, tail: u32 }
@group(0) @binding(0) var<uniform> watch: Watch;
@group(0) @binding(1) var<storage, read> words: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<atomic<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  for (var i = gid.x; i < watch.count; i += 64u * groups.x) {
    let mask = select(0xffffffffu, watch.tail, i == watch.count - 1u);
    if ((words[i] & mask) != 0u) {
      atomicStore(&state[0], 1u);
    }
  }
}
"""

# After a pass: counts it in the second word of the state; if it was the last, says so in the third, and makes every
# launch that is still to come an empty one. A launch cannot empty itself, so this one runs to the end and does nothing.
CONTROL: Final = """
struct Control { words: u32 }
@group(0) @binding(0) var<uniform> control: Control;
@group(0) @binding(1) var<storage, read_write> state: array<u32>;
@group(0) @binding(2) var<storage, read_write> launches: array<u32>;

@compute @workgroup_size(1)
fn main() {
  if (state[2] != 0u) {
    return;
  }
  state[1] = state[1] + 1u;
  if (state[0] == 0u) {
    state[2] = 1u;
    for (var i = 0u; i < control.words; i++) {
      launches[i] = 0u;
    }
  }
  state[0] = 0u;
}
"""
STATE_WORDS: Final = 3

# Before a launch whose grid is in memory: writes it into the parameter block, and how it is folded into the launch. A
# grid that u32 cannot number is empty, and reported as a fault; that of a launch after the last pass is empty too.
FOLD: Final = """
struct Fold { first: u32, most: u32, most_x: u32, most_y: u32, most_z: u32 }
@group(0) @binding(0) var<uniform> fold: Fold;
@group(0) @binding(1) var<storage, read> counts: array<u32>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> block: array<u32>;
@group(0) @binding(4) var<storage, read_write> launches: array<u32>;
@group(0) @binding(5) var<storage, read_write> faults: array<u32>;

fn launch(x: u32, y: u32, z: u32) {
  launches[0] = x;
  launches[1] = y;
  launches[2] = z;
}

@compute @workgroup_size(1)
fn main() {
  launch(0u, 0u, 0u);
  let x = counts[fold.first];
  let y = counts[fold.first + 1u];
  let z = counts[fold.first + 2u];
  if (state[2] != 0u || x == 0u || y == 0u || z == 0u) {
    return;
  }
  let axes_fit = x <= fold.most_x && y <= fold.most_y && z <= fold.most_z;
  if (!axes_fit || y > 0xffffffffu / x || z > 0xffffffffu / (x * y)) {
    faults[1] = x;
    faults[2] = y;
    faults[3] = z;
    return;
  }
  let groups = x * y * z;
  block[0] = x;
  block[1] = y;
  block[2] = z;
  block[3] = groups;
  if (max(x, max(y, z)) <= fold.most) {
    launch(x, y, z);
    return;
  }
  let width = min(groups, fold.most);
  let height = min((groups - 1u) / width + 1u, fold.most);
  launch(width, height, (groups - 1u) / (width * height) + 1u);
}
"""

# After a segment of a cut program, if it was the one to run: the control word says which is next, and only that one's
# launch is not empty. The state is the segment to run, the segments that ran, and whether the last has run.
SELECT: Final = """
struct Segment { number: u32, x: u32, y: u32, z: u32 }
@group(0) @binding(0) var<uniform> segment: Segment;
@group(0) @binding(1) var<storage, read_write> state: array<u32>;
@group(0) @binding(2) var<storage, read_write> control: array<u32>;
@group(0) @binding(3) var<storage, read_write> launches: array<u32>;

fn launch(number: u32, x: u32, y: u32, z: u32) {
  launches[3u * number] = x;
  launches[3u * number + 1u] = y;
  launches[3u * number + 2u] = z;
}

@compute @workgroup_size(1)
fn main() {
  if (state[2] != 0u || state[0] != segment.number) {
    return;
  }
  let following = control[0];
  control[0] = 0u;
  launch(segment.number, 0u, 0u, 0u);
  state[0] = following;
  state[1] = state[1] + 1u;
  if (following == 0u) {
    state[2] = 1u;
  } else {
    launch(following, segment.x, segment.y, segment.z);
  }
}
"""

COPY: Final = """
struct Copy { count: u32 }
@group(0) @binding(0) var<uniform> copy: Copy;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> destination: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  for (var i = gid.x; i < copy.count; i += 64u * groups.x) {
    destination[i] = source[i];
  }
}
"""


def tool_groups(words: int) -> int:
    """The workgroups of a tool that goes over so many words."""
    return min(_MOST_GROUPS, -(-words // TOOL_SIZE))


def tail_mask(byte_count: int) -> int:
    """The bytes of the last word that are meant, of so many bytes."""
    return 0xFFFFFFFF >> 8 * (-byte_count % 4)

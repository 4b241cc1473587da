"""What does the backend itself run on the device? Small kernels that fill, watch for changes, and stop a loop."""

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

# Which of a tool's buffers are only read.
READ_ONLY: Final = {FILL: (False,), COMPARE: (True, False, False), NONZERO: (True, False), CONTROL: (False, False)}


def tool_groups(words: int) -> int:
    """The workgroups of a tool that goes over so many words."""
    return min(_MOST_GROUPS, -(-words // TOOL_SIZE))


def tail_mask(byte_count: int) -> int:
    """The bytes of the last word that are meant, of so many bytes."""
    return 0xFFFFFFFF >> 8 * (-byte_count % 4)

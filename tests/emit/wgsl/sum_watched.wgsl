// sum

struct Launch {
  grid: vec3<u32>,
  groups: u32,
  zero: u32,
  len_values: u32,
}

@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read> values: array<u32>; // u32[]
@group(0) @binding(2) var<storage, read_write> sums: array<u32>; // u32[4]
var<workgroup> partial_1: array<u32, 64>; // u32[64]
@group(0) @binding(3) var<storage, read_write> faults: array<atomic<u32>>;

fn overrun(going: bool) {
  if (going) {
    atomicStore(&faults[0], 1u);
  }
}

fn load_values(i: u32) -> u32 {
  return select(0u, values[i], i < launch.len_values);
}

fn set_partial_1(i: u32, value: u32) {
  partial_1[i] = value;
}

fn get_partial_1(i: u32) -> u32 {
  return partial_1[i];
}

fn load_partial_1(i: u32) -> u32 {
  return select(0u, partial_1[i], i < 64u);
}

fn store_sums(i: u32, value: u32) {
  if (i < 4u) {
    sums[i] = value;
  }
}

@compute @workgroup_size(64, 1, 1)
fn main(
  @builtin(local_invocation_id) lid: vec3<u32>,
  @builtin(global_invocation_id) gid: vec3<u32>,
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  if (lane < 64u) {
    partial_1[lane] = 0u;
  }
  workgroupBarrier();
  let t = load_values(gid.x);
  set_partial_1(lid.x, t);
  var width = 32u;
  var ended = false;
  loop {
    if (!(width > 0u)) {
      ended = true;
      break;
    }
    workgroupBarrier();
    if (lid.x < width) {
      let t_1 = get_partial_1(lid.x);
      let t_2 = lid.x + width;
      let t_3 = load_partial_1(t_2);
      let t_4 = t_1 + t_3;
      set_partial_1(lid.x, t_4);
    }
    width = width >> 1u;
  }
  overrun(!ended);
  if (lid.x == 0u) {
    let t_5 = get_partial_1(0u);
    store_sums(wg.x, t_5);
  }
}

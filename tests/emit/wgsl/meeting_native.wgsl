// meeting

struct Launch {
  grid: vec3<u32>,
  groups: u32,
  zero: u32,
  len_data: u32,
  len_votes: u32,
  len_bytes: u32,
}

@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read> data: array<u32>; // f16[]
@group(0) @binding(2) var<storage, read_write> votes: array<u32>; // u32[]
@group(0) @binding(3) var<storage, read_write> bytes: array<atomic<u32>>; // u8[]
var<workgroup> votes_1: array<atomic<u32>, 3>;
var<private> hidden_zero: u32;

fn kept(x: f32) -> f32 {
  return bitcast<f32>(hidden_zero | bitcast<u32>(x));
}

fn apart(x: f32) -> f32 {
  return bitcast<f32>(hidden_zero + bitcast<u32>(x));
}

fn f16_of_bits(bits: u32) -> f32 {
  let magnitude = bits & 0x7fffu;
  let exponent = select(0x38000000u, 0x70000000u, magnitude >= 0x7c00u);
  let small = bitcast<u32>(f32(magnitude) * 0x1p-24f);
  return bitcast<f32>(((bits & 0x8000u) << 16u) | select((magnitude << 13u) + exponent, small, magnitude < 0x400u));
}

var<private> any_active_turn: u32;

fn any_active(flag: bool, lane: u32) -> bool {
  let cell = any_active_turn;
  any_active_turn = (cell + 1u) % 3u;
  if (lane == 0u) {
    atomicStore(&votes_1[any_active_turn], 0u);
  }
  if (flag) {
    atomicStore(&votes_1[cell], 1u);
  }
  workgroupBarrier();
  return atomicLoad(&votes_1[cell]) != 0u;
}

fn get_data(i: u32) -> f32 {
  let word = data[i / 2u];
  let bits = (word >> (16u * (i % 2u))) & 0xffffu;
  return f16_of_bits(bits);
}

fn load_votes(i: u32) -> u32 {
  return select(0u, votes[i], i < launch.len_votes);
}

fn load_data(i: u32) -> f32 {
  let word = select(0u, data[i / 2u], i < launch.len_data);
  let bits = (word >> (16u * (i % 2u))) & 0xffffu;
  return f16_of_bits(bits);
}

fn ballot(flag: bool, lane: u32) -> u32 {
  return subgroupBallot(flag).x;
}

fn store_votes(i: u32, value: u32) {
  if (i < launch.len_votes) {
    votes[i] = value;
  }
}

fn store_bytes(i: u32, value: u32) {
  if (i < launch.len_bytes) {
    let shift = (8u * (i % 4u));
    atomicAnd(&bytes[i / 4u], u32(~(0xffu << shift)));
    atomicOr(&bytes[i / 4u], u32((value) << shift));
  }
}

@compute @workgroup_size(16, 1, 1)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) wg: vec3<u32>) {
  let lid = vec3<u32>(lane, 0u, 0u);
  let gid = wg * vec3<u32>(8u, 1u, 1u) + lid;
  if (lane == 0u) {
    atomicStore(&votes_1[0], 0u);
  }
  workgroupBarrier();
  hidden_zero = launch.zero & wg.x;
  var on: bool;
  var pass_1: u32;
  var live: bool;
  var on_1: bool;
  var chosen: bool;
  var on_2: bool;
  var before: u32;
  var before_1: u32;
  var before_2: bool;
  var met: u32;
  on = lane < 8u;
  if (on) {
    if (gid.x >= launch.len_data) {
      on = false;
    }
  }
  pass_1 = 0u;
  live = on;
  loop {
    live = live && pass_1 < 3u;
    if (!any_active(live, lane)) {
      break;
    }
    on_1 = live;
    if (on_1) {
      let t = get_data(gid.x);
      chosen = t > apart(kept(0.5f));
    }
    on_2 = on_1 && chosen;
    if (any_active(on_2, lane)) {
      if (on_2) {
        before = gid.x;
        before_1 = load_votes(gid.x);
        let t_1 = load_data(pass_1);
        let t_2 = get_data(gid.x);
        before_2 = t_1 < apart(t_2);
      }
      met = ballot(on_2 && before_2, lane);
      if (on_2) {
        let t_3 = before_1 + met;
        store_votes(before, t_3);
        if (pass_1 == 1u) {
          on_1 = false;
          on_2 = false;
        }
        if (on_2) {
          let t_4 = (pass_1) & 0xffu;
          store_bytes(gid.x, t_4);
        }
      }
    }
    if (live) {
      pass_1++;
    }
  }
}

// saxpy

struct Launch {
  grid: vec3<u32>,
  groups: u32,
  zero: u32,
  len_x: u32,
  len_y: u32,
}

@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read> a: array<u32>; // f32[1]
@group(0) @binding(2) var<storage, read> x: array<u32>; // f32[]
@group(0) @binding(3) var<storage, read_write> y: array<u32>; // f32[]
var<private> hidden_zero: u32;

fn kept(x: f32) -> f32 {
  return bitcast<f32>(hidden_zero | bitcast<u32>(x));
}

fn bits_of_f32(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  return select(bits, 0x7fc00000u, (bits & 0x7fffffffu) > 0x7f800000u);
}

fn get_a(i: u32) -> f32 {
  return bitcast<f32>(a[i]);
}

fn load_x(i: u32) -> f32 {
  return bitcast<f32>(select(0u, x[i], i < launch.len_x));
}

fn get_y(i: u32) -> f32 {
  return bitcast<f32>(y[i]);
}

fn set_y(i: u32, value: f32) {
  y[i] = bits_of_f32(value);
}

@compute @workgroup_size(64, 1, 1)
fn main(
  @builtin(num_workgroups) launched: vec3<u32>,
  @builtin(workgroup_id) place: vec3<u32>,
  @builtin(local_invocation_id) lid: vec3<u32>,
) {
  let group = place.x + launched.x * (place.y + launched.y * place.z);
  if (group >= launch.groups) {
    return;
  }
  let wg = vec3<u32>(group % launch.grid.x, (group / launch.grid.x) % launch.grid.y, (group / launch.grid.x) / launch.grid.y);
  let gid = wg * vec3<u32>(64u, 1u, 1u) + lid;
  hidden_zero = launch.zero & wg.x;
  let i = gid.x;
  if (i < launch.len_y) {
    let t = get_a(0u);
    let t_1 = load_x(i);
    let t_2 = kept(t * t_1);
    let t_3 = get_y(i);
    let t_4 = kept(t_2 + t_3);
    set_y(i, t_4);
  }
}

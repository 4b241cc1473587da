#pragma OPENCL FP_CONTRACT OFF

kernel void collatz(global uint *out) {
  uint n = get_global_id(0) + 1, steps = 0;
  while (n != 1) {
    n = n & 1 ? n * 3 + 1 : n >> 1;
    steps++;
  }
  out[get_global_id(0)] = steps;
}

kernel void mandelbrot(global uint *out) {
  uint i = get_global_id(0), k = 0;
  float x0 = (float)(i % 2048) * 0.00146484375f - 2.0f, y0 = (float)(i / 2048) * 0.00146484375f - 1.5f;
  float x = 0, y = 0;
  while (k < 100 && x * x + y * y <= 4.0f) {
    float t = x * x - y * y + x0;
    y = 2.0f * x * y + y0;
    x = t;
    k++;
  }
  out[i] = k;
}

kernel void count_primes(global const uint *limit, global uint *out) {
  uint n = get_global_id(0);
  bool prime = n > 1 && n < limit[0];
  for (uint d = 2; prime && d * d <= n; d++)
    if (n % d == 0) prime = false;
  if (prime) atomic_inc(out);
}

kernel void nbody(global const float *px, global const float *py, global const float *pz, global float *out) {
  uint i = get_global_id(0);
  float x = px[i], y = py[i], z = pz[i], force = 0;
  for (uint j = 0; j < get_global_size(0); j++) {
    float dx = px[j] - x, dy = py[j] - y, dz = pz[j] - z;
    float d = dx * dx + dy * dy + dz * dz + 0.01f;
    force += dx / (d * sqrt(d));
  }
  out[i] = force;
}

kernel void lcs_diagonal(global const uchar *a, global const uchar *b, global uint *table, uint n, uint m, uint k,
                         uint first) {
  uint i = first + get_global_id(0);
  if (i >= n || i > k) return;
  uint before = (k + 2) % 3 * (n + 1), older = (k + 1) % 3 * (n + 1);
  uint left = k > i ? table[before + i + 1] : 0, corner = k > i ? table[older + i] : 0;
  table[k % 3 * (n + 1) + i + 1] = a[i] == b[m - 1 - k + i] ? corner + 1 : max(left, table[before + i]);
}

kernel void saxpy(global const float *x, global const float *y, global float *out) {
  uint i = get_global_id(0);
  out[i] = x[i] * 2.5f + y[i];
}

kernel void stencil(global const float *now, global float *out) {
  uint x = get_global_id(0), y = get_global_id(1), at = y * 4096 + x;
  float here = now[at];
  if (x > 0 && x < 4095 && y > 0 && y < 4095)
    here += 0.1f * (now[at - 1] + now[at + 1] + now[at - 4096] + now[at + 4096] - 4.0f * here);
  out[at] = here;
}

kernel void transpose(global const float *from, global float *to) {
  local float tile[32][33];
  uint x = get_local_id(0), y = get_local_id(1);
  tile[y][x] = from[get_global_id(1) * 4096 + get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  to[(get_group_id(0) * 32 + y) * 4096 + get_group_id(1) * 32 + x] = tile[x][y];
}

kernel void histogram(global const uchar *data, global uint *out) {
  local uint bins[256];
  bins[get_local_id(0)] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint k = 0; k < 256; k++)
    atomic_inc(&bins[data[(get_group_id(0) * 256 + k) * 256 + get_local_id(0)]]);
  barrier(CLK_LOCAL_MEM_FENCE);
  atomic_add(&out[get_local_id(0)], bins[get_local_id(0)]);
}

kernel void empty(global uint *x) { x[get_global_id(0)] += 1; }

kernel void tripled(global uint *x) { x[get_global_id(0)] *= 3; }

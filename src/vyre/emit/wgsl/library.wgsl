// Functions for operations that WGSL lacks or does not define exactly. A kernel contains the functions that it calls.
// They select between values instead of branching, because shader compilers are slow on branches.
// 64-bit integers are pairs of words, low word first. f16 and bf16 values are represented exactly as f32.

// The identity, opaque to compilers; applying it twice is the same as applying it once.
fn kept(x: f32) -> f32 {
  return bitcast<f32>(hidden_zero | bitcast<u32>(x));
}

// The identity, opaque to compilers, and not provably equal to the result of kept.
fn apart(x: f32) -> f32 {
  return bitcast<f32>(hidden_zero + bitcast<u32>(x));
}

fn negated(x: f32) -> f32 {
  return bitcast<f32>((hidden_zero | 0x80000000u) ^ bitcast<u32>(x));
}

fn bits_of_f32(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  return select(bits, 0x7fc00000u, (bits & 0x7fffffffu) > 0x7f800000u);
}

fn is_nan_f32(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

// An integer with the order of the floats, -0 below +0.
fn order_of_f32(x: f32) -> i32 {
  let bits = bitcast<i32>(x);
  return bits ^ ((bits >> 31u) & 0x7fffffffi);
}

fn min_f32(a: f32, b: f32) -> f32 {
  let lesser = select(b, a, order_of_f32(a) < order_of_f32(b));
  return select(select(lesser, b, is_nan_f32(a)), a, is_nan_f32(b));
}

fn max_f32(a: f32, b: f32) -> f32 {
  let greater = select(b, a, order_of_f32(a) > order_of_f32(b));
  return select(select(greater, b, is_nan_f32(a)), a, is_nan_f32(b));
}

fn sign_f32(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let is_number = (bits & 0x7fffffffu) - 1u < 0x7f800000u;
  return bitcast<f32>(select(bits, (bits & 0x80000000u) | 0x3f800000u, is_number));
}

// A significand below 2**24 with its top bit at bit 23, and the exponent of its last bit, from an f32 that is not zero.
fn parts_of_f32(bits: u32) -> vec2<u32> {
  let fraction = bits & 0x7fffffu;
  let exponent = (bits >> 23u) & 0xffu;
  let shift = (countLeadingZeros(fraction) - 8u) & 31u;
  let small = vec2<u32>(fraction << shift, 0u - 149u - shift);
  return select(vec2<u32>(fraction | 0x800000u, exponent - 150u), small, exponent == 0u);
}

fn mod_f32(a: f32, b: f32) -> f32 {
  let sign = bitcast<u32>(a) & 0x80000000u;
  let whole = bitcast<u32>(a) & 0x7fffffffu;
  let divisor = bitcast<u32>(b) & 0x7fffffffu;
  let is_number = whole < 0x7f800000u && divisor <= 0x7f800000u && divisor != 0u;
  let is_less = whole < divisor;
  let parts = parts_of_f32(whole);
  let by = parts_of_f32(divisor);
  var rest = parts.x;
  var left = select(0u, parts.y - by.y, is_number && !is_less);
  rest = select(rest, rest - by.x, rest >= by.x);
  while (left != 0u) {
    rest = rest << 1u;
    rest = select(rest, rest - by.x, rest >= by.x);
    left = left - 1u;
  }
  overrun(left != 0u);
  let shift = (countLeadingZeros(rest) - 8u) & 31u;
  let exponent = i32(by.y) + 150i - i32(shift);
  let top = rest << shift;
  let small = top >> (u32(1i - exponent) & 31u);
  let found = select(select(small, (top & 0x7fffffu) | (u32(exponent) << 23u), exponent > 0i), 0u, rest == 0u);
  return bitcast<f32>(sign | select(select(found, whole, is_less), 0x7fc00000u, !is_number));
}

// The f32 nearest to significand * 2**exponent, as bits; the last bit of the significand may be sticky.
fn nearest_f32(significand: vec2<u32>, exponent: i32) -> u32 {
  let zeros = clz_u64(significand).x;
  let biased = exponent + 190i - i32(zeros);
  let top = jam_u64(shl_u64(significand, zeros), u32(max(1i - biased, 0i)));
  let whole = top.y >> 8u;
  let rest = (top.y & 0x7fu) | top.x | (whole & 1u);
  let up = u32((top.y & 0x80u) != 0u && rest != 0u);
  let bits = (u32(max(biased - 1i, 0i)) << 23u) + whole + up;
  return select(select(bits, 0x7f800000u, biased >= 255i), 0u, (significand.x | significand.y) == 0u);
}

// A right shift with a sticky last bit.
fn jam_u64(a: vec2<u32>, amount: u32) -> vec2<u32> {
  let found = shr_u64(a, amount);
  let back = shl_u64(found, amount);
  let jammed = vec2<u32>(found.x | u32(back.x != a.x || back.y != a.y), found.y);
  return select(jammed, vec2<u32>(u32((a.x | a.y) != 0u), 0u), amount > 63u);
}

fn fma_f32(a: f32, b: f32, c: f32) -> f32 {
  let bits_a = bitcast<u32>(a) & 0x7fffffffu;
  let bits_b = bitcast<u32>(b) & 0x7fffffffu;
  let bits_c = bitcast<u32>(c) & 0x7fffffffu;
  let parts_a = parts_of_f32(bits_a);
  let parts_b = parts_of_f32(bits_b);
  let parts_c = parts_of_f32(bits_c);
  let sign = (bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u;
  let sign_c = bitcast<u32>(c) & 0x80000000u;
  let exponent = i32(parts_a.y) + i32(parts_b.y) - 14i;
  let behind = select(i32(parts_c.y) - 38i, exponent, bits_c == 0u);
  let shared_exponent = max(exponent, behind);
  let product = jam_u64(shl_u64(mul_words(parts_a.x, parts_b.x), 14u), u32(shared_exponent - exponent));
  let addend = jam_u64(shl_u64(vec2<u32>(parts_c.x, 0u), 38u), u32(shared_exponent - behind));
  let is_less = lt_u64(product, addend);
  let distance = select(sub_u64(product, addend), sub_u64(addend, product), is_less);
  let total = select(distance, add_u64(product, addend), sign == sign_c);
  let total_sign = select(select(sign, sign_c, is_less), 0u, all(total == vec2<u32>(0u, 0u)));
  let is_number = max(bits_a, max(bits_b, bits_c)) < 0x7f800000u && bits_a != 0u && bits_b != 0u;
  let plain = kept(a * b) + c;
  // An infinity or a NaN is added as it is; a product that is too large for an f32 would hide it.
  let special = select(plain, c, max(bits_a, bits_b) < 0x7f800000u && bits_c >= 0x7f800000u);
  return select(special, bitcast<f32>(total_sign | nearest_f32(total, shared_exponent)), is_number);
}

fn round_f16(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let magnitude = bits & 0x7fffffffu;
  let up = (magnitude + 0xfffu + ((magnitude >> 13u) & 1u)) & 0xffffe000u;
  // Beside a half, an f32 has the last place of the f16 values that are subnormal.
  let small = bitcast<u32>(kept(bitcast<f32>(magnitude) + 0.5f) - 0.5f);
  let near = select(select(up, small, magnitude < 0x38800000u), 0x7f800000u, up >= 0x47800000u);
  return bitcast<f32>((bits & 0x80000000u) | select(near, magnitude, magnitude >= 0x7f800000u));
}

fn bits_of_f16(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let magnitude = bits & 0x7fffffffu;
  let is_small = magnitude < 0x38800000u;
  let small = u32(select(0.0f, bitcast<f32>(magnitude), is_small) * 0x1p+24f);
  let number = select((magnitude - 0x38000000u) >> 13u, small, is_small);
  let found = ((bits >> 16u) & 0x8000u) | select(number, 0x7c00u, magnitude >= 0x7f800000u);
  return select(found, 0x7e00u, magnitude > 0x7f800000u);
}

fn f16_of_bits(bits: u32) -> f32 {
  let magnitude = bits & 0x7fffu;
  let exponent = select(0x38000000u, 0x70000000u, magnitude >= 0x7c00u);
  let small = bitcast<u32>(f32(magnitude) * 0x1p-24f);
  return bitcast<f32>(((bits & 0x8000u) << 16u) | select((magnitude << 13u) + exponent, small, magnitude < 0x400u));
}

fn round_bf16(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let up = (bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u;
  return select(bitcast<f32>(up), x, is_nan_f32(x));
}

// An integer's magnitude as f32, rounded to odd (toward zero, with a sticky last bit), so that rounding the result to
// a shorter type rounds once.
fn odd_f32_of_u64(a: vec2<u32>) -> f32 {
  let zeros = clz_u64(a).x;
  let top = shl_u64(a, zeros);
  let lost = u32(((top.y & 0xffu) | top.x) != 0u);
  let bits = (((189u - zeros) << 23u) + (top.y >> 8u)) | lost;
  return bitcast<f32>(select(bits, 0u, (a.x | a.y) == 0u));
}

fn odd_f32_of_u32(a: u32) -> f32 {
  let zeros = countLeadingZeros(a);
  let top = a << (zeros & 31u);
  let bits = (((157u - zeros) << 23u) + (top >> 8u)) | u32((top & 0xffu) != 0u);
  return bitcast<f32>(select(bits, 0u, a == 0u));
}

fn odd_f32_of_i32(a: i32) -> f32 {
  return bitcast<f32>((u32(a) & 0x80000000u) | bitcast<u32>(odd_f32_of_u32(u32(abs(a)))));
}

fn f32_of_u64(a: vec2<u32>) -> f32 {
  return bitcast<f32>(nearest_f32(a, 0i));
}

fn f32_of_i64(a: vec2<u32>) -> f32 {
  return bitcast<f32>((a.y & 0x80000000u) | nearest_f32(abs_i64(a), 0i));
}

fn odd_f32_of_i64(a: vec2<u32>) -> f32 {
  return bitcast<f32>((a.y & 0x80000000u) | bitcast<u32>(odd_f32_of_u64(abs_i64(a))));
}

fn u32_of_f32(x: f32) -> u32 {
  let is_large = x >= 4294967296.0f;
  let inside = select(0.0f, x, x >= 1.0f && !is_large);
  return select(u32(inside), 0xffffffffu, is_large);
}

fn i32_of_f32(x: f32) -> i32 {
  let is_large = x >= 2147483648.0f;
  let is_small = x < -2147483648.0f;
  let inside = select(x, 0.0f, is_large || is_small || is_nan_f32(x));
  return select(select(i32(inside), 2147483647i, is_large), i32(-2147483648), is_small);
}

fn u64_of_f32(x: f32) -> vec2<u32> {
  let bits = bitcast<u32>(x);
  let significand = vec2<u32>((bits & 0x7fffffu) | 0x800000u, 0u);
  let exponent = i32(bits >> 23u) - 150i;
  let found = select(shr_u64(significand, u32(-exponent)), shl_u64(significand, u32(exponent)), exponent >= 0i);
  let large = select(found, vec2<u32>(0xffffffffu), x >= 18446744073709551616.0f);
  return select(vec2<u32>(0u), large, x >= 1.0f);
}

fn i64_of_f32(x: f32) -> vec2<u32> {
  let magnitude = u64_of_f32(abs(x));
  let sign = bitcast<u32>(x) & 0x80000000u;
  let found = select(magnitude, sub_u64(vec2<u32>(0u), magnitude), sign != 0u);
  return select(found, bound_i64(sign), magnitude.y >= 0x80000000u);
}

// The full product of two words.
fn mul_words(a: u32, b: u32) -> vec2<u32> {
  let low_a = a & 0xffffu;
  let low_b = b & 0xffffu;
  let cross = (a >> 16u) * low_b + ((low_a * low_b) >> 16u);
  let other = low_a * (b >> 16u) + (cross & 0xffffu);
  return vec2<u32>(a * b, (a >> 16u) * (b >> 16u) + (cross >> 16u) + (other >> 16u));
}

fn mul_high_u32(a: u32, b: u32) -> u32 {
  return mul_words(a, b).y;
}

// As unsigned, a negative factor is too large by 2**32: subtract the other factor from the upper half.
fn mul_high_i32(a: i32, b: i32) -> i32 {
  return i32(mul_words(u32(a), u32(b)).y) - select(0i, b, a < 0i) - select(0i, a, b < 0i);
}

fn sat_add_u32(a: u32, b: u32) -> u32 {
  return select(a + b, 0xffffffffu, a + b < a);
}

fn sat_sub_u32(a: u32, b: u32) -> u32 {
  return a - min(a, b);
}

fn sat_mul_u32(a: u32, b: u32) -> u32 {
  let product = mul_words(a, b);
  return select(product.x, 0xffffffffu, product.y != 0u);
}

fn sat_add_i32(a: i32, b: i32) -> i32 {
  let sum = a + b;
  return select(sum, (a >> 31u) ^ 2147483647i, ((a ^ sum) & (b ^ sum)) < 0i);
}

fn sat_sub_i32(a: i32, b: i32) -> i32 {
  let difference = a - b;
  return select(difference, (a >> 31u) ^ 2147483647i, ((a ^ b) & (a ^ difference)) < 0i);
}

fn sat_mul_i32(a: i32, b: i32) -> i32 {
  let low = a * b;
  return select(low, ((a ^ b) >> 31u) ^ 2147483647i, mul_high_i32(a, b) != (low >> 31u));
}

fn add_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + u32(low < a.x));
}

fn sub_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - u32(a.x < b.x));
}

fn mul_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = mul_words(a.x, b.x);
  return vec2<u32>(low.x, low.y + a.x * b.y + a.y * b.x);
}

fn lt_u64(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.y < b.y || (a.y == b.y && a.x < b.x);
}

fn lt_i64(a: vec2<u32>, b: vec2<u32>) -> bool {
  return i32(a.y) < i32(b.y) || (a.y == b.y && a.x < b.x);
}

fn shl_u64(a: vec2<u32>, amount: u32) -> vec2<u32> {
  let by = amount & 31u;
  let low = a.x << by;
  let short = vec2<u32>(low, (a.y << by) | ((a.x >> 1u) >> (31u - by)));
  return select(short, vec2<u32>(0u, low), (amount & 32u) != 0u);
}

fn shr_u64(a: vec2<u32>, amount: u32) -> vec2<u32> {
  let by = amount & 31u;
  let high = a.y >> by;
  let short = vec2<u32>((a.x >> by) | ((a.y << 1u) << (31u - by)), high);
  return select(short, vec2<u32>(high, 0u), (amount & 32u) != 0u);
}

fn shr_i64(a: vec2<u32>, amount: u32) -> vec2<u32> {
  let by = amount & 31u;
  let high = u32(i32(a.y) >> by);
  let short = vec2<u32>((a.x >> by) | ((a.y << 1u) << (31u - by)), high);
  return select(short, vec2<u32>(high, u32(i32(a.y) >> 31u)), (amount & 32u) != 0u);
}

fn rotl_u64(a: vec2<u32>, amount: u32) -> vec2<u32> {
  return shl_u64(a, amount) | shr_u64(a, 0u - amount);
}

fn clz_u64(a: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u), 0u);
}

fn ctz_u64(a: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(select(countTrailingZeros(a.x), 32u + countTrailingZeros(a.y), a.x == 0u), 0u);
}

fn abs_i64(a: vec2<u32>) -> vec2<u32> {
  return select(a, sub_u64(vec2<u32>(0u, 0u), a), a.y >= 0x80000000u);
}

// Correct a quotient digit that may be one too large, and the remainder.
fn mended(digit: vec2<u32>, by_high: u32, by_low: u32, next: u32) -> vec2<u32> {
  let is_large = digit.x >= 0x10000u || digit.x * by_low > ((digit.y << 16u) | next);
  return select(digit, vec2<u32>(digit.x - 1u, digit.y + by_high), is_large && digit.y < 0x10000u);
}

// Quotient and remainder of two words by a word that is greater than the high one, in digits of half a word.
fn divide_words(high: u32, low: u32, by: u32) -> vec2<u32> {
  let zeros = countLeadingZeros(by);
  let whole = shl_u64(vec2<u32>(low, high), zeros);
  let divisor = by << (zeros & 31u);
  let by_high = divisor >> 16u;
  let by_low = divisor & 0xffffu;
  var first = vec2<u32>(whole.y / by_high, whole.y % by_high);
  first = mended(first, by_high, by_low, whole.x >> 16u);
  first = mended(first, by_high, by_low, whole.x >> 16u);
  let middle = (whole.y << 16u) + (whole.x >> 16u) - first.x * divisor;
  var second = vec2<u32>(middle / by_high, middle % by_high);
  second = mended(second, by_high, by_low, whole.x & 0xffffu);
  second = mended(second, by_high, by_low, whole.x & 0xffffu);
  let rest = (middle << 16u) + (whole.x & 0xffffu) - second.x * divisor;
  return vec2<u32>((first.x << 16u) + second.x, rest >> (zeros & 31u));
}

// The quotient and the remainder; x/0 is x and x%0 is 0.
fn divide_u64(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
  let word = max(b.x, 1u);
  let low = divide_words(a.y % word, a.x, word);
  let short = vec4<u32>(low.x, a.y / word, low.y, 0u);
  let zeros = countLeadingZeros(b.y) & 31u;
  let half = shr_u64(a, 1u);
  let guess = divide_words(half.y, half.x, max(shl_u64(b, zeros).y, 0x80000000u)).x;
  let near = shr_u64(shl_u64(vec2<u32>(guess, 0u), zeros), 31u).x;
  let under = near - min(near, 1u);
  let rest = sub_u64(a, mul_u64(vec2<u32>(under, 0u), b));
  let is_under = !lt_u64(rest, b);
  let long = vec4<u32>(under + u32(is_under), 0u, select(rest, sub_u64(rest, b), is_under));
  return select(select(long, short, b.y == 0u), vec4<u32>(a, 0u, 0u), (b.x | b.y) == 0u);
}

fn div_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return divide_u64(a, b).xy;
}

fn mod_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return divide_u64(a, b).zw;
}

fn div_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let quotient = divide_u64(abs_i64(a), abs_i64(b)).xy;
  return select(quotient, sub_u64(vec2<u32>(0u, 0u), quotient), ((a.y ^ b.y) & 0x80000000u) != 0u);
}

fn mod_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let rest = divide_u64(abs_i64(a), abs_i64(b)).zw;
  return select(rest, sub_u64(vec2<u32>(0u, 0u), rest), a.y >= 0x80000000u);
}

fn mul_high_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let cross = add_u64(mul_words(a.y, b.x), vec2<u32>(mul_words(a.x, b.x).y, 0u));
  let other = add_u64(mul_words(a.x, b.y), vec2<u32>(cross.x, 0u));
  return add_u64(mul_words(a.y, b.y), add_u64(vec2<u32>(cross.y, 0u), vec2<u32>(other.y, 0u)));
}

fn mul_high_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let none = vec2<u32>(0u, 0u);
  let upper = sub_u64(mul_high_u64(a, b), select(none, b, a.y >= 0x80000000u));
  return sub_u64(upper, select(none, a, b.y >= 0x80000000u));
}

fn sat_add_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let sum = add_u64(a, b);
  return select(sum, vec2<u32>(0xffffffffu, 0xffffffffu), lt_u64(sum, a));
}

fn sat_sub_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(sub_u64(a, b), vec2<u32>(0u, 0u), lt_u64(a, b));
}

fn sat_mul_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(mul_u64(a, b), vec2<u32>(0xffffffffu, 0xffffffffu), any(mul_high_u64(a, b) != vec2<u32>(0u, 0u)));
}

// The greatest i64, or the least if the sign is negative.
fn bound_i64(sign: u32) -> vec2<u32> {
  return vec2<u32>(0xffffffffu, 0x7fffffffu) ^ vec2<u32>(u32(i32(sign) >> 31u));
}

fn sat_add_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let sum = add_u64(a, b);
  return select(sum, bound_i64(a.y), ((a.y ^ sum.y) & (b.y ^ sum.y)) >= 0x80000000u);
}

fn sat_sub_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let difference = sub_u64(a, b);
  return select(difference, bound_i64(a.y), ((a.y ^ b.y) & (a.y ^ difference.y)) >= 0x80000000u);
}

fn sat_mul_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = mul_u64(a, b);
  let extension = vec2<u32>(u32(i32(low.y) >> 31u));
  return select(low, bound_i64(a.y ^ b.y), any(mul_high_i64(a, b) != extension));
}

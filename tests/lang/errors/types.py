"""Kernels that mix types, or use operators that a type does not have."""

import numpy as np

import vyre
from vyre import f32, f64, i32, u8, u32


@vyre.kernel
def unsigned_and_signed(x: vyre.In[i32], y: vyre.InOut[i32]):
    i = vyre.gid()
    y[i] = x[i] + i


@vyre.kernel
def integer_and_float(a: f32, y: vyre.InOut[f32]):
    i = vyre.gid()
    y[i] = a * i


@vyre.kernel
def float_widths(a: f64, y: vyre.InOut[f32]):
    y[0] = y[0] * a


@vyre.kernel
def a_number_that_started_as_u32(x: vyre.In[f32], y: vyre.InOut[f32]):
    total = 0
    for k in range(len(x)):
        total += x[k]
    y[0] = total


@vyre.kernel
def another_type_for_a_name(y: vyre.InOut[u32]):
    value = 1.5
    value = y[0]
    y[0] = value


@vyre.kernel
def an_annotation_that_differs(x: vyre.In[u32], y: vyre.InOut[f32]):
    value: f32 = x[0]
    y[0] = value


@vyre.kernel
def a_fraction_beside_an_integer(y: vyre.InOut[u32]):
    y[0] = y[0] * 0.5


@vyre.kernel
def a_number_too_large(y: vyre.InOut[u8]):
    y[0] = y[0] + 300


@vyre.kernel
def a_negative_unsigned(y: vyre.InOut[u32]):
    y[0] = -1


@vyre.kernel
def a_float_too_large(y: vyre.InOut[f32]):
    y[0] = 1e300


@vyre.kernel
def division_of_integers(y: vyre.InOut[u32]):
    y[0] = y[0] / 2


@vyre.kernel
def whole_division_of_floats(y: vyre.InOut[f32]):
    y[0] = y[0] // 2.0


@vyre.kernel
def a_power(y: vyre.InOut[f32]):
    y[0] = y[0] ** 2


@vyre.kernel
def a_matrix_product(y: vyre.InOut[f32]):
    y[0] = y[0] @ y[1]


@vyre.kernel
def a_condition_that_is_no_bool(y: vyre.InOut[u32]):
    if y[0]:
        y[0] = 1


@vyre.kernel
def not_of_a_number(y: vyre.InOut[u32]):
    if not y[0]:
        y[0] = 1


@vyre.kernel
def shifts_of_floats(y: vyre.InOut[f32]):
    y[0] = y[0] << 1.0


@vyre.kernel
def root_of_an_integer(y: vyre.InOut[u32]):
    y[0] = vyre.sqrt(y[0])


@vyre.kernel
def arithmetic_of_bools(y: vyre.InOut[u32]):
    flag = y[0] > 1
    y[0] = u32(flag + flag)


@vyre.kernel
def arms_that_differ(y: vyre.InOut[u32]):
    y[0] = y[0] if y[1] > 2 else 0.5


@vyre.kernel
def a_signed_index(x: vyre.In[i32], y: vyre.InOut[i32]):
    y[x[0]] = 1


@vyre.kernel
def an_index_below_zero(y: vyre.InOut[i32]):
    y[-1] = 1


@vyre.kernel
def a_store_of_another_type(x: vyre.In[f64], y: vyre.InOut[f32]):
    y[0] = x[0]


@vyre.kernel
def int_without_a_width(y: vyre.InOut[i32], x: vyre.In[f32]):
    y[0] = int(x[0])


@vyre.kernel
def bits_of_another_width(y: vyre.InOut[u32], x: vyre.In[f64]):
    y[0] = vyre.bitcast(u32, x[0])


@vyre.kernel
def a_range_of_floats(n: f32, y: vyre.InOut[u32]):
    for k in range(n):
        y[0] = 1


@vyre.kernel
def an_atomic_on_floats(y: vyre.InOut[f32]):
    vyre.atomic_add(y, 0, 1.0)


@vyre.kernel
def zero_as_a_divisor(y: vyre.InOut[f32]):
    y[0] = 1 / 0


@vyre.kernel
def complement_of_a_number(y: vyre.InOut[u32]):
    y[0] = ~1


@vyre.kernel
def one_of_two_numbers_that_does_not_fit(y: vyre.InOut[u8]):
    y[0] = 3 if y[0] > 1 else 300


@vyre.kernel
def one_of_two_numbers_as_a_condition(y: vyre.InOut[u32]):
    if 1 if y[0] > 1 else 0:
        y[0] = 1


@vyre.kernel
def a_root_as_a_power(y: vyre.InOut[f32]):
    y[0] = y[0] ** 0.5


@vyre.kernel
def a_type_of_numpy(y: vyre.InOut[f32]):
    y[0] = np.float32(y[0])

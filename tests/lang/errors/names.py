"""Kernels with names that mean nothing, or something that a kernel cannot use."""

import math

import numpy as np

import vyre
from vyre import f32, u32

TABLE = [1.0, 2.0]
WEIGHTS = np.ones(4, np.float32)
OPTIONS = {"a": 1}
LABEL = object()


def plain(value):
    return value


@vyre.function
def endless(value):
    return endless(value)


@vyre.function
def sometimes(value):
    if value > 1.0:
        return value


@vyre.function
def two_kinds(value):
    if value > 1.0:
        return value
    return vyre.u32(1)


@vyre.function
def needs_signed(value):
    return value + vyre.i32(1)


@vyre.kernel
def undefined(y: vyre.InOut[f32]):
    y[0] = vlaue


@vyre.kernel
def misspelled(value: f32, y: vyre.InOut[f32]):
    y[0] = valeu


@vyre.kernel
def misspelled_function(y: vyre.InOut[f32]):
    y[0] = vyre.sqr(y[0])


@vyre.kernel
def perhaps_without_a_value(y: vyre.InOut[f32]):
    if y[0] > 1.0:
        value = 2.0
    y[0] = value


@vyre.kernel
def only_after_a_loop(y: vyre.InOut[u32]):
    for k in range(len(y)):
        last = k
    y[0] = last


@vyre.kernel
def before_its_value(y: vyre.InOut[u32]):
    for k in range(3):
        if k > 0:
            y[k] = last
        last = k


@vyre.kernel
def a_global_list(y: vyre.InOut[f32]):
    y[0] = TABLE[0]


@vyre.kernel
def a_global_array(y: vyre.InOut[f32]):
    y[0] = WEIGHTS[0]


@vyre.kernel
def a_global_dict(y: vyre.InOut[f32]):
    y[0] = OPTIONS["a"]


@vyre.kernel
def a_global_object(y: vyre.InOut[f32]):
    y[0] = LABEL


@vyre.kernel
def a_plain_function(y: vyre.InOut[f32]):
    y[0] = plain(y[0])


@vyre.kernel
def a_function_of_math(y: vyre.InOut[f32]):
    y[0] = math.sqrt(y[0])


@vyre.kernel
def another_kernel(y: vyre.InOut[f32]):
    undefined(y)


@vyre.kernel
def recursion(y: vyre.InOut[f32]):
    y[0] = endless(y[0])


@vyre.kernel
def a_missing_return(y: vyre.InOut[f32]):
    y[0] = sometimes(y[0])


@vyre.kernel
def returns_of_two_types(x: vyre.In[vyre.f64], y: vyre.InOut[vyre.f64]):
    y[0] = two_kinds(x[0])


@vyre.kernel
def an_error_inside_a_function(y: vyre.InOut[u32]):
    y[0] = needs_signed(y[0])


@vyre.kernel
def an_array_as_a_number(x: vyre.In[f32], y: vyre.InOut[f32]):
    y[0] = x + 1.0


@vyre.kernel
def an_attribute_of_an_array(y: vyre.InOut[u32]):
    y[0] = y.size


@vyre.kernel
def an_array_that_is_assigned(y: vyre.InOut[u32]):
    y = 3


@vyre.kernel
def a_name_for_two_arrays(x: vyre.In[u32], y: vyre.InOut[u32]):
    other = x
    if y[0] > 1:
        other = y
    y[0] = other[0]


@vyre.kernel
def a_call_of_a_number(y: vyre.InOut[u32]):
    y[0] = y[0](1)


class Settings:
    width = 4


@vyre.kernel
def a_class_as_a_function(y: vyre.InOut[f32]):
    y[0] = Settings(3)


@vyre.kernel
def a_name_that_a_class_has_not(y: vyre.InOut[f32]):
    y[0] = Settings.widht


class Method:
    @vyre.kernel
    def kernel(self, y: vyre.InOut[f32]):
        y[0] = 1.0


a_method = Method.kernel

"""Kernels whose parameters say too little, or what there is not."""

import vyre
from vyre import f32, u32


@vyre.kernel
def no_type(x, y: vyre.InOut[f32]):
    y[0] = x


@vyre.kernel
def a_python_type(a: float, y: vyre.InOut[f32]):
    y[0] = a


@vyre.kernel
def an_array_of_nothing(y: vyre.InOut):
    y[0] = 1


@vyre.kernel
def a_list_of_numbers(x: list, y: vyre.InOut[f32]):
    y[0] = 1.0


@vyre.kernel
def any_number_of_arrays(*arrays: vyre.InOut[f32]):
    pass


@vyre.kernel
def a_named_parameter(y: vyre.InOut[f32], *, scale: f32):
    y[0] = scale


@vyre.kernel
def an_unknown_annotation(y: "vyre.InOut[f33]"):
    y[0] = 1.0


@vyre.kernel
def a_text_with_a_wrong_rank(y: "vyre.InOut[u32, 0]"):
    y[0] = 1


@vyre.kernel
def an_element_type_of_python(y: "vyre.InOut[int]"):
    y[0] = 1

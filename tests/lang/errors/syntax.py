"""Kernels with parts of Python that the language does not have."""

import vyre
from vyre import f32, u32


@vyre.kernel
def with_statement(y: vyre.InOut[f32]):
    with open("x"):
        y[0] = 1.0


@vyre.kernel
def try_statement(y: vyre.InOut[f32]):
    try:
        y[0] = 1.0
    except ValueError:
        pass


@vyre.kernel
def a_list(y: vyre.InOut[f32]):
    weights = [1.0, 2.0]
    y[0] = weights[0]


@vyre.kernel
def a_comprehension(y: vyre.InOut[f32]):
    y[0] = sum(y[k] for k in range(3))


@vyre.kernel
def a_lambda(y: vyre.InOut[f32]):
    double = lambda v: 2.0 * v  # noqa: E731
    y[0] = double(y[0])


@vyre.kernel
def an_inner_function(y: vyre.InOut[f32]):
    def double(v):
        return 2.0 * v

    y[0] = double(y[0])


@vyre.kernel
def an_assert(y: vyre.InOut[f32]):
    assert y[0] > 0.0


@vyre.kernel
def a_print(y: vyre.InOut[f32]):
    print(y[0])


@vyre.kernel
def a_walrus(y: vyre.InOut[f32]):
    if (n := len(y)) > 3:
        y[0] = f32(n)


@vyre.kernel
def a_string(y: vyre.InOut[f32]):
    y[0] = f"{1}"


@vyre.kernel
def an_is(y: vyre.InOut[u32]):
    if y[0] is y[1]:
        y[0] = 1


@vyre.kernel
def an_in(y: vyre.InOut[u32]):
    if y[0] in (1, 2):
        y[0] = 1


@vyre.kernel
def a_loop_else(y: vyre.InOut[u32]):
    for k in range(3):
        y[k] = k
    else:
        y[0] = 1


@vyre.kernel
def a_match(y: vyre.InOut[u32]):
    match y[0]:
        case 0:
            y[0] = 1


@vyre.kernel
def a_raise(y: vyre.InOut[u32]):
    raise ValueError(y[0])


@vyre.kernel
def a_global(y: vyre.InOut[u32]):
    global counter
    counter = y[0]


@vyre.kernel
def a_slice(y: vyre.InOut[u32]):
    y[0:3] = 0


@vyre.kernel
def a_slice_read(x: vyre.In[u32], y: vyre.InOut[u32]):
    y[0] = x[1:2]


@vyre.kernel
def none(y: vyre.InOut[u32]):
    y[0] = None


@vyre.kernel
def a_complex_number(y: vyre.InOut[f32]):
    y[0] = 1j


@vyre.kernel
def an_import(y: vyre.InOut[f32]):
    import math

    y[0] = math.pi


@vyre.kernel
def a_deletion(y: vyre.InOut[f32]):
    value = y[0]
    del value


@vyre.kernel
def starred(y: vyre.InOut[f32]):
    first, *rest = y[0], y[1], y[2]

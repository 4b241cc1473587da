"""Kernels whose control flow, memory or calls break a rule."""

import vyre
from vyre import f32, u32


@vyre.kernel
def a_divergent_barrier(y: vyre.InOut[u32]):
    i = vyre.gid()
    if i < len(y):
        y[i] = 1
        vyre.barrier()


@vyre.kernel
def a_partial_grid_sync(y: vyre.InOut[u32]):
    if vyre.wg() == 0:
        vyre.grid_sync()


@vyre.kernel
def a_returned_value(y: vyre.InOut[u32]):
    return y[0]


@vyre.kernel
def a_loop_over_an_array(x: vyre.In[u32], y: vyre.InOut[u32]):
    for value in x:
        y[0] = value


@vyre.kernel
def a_step_of_zero(y: vyre.InOut[u32]):
    for k in range(0, 10, 0):
        y[k] = 1


@vyre.kernel
def a_step_from_an_array(y: vyre.InOut[u32]):
    for k in range(0, 10, y[0]):
        y[k] = 1


@vyre.kernel
def a_range_below_zero(n: u32, y: vyre.InOut[u32]):
    for k in range(n - 1, -1, -1):
        y[k] = 1


@vyre.kernel
def too_many_bounds(y: vyre.InOut[u32]):
    for k in range(1, 2, 3, 4):
        y[k] = 1


@vyre.kernel
def a_range_alone(y: vyre.InOut[u32]):
    y[0] = range(3)


@vyre.kernel
def two_loop_names(y: vyre.InOut[u32]):
    for a, b in range(3):
        y[a] = b


@vyre.kernel
def too_few_indices(y: vyre.InOut[u32, 2]):
    y[0] = 1


@vyre.kernel
def too_many_indices(y: vyre.InOut[u32]):
    y[0, 1] = 1


@vyre.kernel
def a_write_to_an_input(x: vyre.In[u32]):
    x[0] = 1


@vyre.kernel
def a_read_of_an_output(y: vyre.Out[u32]):
    y[0] += 1


@vyre.kernel
def an_atomic_on_an_input(x: vyre.In[u32]):
    vyre.atomic_add(x, 0, 1)


@vyre.kernel
def an_atomic_on_a_number(y: vyre.InOut[u32]):
    vyre.atomic_add(y[0], 0, 1)


@vyre.kernel
def too_few_arguments(y: vyre.InOut[u32]):
    y[0] = vyre.select(y[0] > 1, 2)


@vyre.kernel
def too_many_arguments(y: vyre.InOut[f32]):
    y[0] = vyre.sqrt(y[0], y[1])


@vyre.kernel
def a_wrong_keyword(y: vyre.InOut[u32]):
    y[0] = vyre.gid(axes=1)


@vyre.kernel
def a_fourth_axis(y: vyre.InOut[u32]):
    y[0] = vyre.gid(3)


@vyre.kernel
def a_memory_order(y: vyre.InOut[u32]):
    vyre.atomic_add(y, 0, 1, order="strong")


@vyre.kernel
def a_reduction(y: vyre.InOut[u32]):
    y[0] = vyre.subgroup_reduce("mean", y[0])


@vyre.kernel
def shared_memory_of_any_size(y: vyre.InOut[u32]):
    tile = vyre.shared(u32, len(y))
    y[0] = tile[0]


@vyre.kernel
def a_value_that_goes_nowhere(y: vyre.InOut[u32]):
    y[0] == 1  # noqa: B015


@vyre.kernel
def too_many_names(y: vyre.InOut[u32]):
    a, b, c = y[0], y[1]


@vyre.kernel
def a_tuple_in_a_name(y: vyre.InOut[u32]):
    pair = y[0], y[1]
    y[0] = pair[1]


@vyre.kernel
def a_type_without_a_value(y: vyre.InOut[u32]):
    value: u32
    y[0] = 1


@vyre.kernel
def a_barrier_as_a_value(y: vyre.InOut[u32]):
    y[0] = vyre.barrier()


@vyre.kernel
def code_behind_a_break(y: vyre.InOut[u32]):
    while True:
        if vyre.lid() > 3:
            break
        vyre.barrier()

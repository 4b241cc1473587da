"""Kernels that ask the host, move bytes, combine ranks or size their grid in ways that are not there."""

import vyre
from vyre import f32, u8, u32


@vyre.kernel
def a_tag_that_is_no_text(y: vyre.InOut[u32]):
    vyre.trap(y[0], 3)


@vyre.kernel
def an_address_that_is_no_u32(y: vyre.InOut[f32]):
    vyre.trap(y[0], "page")


@vyre.kernel
def a_resume_that_some_reach(y: vyre.InOut[u32]):
    if vyre.gid() == 0:
        vyre.resume("page")


@vyre.kernel
def a_wait_for_nothing(y: vyre.InOut[u32]):
    vyre.async_wait("in")


@vyre.kernel
def a_transfer_nobody_waits_for(x: vyre.In[u32], y: vyre.InOut[u32]):
    vyre.async_load(x, y, 0, 16, "in")


@vyre.kernel
def a_transfer_into_what_is_read(x: vyre.In[u32], y: vyre.In[u32]):
    vyre.async_load(x, y, 0, 16, "in")


@vyre.kernel
def a_transfer_out_of_what_is_written(x: vyre.Out[u32], y: vyre.InOut[u32]):
    vyre.copy_bytes(x, y, 0, 0, 16)


@vyre.kernel
def a_transfer_of_an_element(x: vyre.In[u32], y: vyre.InOut[u32]):
    vyre.copy_bytes(x[0], y, 0, 0, 16)


@vyre.kernel
def no_reduction(y: vyre.InOut[u32]):
    vyre.all_reduce("mean", y, "all")


@vyre.kernel
def a_root_of_the_moment(y: vyre.InOut[u32]):
    vyre.broadcast(y, y[0], "all")


@vyre.kernel
def two_types_of_ranks(x: vyre.In[f32], y: vyre.InOut[u32]):
    vyre.all_gather(x, y, "all")


@vyre.kernel
def a_grid_that_comes_too_late(counts: vyre.In[u32], y: vyre.InOut[u32]):
    y[0] = 1
    vyre.indirect_dispatch(counts)


@vyre.kernel
def a_grid_of_bytes(counts: vyre.In[u8], y: vyre.InOut[u32]):
    vyre.indirect_dispatch(counts)


@vyre.kernel
def an_operation_of_nobody(y: vyre.InOut[u32]):
    y[0] = vyre.call("nobody.knows", y[0])


@vyre.kernel
def a_value_of_a_statement(y: vyre.InOut[u32]):
    y[0] = vyre.resume("page")


@vyre.kernel
def a_declared_size_of_zero(y: "vyre.InOut[u32, (0, 3)]"):
    y[0, 0] = 1


@vyre.kernel
def an_extension_of_nobody(y: vyre.InOut[u32]):
    vyre.opaque("nobody.knows", b"")


@vyre.kernel
def a_payload_of_text(y: vyre.InOut[u32]):
    y[0] = vyre.opaque("nobody.knows", "text", u32)

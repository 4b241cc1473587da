"""What an explanation says of a kernel's innermost loop."""

from __future__ import annotations

from cpu_support import backend
from vyre.backends.cpu.instructions import counted, hot_loop
from vyre.ir import parse

LISTING = """
other:
	callq	kernel
.Lfunc_end0:
kernel:
	.cfi_startproc
	movq	(%rdi), %rax
.LBB1_1:                                # %outer
	vpbroadcastd	%eax, %zmm1
.LBB1_2:
	vpgatherdd	(%rax,%zmm1,4), %zmm0 {%k1}
	vdivps	%zmm0, %zmm2, %zmm3
	vdivss	%xmm0, %xmm2, %xmm3
	je	.LBB1_4
.LBB1_3:
	jne	.LBB1_2
	jne	.LBB1_1
	retq
.LBB1_4:
	callq	helper
	jmp	.LBB1_3
.Lfunc_end1:
"""


def test_the_innermost_loop_is_counted() -> None:
    loop = hot_loop(LISTING)
    assert [line.split()[0] for line in loop] == ["vpgatherdd", "vdivps", "vdivss", "je", "jne"]
    assert counted(loop) == {
        "instructions": 5, "vector": 2, "masked": 1, "gather": 1, "division or root": 2, "scalar": 3,
    }  # fmt: skip


def test_code_without_a_loop_is_counted_as_a_whole() -> None:
    assert counted(hot_loop("\nkernel:\n\tmovl\t$1, %eax\n\tretq\n.Lfunc_end0:\n")) == {"instructions": 2, "scalar": 2}


def test_an_explanation_names_the_divisions_of_a_loop() -> None:
    program = parse("""
    program roots(workgroup 64) {
      buffer 0 x: f32[] read
      buffer 1 out: f32[] output
      let sum = 0.0
      for k in 0 .. 5000 { sum = sum + x[gid.x] / (f32(k) + x[k]) }
      out[gid.x] = sum
    }
    """)
    line = next(line for line in backend().compile(program).explain().splitlines() if "innermost loop" in line)
    assert "vector" in line
    assert "1 division or root" in line

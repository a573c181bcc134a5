"""The operators in C++ and in Python: the same bits, the same errors, the same graphs."""

import itertools
import subprocess
import sys

import pytest
import torch

import convgrad
import convgrad.torch as ct
from convgrad.torch import _kernels, _native, _ops

# The kernels in Python, beside those in C++.
_library = _ops.define("convgrad_python")
_kernels.register("convgrad_python", _library)
NATIVE, PYTHON = torch.ops.convgrad, torch.ops.convgrad_python

# (data, weight, geometry): stride, pads_begin, pads_end, dilation, transposed, output_padding, groups
CASES = [
    ((2, 4, 9), (6, 2, 3), ([2], [1], [1], [1], False, [0], 2)),
    ((2, 4, 5), (4, 3, 3), ([2], [0], [0], [1], True, [1], 2)),
    ((3, 5, 8, 7), (4, 5, 3, 3), ([1, 1], [1, 0], [1, 2], [1, 1], False, [0, 0], 1)),
    ((3, 6, 8, 7), (6, 1, 3, 3), ([1, 2], [1, 1], [1, 1], [1, 1], False, [0, 0], 6)),
    ((1, 6, 3, 4), (6, 3, 2, 3), ([2, 1], [1, 0], [1, 0], [1, 1], True, [1, 0], 1)),
    ((1, 2, 4, 5, 4), (3, 2, 2, 2, 2), ([1, 2, 1], [0] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1)),
    ((0, 4, 6, 6), (4, 4, 3, 3), ([1, 1], [1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
]
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def tensors(data, weight, geometry, dtype=torch.float32, last=False, requires_grad=False):
    outs = weight[1] * geometry[6] if geometry[4] else weight[0]
    made = [torch.randn(s).to(dtype) for s in (data, weight, (outs,))]
    if last:
        made[:2] = [
            t.to(memory_format=FORMATS.get(t.dim(), torch.preserve_format)) for t in made[:2]
        ]
    return [t.requires_grad_(requires_grad) for t in made]


def same(ours, theirs):
    assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
    assert torch.equal(ours, theirs)


def test_is_built():
    assert ct.native_operators and _native.path().exists()
    assert ct.build_operators() == _native.path()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("data, weight, geometry", CASES)
def test_same_bits(data, weight, geometry, dtype, last):
    x, w, b = tensors(data, weight, geometry, dtype, last)
    for bias in (b, None):
        dst = NATIVE.forward(x, w, bias, *geometry)
        same(dst, PYTHON.forward(x, w, bias, *geometry))
    for grad in (torch.randn_like(dst), torch.ones(1, dtype=dtype).expand(dst.shape)):
        for wanted in itertools.product([False, True], repeat=3):
            arguments = (grad, x, w, *geometry, list(wanted))
            for ours, theirs in zip(NATIVE.backward(*arguments), PYTHON.backward(*arguments)):
                same(ours, theirs)


@pytest.mark.parametrize("data, weight, geometry", CASES)
def test_same_derivatives(data, weight, geometry):
    found = []
    inputs = tensors(data, weight, geometry, requires_grad=True)
    for ops in (NATIVE, PYTHON):
        out = ops.forward(*inputs, *geometry)
        first = torch.autograd.grad(out.square().sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), inputs)
        found.append((out, *first, *second))
    for ours, theirs in zip(*found):
        same(ours, theirs)


def test_same_under_autocast():
    data, weight, geometry = CASES[2]
    inputs = tensors(data, weight, geometry, requires_grad=True)
    found = []
    for ops in (NATIVE, PYTHON):
        with torch.autocast("cpu", torch.bfloat16):
            out = ops.forward(*inputs, *geometry)
        found.append((out, *torch.autograd.grad(out.float().square().sum(), inputs)))
    assert found[0][0].dtype == torch.bfloat16
    for ours, theirs in zip(*found):
        same(ours, theirs)


def test_negated_and_expanded_tensors():
    geometry = ([1, 1], [0, 0], [0, 0], [1, 1], False, [0, 0], 1)
    x = torch._neg_view(torch.randn(2, 3, 5, 5))
    w = torch.randn(4, 1, 1, 1).expand(4, 3, 3, 3)
    same(NATIVE.forward(x, w, None, *geometry), PYTHON.forward(x, w, None, *geometry))


@pytest.mark.parametrize(
    "data, weight, bias, geometry",
    [
        ((1, 2, 5, 5), (3, 4, 3, 3), None, ([1, 1], [0, 0], [0, 0], [1, 1], False, [0, 0], 1)),
        ((1, 2, 5, 5), (3, 2, 9, 9), None, ([1, 1], [0, 0], [0, 0], [1, 1], False, [0, 0], 1)),
        ((1, 2, 5, 5), (3, 2, 3, 3), (4,), ([1, 1], [0, 0], [0, 0], [1, 1], False, [0, 0], 1)),
        ((1, 2, 5, 5), (3, 2, 3, 3), None, ([1, 1], [0, 0], [0, 0], [1, 1], False, [0, 0], 0)),
        ((1, 2, 5, 5), (2, 3, 1, 1), None, ([1, 1], [9, 9], [9, 9], [1, 1], True, [0, 0], 1)),
    ],
)
def test_same_errors(data, weight, bias, geometry):
    b = None if bias is None else torch.ones(bias)
    seen = []
    for ops in (NATIVE, PYTHON):
        with pytest.raises(convgrad.Error) as caught:
            ops.forward(torch.ones(data), torch.ones(weight), b, *geometry)
        seen.append((type(caught.value), str(caught.value)))
    assert seen[0] == seen[1]
    with pytest.raises(convgrad.InvalidOp, match="float16, torch.float32"):
        NATIVE.forward(torch.ones(1, 2, 5).half(), torch.ones(3, 2, 3), None, *CASES[0][2])


def test_lists_of_the_wrong_length_are_refused():
    geometry = ([1], [0], [0], [1], False, [0], 1)
    with pytest.raises(convgrad.InvalidShape, match="values"):
        NATIVE.forward(torch.ones(1, 2, 5, 5), torch.ones(3, 2, 3, 3), None, *geometry)


def test_errors_leave_the_backward_pass_as_they_are():
    x = torch.randn(1, 2, 5, 5, requires_grad=True)
    out = ct.conv2d(x, torch.randn(3, 2, 3, 3))
    with pytest.raises(RuntimeError, match="shape"):
        torch.autograd.grad(out, x, torch.ones(1, 3, 9, 9))


def test_released_graphs_say_so():
    x = torch.randn(1, 2, 5, 5, requires_grad=True)
    out = ct.conv2d(x, torch.randn(3, 2, 3, 3)).sum()
    out.backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_changed_inputs_are_noticed():
    x, w = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3, requires_grad=True)
    out = ct.conv2d(x, w).sum()
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_function_transforms():
    x, w = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    loss = lambda f: lambda weight: f(x, weight).square().sum()
    torch.testing.assert_close(
        torch.func.grad(loss(ct.conv2d))(w),
        torch.func.grad(loss(torch.nn.functional.conv2d))(w),
        rtol=1e-4,
        atol=1e-4,
    )


def test_subclasses_and_modes_see_the_operator():
    calls = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            calls.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        ct.conv2d(torch.ones(1, 2, 5, 5), torch.ones(3, 2, 3, 3))
    assert any("convgrad" in call for call in calls)


@pytest.mark.filterwarnings("ignore")
def test_forward_mode_is_refused():
    x, w = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.jvp(lambda t: ct.conv2d(t, w), (x,), (torch.ones_like(x),))


def test_works_without_a_compiler(tmp_path):
    """Nothing built and nothing to build with: the kernels in Python."""
    program = (
        "import torch, convgrad.torch as ct\n"
        "assert not ct.native_operators\n"
        "x = torch.randn(1, 2, 5, 5, requires_grad=True)\n"
        "ct.conv2d(x, torch.randn(3, 2, 3, 3)).sum().backward()\n"
        "assert x.grad is not None\n"
    )
    nothing = {"XDG_CACHE_HOME": str(tmp_path), "CXX": "no-such-compiler", "PATH": ""}
    subprocess.run([sys.executable, "-c", program], env=nothing, check=True, timeout=120)
    assert not list(tmp_path.iterdir())


def test_a_failed_build_tells_why(tmp_path):
    program = (
        "import convgrad.torch as ct\n"
        "try:\n"
        "    ct.build_operators()\n"
        "except RuntimeError as failure:\n"
        "    assert 'building' in str(failure)\n"
        "else:\n"
        "    raise SystemExit('built by a compiler that fails')\n"
        "assert (ct._native.path().parent / 'failed.txt').exists()\n"
        "import subprocess\n"
        "subprocess.Popen = None  # must not be asked for again\n"
        "assert ct._native.load() is None\n"
    )
    broken = {"XDG_CACHE_HOME": str(tmp_path), "CXX": "false", "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", program], env=broken, check=True, timeout=120)

"""convgrad.torch's functions against torch.nn.functional; plain functions on tensors."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import convgrad
import convgrad.torch as ct

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 4e-3}


@st.composite
def problems(draw, transposed):
    """(input, weight, bias, keyword arguments) in double precision."""
    axes = draw(st.integers(1, 3))
    per_axis = lambda low, high: [draw(st.integers(low, high)) for _ in range(axes)]
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    ins, outs = (groups * draw(st.integers(1, 5)) for _ in range(2))
    kernel, stride, dilation = per_axis(1, 4), per_axis(1, 3), per_axis(1, 2)
    padding = per_axis(0, 2)
    batch = draw(st.sampled_from([None, 0, 1, 3]))
    extents = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    length = [draw(st.integers(max(1, e - 2 * p), 9)) for e, p in zip(extents, padding)]
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if transposed:
        output_padding = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation)]
        out = [
            s * (n - 1) + e + q - 2 * p
            for s, n, e, q, p in zip(stride, length, extents, output_padding, padding)
        ]
        if min(out) < 1:
            options["padding"] = [0] * axes
        options["output_padding"] = output_padding
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    make = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)
    data = make(*([] if batch is None else [batch]), ins, *length)
    weight = make(*((ins, outs // groups) if transposed else (outs, ins // groups)), *kernel)
    return axes, data, weight, make(outs) if draw(st.booleans()) else None, options


def compare(name, problem, dtype, layout):
    axes, data, weight, bias, options = problem
    tensors = [None if t is None else t.to(dtype) for t in (data, weight, bias)]
    wide = [None if t is None else t.double().requires_grad_() for t in tensors]
    if layout == "channels_last" and tensors[0].dim() == axes + 2 and axes > 1:
        form = torch.channels_last if axes == 2 else torch.channels_last_3d
        tensors[:2] = [t.to(memory_format=form) for t in tensors[:2]]
    elif layout == "transposed":
        tensors[:2] = [t.transpose(0, -1).contiguous().transpose(0, -1) for t in tensors[:2]]
    ours = [None if t is None else t.requires_grad_() for t in tensors]
    got = getattr(ct, f"{name}{axes}d")(*ours, **options)
    expected = getattr(F, f"{name}{axes}d")(*wide, **options)
    tolerance = TOLERANCE[dtype]
    check = lambda a, b: torch.testing.assert_close(
        a.double(),
        b,
        rtol=tolerance,
        atol=tolerance * max(1.0, float(b.detach().abs().max()) if b.numel() else 1),
    )
    assert got.dtype == dtype
    check(got, expected)
    grad = torch.randn_like(expected).to(dtype)
    present = lambda tensors: [t for t in tensors if t is not None]
    theirs = torch.autograd.grad(expected, present(wide), grad.double())
    for a, b, t in zip(torch.autograd.grad(got, present(ours), grad), theirs, present(ours)):
        assert a.dtype == t.dtype
        check(a, b)


LAYOUTS = ["packed", "channels_last", "transposed"]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("layout", LAYOUTS)
@given(problem=problems(False))
def test_convolution(dtype, layout, problem):
    compare("conv", problem, dtype, layout)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("layout", LAYOUTS)
@given(problem=problems(True))
def test_transposed_convolution(dtype, layout, problem):
    compare("conv_transpose", problem, dtype, layout)


@pytest.mark.filterwarnings("ignore:Using padding")
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_by_name(kernel, padding):
    data, weight = torch.randn(1, 2, 9, 7), torch.randn(3, 2, kernel, 3)
    got = ct.conv2d(data, weight, padding=padding, dilation=(1, 2))
    torch.testing.assert_close(got, F.conv2d(data, weight, padding=padding, dilation=(1, 2)))
    with pytest.raises(convgrad.InvalidOp, match="stride"):
        ct.conv2d(data, weight, padding="same", stride=2)


def test_channels_last_stays():
    data = torch.randn(2, 8, 6, 5).to(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(4, 8, 3, 3).to(memory_format=torch.channels_last).requires_grad_()
    out = ct.conv2d(data, weight, padding=1)
    assert out.is_contiguous(memory_format=torch.channels_last)
    for grad in torch.autograd.grad(out.sum(), (data, weight)):
        assert grad.is_contiguous(memory_format=torch.channels_last)
    packed = ct.conv2d(data.detach().contiguous(), weight.detach().contiguous(), padding=1)
    assert packed.is_contiguous()
    torch.testing.assert_close(packed, out.detach())


def test_double_precision_goes_to_pytorch():
    data, weight = torch.randn(1, 2, 5).double(), torch.randn(3, 2, 3).double()
    assert torch.equal(ct.conv1d(data, weight), F.conv1d(data, weight))
    meta = ct.conv1d(data.float().to("meta"), weight.float().to("meta"))
    assert meta.shape == (1, 3, 3)


def test_errors_have_our_classes():
    data, weight = torch.randn(1, 2, 5, 5), torch.randn(3, 4, 3, 3)
    with pytest.raises(convgrad.InvalidShape, match="channels"):
        ct.conv2d(data, weight)
    with pytest.raises(convgrad.InvalidShape, match="stride"):
        ct.conv2d(data, weight, stride=(1, 1, 1))
    with pytest.raises(convgrad.InvalidShape, match="dimensions"):
        ct.conv2d(data[0, 0], weight)
    with pytest.raises(convgrad.Error):
        ct.conv2d(data, torch.randn(3, 2, 9, 9))
    with pytest.raises(convgrad.InvalidOp, match="types"):
        ct.conv2d(data, torch.randn(3, 2, 3, 3), torch.randn(3).half())


def test_plain_functions_take_tensors():
    src, weights = torch.randn(2, 6, 6, 3), torch.randn(3, 3, 3, 4)
    dst = convgrad.convolution(src, weights)
    assert isinstance(dst, torch.Tensor)
    by_numpy = convgrad.convolution(src.numpy(), weights.numpy())
    assert (dst.numpy() == by_numpy).all()
    half = convgrad.convolution(src.bfloat16(), weights.bfloat16())
    assert half.dtype == torch.bfloat16
    out = torch.zeros_like(weights)
    dst32 = torch.randn_like(dst)
    assert convgrad.convolution_backward_weights(src, dst32, out=out, accumulate=True) is out
    torch.testing.assert_close(
        out, convgrad.convolution_backward_weights(src, dst32, weights.shape)
    )
    expanded = torch.ones(1).expand(dst.shape)
    convgrad.convolution_backward_data(expanded, weights)
    grads = convgrad.convolution_backward(src, dst32, weights, diff_bias=True)
    assert all(isinstance(g, torch.Tensor) for g in grads)
    view = src.permute(0, 3, 1, 2)
    assert torch.equal(convgrad.convolution(view.permute(0, 2, 3, 1), weights), dst)


def test_gradients_are_not_lost_silently():
    src = torch.randn(1, 4, 4, 1, requires_grad=True)
    weights = torch.randn(3, 3, 1, 1)
    with pytest.raises(convgrad.InvalidArgument, match="convgrad.torch"):
        convgrad.convolution(src, weights)
    with torch.no_grad():
        convgrad.convolution(src, weights)
    convgrad.convolution(src.detach(), weights)

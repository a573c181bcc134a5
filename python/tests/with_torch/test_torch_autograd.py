"""First and second derivatives, the operators' registration, compiling and autocast."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import convgrad.torch as ct

CASES = [
    ("conv1d", (2, 4, 9), (6, 2, 3), {"stride": 2, "padding": 1, "groups": 2}),
    ("conv2d", (1, 3, 5, 6), (2, 3, 3, 2), {"padding": 1, "dilation": (1, 2)}),
    ("conv3d", (1, 2, 4, 3, 4), (2, 2, 2, 2, 2), {"stride": (1, 2, 1)}),
    ("conv_transpose1d", (2, 4, 5), (4, 3, 3), {"stride": 2, "output_padding": 1, "groups": 2}),
    ("conv_transpose2d", (1, 2, 3, 4), (2, 3, 2, 3), {"padding": 1, "stride": (2, 1)}),
    ("conv_transpose3d", (1, 2, 2, 3, 2), (2, 2, 2, 2, 2), {"dilation": (1, 1, 2)}),
]


def tensors(name, data, weight, options):
    outs = weight[1] * options.get("groups", 1) if "transpose" in name else weight[0]
    return tuple(torch.randn(s, requires_grad=True) for s in (data, weight, (outs,)))


# In single precision. The functions are linear in each tensor, so that differences over wide steps are
# exact but for rounding; PyTorch warns of single precision all the same.
@pytest.mark.filterwarnings("ignore:Input #")
@pytest.mark.parametrize("name, data, weight, options", CASES)
def test_gradcheck(name, data, weight, options):
    function = lambda x, w, b: getattr(ct, name)(x, w, b, **options)
    inputs = tensors(name, data, weight, options)
    assert gradcheck(function, inputs, eps=0.5, atol=1e-4, rtol=1e-4)
    assert gradgradcheck(function, inputs, eps=0.5, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name, data, weight, options", CASES)
def test_double_backward_equals_pytorch(name, data, weight, options):
    """The norm of a gradient as a penalty, which is not linear any more."""
    results = []
    inputs = tensors(name, data, weight, options)
    for module in (ct, F):
        out = getattr(module, name)(*inputs, **options)
        grads = torch.autograd.grad((out**2).sum(), inputs, create_graph=True)
        results.append(torch.autograd.grad(sum((g**2).sum() for g in grads), inputs))
    for one, other in zip(*results):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_only_what_is_needed():
    data, weight, bias = torch.randn(1, 2, 4, 4), torch.randn(3, 2, 3, 3), torch.randn(3)
    for wanted in range(1, 8):
        inputs = [t.clone() for t in (data, weight, bias)]
        needed = [t.requires_grad_() for i, t in enumerate(inputs) if wanted >> i & 1]
        got = torch.autograd.grad(ct.conv2d(*inputs).sin().sum(), needed)
        for one, other in zip(got, torch.autograd.grad(F.conv2d(*inputs).sin().sum(), needed)):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_registration(transposed, form):
    data = torch.randn(2, 4, 6, 5).to(memory_format=form).requires_grad_()
    weight = torch.randn(4, 4, 3, 3, requires_grad=True)
    geometry = ([1, 1], [1, 0], [1, 0], [1, 1], transposed, [0, 0], 1)
    bias = torch.randn(4, requires_grad=True)
    ops = torch.ops.convgrad
    torch.library.opcheck(ops.forward.default, (data, weight, bias, *geometry))
    grad = torch.randn_like(ops.forward(data, weight, bias, *geometry)).detach().requires_grad_()
    torch.library.opcheck(ops.backward.default, (grad, data, weight, *geometry, [True, True, True]))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.mixed = nn.Conv2d(8, 8, 3, padding="same", groups=2, padding_mode="reflect")
        self.up = nn.ConvTranspose2d(8, 3, 2, stride=2)

    def forward(self, x):
        return self.up(self.mixed(self.down(x).relu()).relu())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_compile(backend, form):
    torch._dynamo.reset()
    model = ct.accelerate(Net())
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for batch in (2, 5):
        data = torch.randn(batch, 3, 8, 10).to(memory_format=form).requires_grad_()
        tensors = (data, *model.parameters())
        expected = torch.autograd.grad(model(data).sin().sum(), tensors)
        got = torch.autograd.grad(compiled(data).sin().sum(), tensors)
        for one, other in zip(got, expected):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("compiled", [False, True])
def test_autocast(dtype, compiled):
    torch._dynamo.reset()
    model = ct.accelerate(Net())
    run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    data = torch.randn(2, 3, 8, 8)
    with torch.autocast("cpu", dtype=dtype):
        out = run(data)
    assert out.dtype == dtype
    out.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())
    torch.testing.assert_close(out.float(), model(data), rtol=0.1, atol=0.05)
    with torch.autocast("cpu", dtype=dtype, enabled=False):
        assert run(data).dtype == torch.float32

"""convgrad.torch on a CUDA device, against PyTorch in double precision on the CPU.

Exact first: small whole numbers, whose sums no type rounds (TF32 included)."""

import copy

import pytest
import torch
import torch.nn.functional as F

import convgrad.torch as ct

pytestmark = pytest.mark.usefixtures("gpu")
DEVICE = torch.device("cuda:0")
TYPES = [torch.float32, torch.bfloat16, torch.float16]
FORMATS = [torch.contiguous_format, torch.channels_last]
# channels in and out, size, kernel, stride, padding, dilation, groups
LAYERS = [
    (16, 16, 14, 7, 1, 3, 1, 16),
    (24, 24, 15, 3, 2, 1, 1, 24),
    (8, 24, 9, 5, 2, 2, 1, 8),
    (16, 32, 8, 3, 1, 1, 1, 1),
    (12, 8, 9, 3, 1, 2, 2, 4),
    (3, 8, 17, 7, 2, 3, 1, 1),
    (16, 8, 7, 1, 1, 0, 1, 1),
]


def whole(*shape, low=-2, high=3):
    return torch.randint(low, high, shape).to(torch.float64)


def on_gpu(t, dtype, layout):
    made = t.to(DEVICE, dtype)
    made = made.to(memory_format=layout) if made.dim() == 4 else made
    return made.requires_grad_()


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", FORMATS)
def test_layers_and_their_gradients_are_exact(layer, dtype, layout):
    torch.manual_seed(1)
    ic, oc, size, k, stride, pad, dilation, groups = layer
    rest = (stride, pad, dilation, groups)
    given = [whole(2, ic, size, size), whole(oc, ic // groups, k, k), whole(oc)]
    exact = [t.clone().requires_grad_() for t in given]
    expected = F.conv2d(*exact, *rest)
    grad = whole(*expected.shape, low=-1, high=2)
    expected.backward(grad)
    mine = [on_gpu(t, dtype, layout) for t in given]
    output = ct.conv2d(*mine, *rest)
    assert output.device == DEVICE and output.dtype == dtype
    assert torch.equal(output.double().cpu(), expected.detach().to(dtype).double())
    output.backward(grad.to(DEVICE, dtype).to(memory_format=layout))
    for ours, theirs in zip(mine, exact):
        assert torch.equal(ours.grad.double().cpu(), theirs.grad.to(dtype).double())


@pytest.mark.parametrize("dtype", TYPES)
def test_transposed_layers_are_exact(dtype):
    torch.manual_seed(2)
    given = [whole(2, 8, 7, 7), whole(8, 4, 3, 3), whole(4)]
    exact = [t.clone().requires_grad_() for t in given]
    mine = [on_gpu(t, dtype, torch.contiguous_format) for t in given]
    expected = F.conv_transpose2d(*exact, 2, 1, 1)
    output = ct.conv_transpose2d(*mine, 2, 1, 1)
    expected.sum().backward()
    output.sum().backward()
    assert torch.equal(output.double().cpu(), expected.detach())
    for ours, theirs in zip(mine, exact):
        assert torch.equal(ours.grad.double().cpu(), theirs.grad.to(dtype).double())


def test_gradients_of_gradients():
    torch.manual_seed(3)
    given = [whole(2, 6, 8, 8), whole(6, 1, 3, 3)]

    def second(tensors, convolve):
        output = convolve(*tensors, None, 1, 1, 1, 6)
        first = torch.autograd.grad((output * output).sum(), tensors, create_graph=True)
        return torch.autograd.grad(sum(g.sum() for g in first), tensors)

    exact = second([t.clone().requires_grad_() for t in given], F.conv2d)
    ours = second([on_gpu(t, torch.float32, torch.contiguous_format) for t in given], ct.conv2d)
    for a, b in zip(ours, exact):
        assert torch.equal(a.double().cpu(), b)


def test_same_bits_on_every_run():
    torch.manual_seed(4)
    x = torch.randn(8, 32, 28, 28, device=DEVICE, requires_grad=True)
    w = torch.randn(32, 1, 5, 5, device=DEVICE, requires_grad=True)

    def run():
        y = ct.conv2d(x, w, None, 1, 2, 1, 32)
        return [y, *torch.autograd.grad(y.square().sum(), (x, w))]

    first = run()
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(first, run()))


def test_autocast():
    x, w = torch.randn(2, 8, 9, 9, device=DEVICE), torch.randn(8, 1, 3, 3, device=DEVICE)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cuda", dtype):
            assert ct.conv2d(x, w, None, 1, 1, 1, 8).dtype == dtype


def test_the_current_stream_and_graphs():
    torch.manual_seed(5)
    x = whole(4, 16, 14, 14).to(DEVICE, torch.float32)
    w = whole(16, 1, 7, 7).to(DEVICE, torch.float32)
    expected = F.conv2d(x.double(), w.double(), None, 1, 3, 1, 16).float()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        made = [ct.conv2d(x, w, None, 1, 3, 1, 16) for _ in range(3)]
        torch.ops.convgrad.backward(
            made[0], x, w, [1, 1], [3, 3], [3, 3], [1, 1], False, [0, 0], 16, [True, True, False]
        )
    torch.cuda.current_stream().wait_stream(side)
    assert all(torch.equal(m, expected) for m in made)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = ct.conv2d(x, w, None, 1, 3, 1, 16)
        grads = torch.ops.convgrad.backward(
            y, x, w, [1, 1], [3, 3], [3, 3], [1, 1], False, [0, 0], 16, [True, True, False]
        )
    x.mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, 2 * expected)
    assert all(g.isfinite().all() for g in grads[:2])


def test_scratch_is_pytorchs_and_given_back():
    x = torch.randn(8, 64, 28, 28, device=DEVICE)
    w = torch.randn(64, 64, 3, 3, device=DEVICE)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    ct.conv2d(x, w, None, 1, 1)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def test_memory_that_pytorch_did_not_allocate():
    x = torch.randint(-3, 4, (2, 8, 9, 9), device=DEVICE).float()
    w = torch.randint(-3, 4, (8, 8, 3, 3), device=DEVICE).float()
    borrowed = torch.from_dlpack(x.__dlpack__())  # knows no allocator
    assert torch.equal(ct.conv2d(borrowed, w), ct.conv2d(x, w))


def test_normalisation_is_pytorchs():
    stock = torch.nn.Sequential(torch.nn.BatchNorm2d(8), torch.nn.ReLU(True)).to(DEVICE)
    ours = torch.nn.Sequential(*(ct.from_module(copy.deepcopy(m)) for m in stock))
    x = torch.randn(4, 8, 9, 9, device=DEVICE)
    results = [net(x) for net in (stock, ours)]
    for result in results:
        result.sum().backward()
    assert torch.equal(*results)
    for mine, theirs in zip(ours.parameters(), stock.parameters()):
        assert torch.equal(mine.grad, theirs.grad)
    for mine, theirs in zip(ours.buffers(), stock.buffers()):
        assert torch.equal(mine, theirs)


def test_models_policies_and_report(capsys):
    torch.manual_seed(6)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.Conv2d(16, 16, 7, padding=3, groups=16),
        torch.nn.Conv2d(16, 8, 1),
    ).to(DEVICE)
    x = torch.randn(4, 3, 32, 32, device=DEVICE)
    with torch.no_grad():
        expected = model.double()(x.double()).float()
    model.float()
    rows = ct.report(model, x)
    assert [r.name for r in rows] == ["0", "1", "2"] and all(r.ours > 0 < r.theirs for r in rows)
    assert "PyTorch ms" in capsys.readouterr().out
    for policy in ("faster", "all", lambda m: m.groups > 1):
        copy = torch.nn.Sequential(*model)
        ct.accelerate(copy, policy=policy)
        assert isinstance(copy[1], ct.Conv2d)
        assert isinstance(copy[0], ct.Conv2d) == (not callable(policy))
        torch.testing.assert_close(copy(x), expected, rtol=5e-3, atol=5e-3)
        copy(x).sum().backward()


def test_compile():
    model = ct.accelerate(
        torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1, groups=8), torch.nn.ReLU()).to(
            DEVICE
        )
    )
    x = torch.randn(2, 8, 9, 9, device=DEVICE, requires_grad=True)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x))
    compiled(x).sum().backward()


def test_what_is_not_ours_goes_to_pytorch():
    x, w = (
        torch.randn(*s, device=DEVICE, dtype=torch.float64) for s in ((1, 4, 5, 5), (4, 4, 3, 3))
    )
    torch.testing.assert_close(ct.conv2d(x, w), F.conv2d(x, w))
    with pytest.raises(RuntimeError):
        ct.conv2d(x.float(), w.float().cpu())

"""Batch normalisation and ReLU of training steps, beside PyTorch's own."""

import copy
import pickle

import pytest
import torch
from torch import nn

import convgrad.torch as ct

OURS = "ConvgradBatchNormBackward"
LAYOUTS = {"NCX": torch.contiguous_format, "NXC": torch.channels_last}


def filled(norm):
    with torch.no_grad():
        for t in (norm.weight, norm.bias):
            if t is not None:
                t.normal_()
    return norm


def step(module, input, grad):
    """The output, the gradients and the statistics after one step."""
    x = input.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    module.zero_grad()
    y = module(x)
    y.backward(grad)
    kept = [p.grad for p in module.parameters()] + [b.clone() for b in module.buffers()]
    return [y.detach(), x.grad, *kept]


def assert_close(ours, theirs, dtype):
    bound = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-9}[dtype]
    for a, b in zip(ours, theirs):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.numel():
            scale = max(float(b.double().abs().max()), 1.0)
            assert float((a.double() - b.double()).abs().max()) <= bound * scale * 8


def compare(norm, shape, dtype=torch.float32, layout=torch.contiguous_format, spread=1.0):
    theirs, ours = norm, ct.from_module(copy.deepcopy(norm))
    x = (torch.randn(shape) * spread + 1).to(dtype).to(memory_format=layout)
    grad = torch.randn(shape).to(dtype).to(memory_format=layout)
    got, wanted = step(ours, x, grad), step(theirs, x, grad)
    assert_close(got, wanted, dtype)
    assert got[0].stride() == wanted[0].stride() and got[1].stride() == wanted[1].stride()
    assert copy.deepcopy(ours)(x.requires_grad_()).grad_fn.name() == OURS
    return ours, theirs


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(8, 64, 7, 7), (2, 3, 5, 11), (1, 17, 33, 33), (2, 1, 1, 1)])
def test_steps_are_pytorchs(shape, layout, dtype):
    compare(filled(nn.BatchNorm2d(shape[1])), shape, dtype, LAYOUTS[layout])


@pytest.mark.parametrize(
    "norm, shape",
    [
        (nn.BatchNorm1d(6), (9, 6)),
        (nn.BatchNorm1d(6), (3, 6, 20)),
        (nn.BatchNorm3d(5), (2, 5, 3, 4, 6)),
        (nn.BatchNorm2d(4, affine=False), (2, 4, 5, 5)),
        (nn.BatchNorm2d(4, eps=0.1, momentum=0.7), (2, 4, 5, 5)),
        (nn.BatchNorm2d(4, momentum=None), (2, 4, 5, 5)),
        (nn.BatchNorm2d(4, track_running_stats=False), (2, 4, 5, 5)),
        (nn.BatchNorm2d(4, track_running_stats=False).eval(), (2, 4, 5, 5)),
    ],
)
def test_settings_are_pytorchs(norm, shape):
    ours, theirs = compare(norm, shape)
    x = torch.randn(shape)
    assert torch.allclose(ours.eval()(x), theirs.eval()(x), atol=1e-5)
    for name, buffer in theirs.named_buffers():
        assert torch.allclose(dict(ours.named_buffers())[name], buffer, rtol=1e-5)


def test_three_dimensions_with_channels_last():
    compare(filled(nn.BatchNorm3d(20)), (2, 20, 3, 4, 5), layout=torch.channels_last_3d)


def test_evaluation_is_pytorchs_own():
    norm = filled(nn.BatchNorm2d(5))
    ours = ct.from_module(copy.deepcopy(norm)).eval()
    x = torch.randn(2, 5, 3, 3, requires_grad=True)
    assert torch.equal(ours(x), norm.eval()(x))
    assert ours(x).grad_fn.name() != OURS


def test_what_is_refused_is_refused_as_by_pytorch():
    for wrong in (torch.randn(1, 4, 1, 1), torch.randn(2, 5, 3, 3), torch.randn(2, 4, 3)):
        errors = []
        for module in (nn.BatchNorm2d(4), ct.BatchNorm2d(4)):
            with pytest.raises((ValueError, RuntimeError)) as error:
                module(wrong)
            errors.append(str(error.value))
        assert errors[0] == errors[1]


def test_double_precision_and_an_empty_batch_are_pytorchs():
    for x in (torch.randn(2, 4, 3, 3, dtype=torch.float64), torch.randn(0, 4, 3, 3)):
        theirs = nn.BatchNorm2d(4).to(x.dtype)
        ours = ct.from_module(copy.deepcopy(theirs))
        assert torch.equal(ours(x), theirs(x))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_in_any_order(layout):
    norm = filled(nn.BatchNorm2d(6))
    ours = ct.from_module(copy.deepcopy(norm))
    x = torch.randn(4, 12, 9, 10).to(memory_format=LAYOUTS[layout])[:, ::2, 1:8].transpose(2, 3)
    for grad in (torch.randn(4, 6, 10, 7), torch.ones(1, 1, 1, 1).expand(4, 6, 10, 7)):
        assert_close(step(ours, x, grad), step(norm, x, grad), torch.float32)


def test_the_same_bits_on_any_number_of_threads():
    before = torch.get_num_threads()
    try:
        for layout in LAYOUTS.values():
            x, grad = (torch.randn(8, 70, 20, 20).to(memory_format=layout) for _ in range(2))
            found = []
            for threads in (1, 2, 5):
                torch.set_num_threads(threads)
                found.append(step(ct.BatchNorm2d(70), x, grad))
            assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other))
    finally:
        torch.set_num_threads(before)


def network(activation=None):
    return nn.Sequential(
        nn.Conv2d(3, 20, 3, padding=1, bias=False),
        nn.BatchNorm2d(20),
        activation or nn.ReLU(inplace=True),
        nn.Conv2d(20, 4, 1),
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "activation", [nn.ReLU(inplace=True), nn.ReLU6(inplace=True), nn.ReLU(), nn.ReLU6()], ids=str
)
def test_relu_behind_it(activation, dtype, layout):
    norm = filled(nn.BatchNorm2d(20))
    with torch.no_grad():
        norm.weight.mul_(4)  # so that ReLU6 bounds from above too
    theirs = nn.Sequential(norm, copy.deepcopy(activation))
    ours = nn.Sequential(*(ct.from_module(m) for m in copy.deepcopy(theirs)))
    x = torch.randn(4, 20, 9, 9).to(dtype).to(memory_format=LAYOUTS[layout])
    # At a bound the last bit of a value would decide.
    value = copy.deepcopy(norm)(x).detach()
    clear = (value.abs() > 0.05) & ((value - 6).abs() > 0.05)
    grad = torch.randn(x.shape).to(dtype) * clear
    found = [step(model, x, grad) for model in (ours, theirs)]
    assert_close(*found, dtype)
    y = ours(x.requires_grad_())
    assert (y.grad_fn.name() == OURS) == activation.inplace


@pytest.mark.parametrize("layout", LAYOUTS)
def test_under_autocast(layout):
    theirs = network()
    ours = ct.accelerate(copy.deepcopy(theirs))
    x = torch.randn(4, 3, 9, 9).to(memory_format=LAYOUTS[layout])
    with torch.autocast("cpu", torch.bfloat16):
        y = ours[2](ours[1](ours[0](x)))
        assert y.dtype == torch.bfloat16 and y.grad_fn.name() == OURS
        a, b = ours(x), theirs(x)
    assert float((a - b).detach().abs().max()) < 0.05
    a.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in ours.parameters())


def test_relu_stays_its_own_where_somebody_looked_in_between():
    norm, relu = ct.BatchNorm2d(4), ct.ReLU(inplace=True)
    x = torch.randn(2, 4, 5, 5, requires_grad=True)

    def check(look):
        grads = []
        for n, r in ((norm, relu), (nn.BatchNorm2d(4), nn.ReLU(inplace=True))):
            y = n(x)
            seen = look(y)
            z = r(y)
            total = z.sum() + (seen.sum() if isinstance(seen, torch.Tensor) else 0)
            grads.append(torch.autograd.grad(total, x)[0])
        assert torch.allclose(*grads, atol=1e-5)

    check(lambda y: y + 1)
    check(lambda y: y.view(-1))
    check(lambda y: y.register_hook(lambda g: 2 * g))
    check(lambda y: y.retain_grad())
    with torch.no_grad():
        y = norm(x)
        assert relu(y) is y and float(y.min()) == 0
    y = norm(x)
    z = relu(relu(y))
    assert z is y and z.grad_fn.name() == "ReluBackward0"


def test_changing_the_output_in_place_is_noticed():
    norm = ct.BatchNorm2d(4)
    x = torch.randn(2, 4, 5, 5, requires_grad=True)
    y = norm(x)
    kept = y.exp()  # saves its result, not y
    squared = y.pow(2)  # saves y
    ct.ReLU(inplace=True)(y)
    kept.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squared.sum().backward()


def test_gradients_of_gradients():
    for activation in (nn.ReLU(inplace=True), nn.ReLU6(inplace=True)):
        theirs = network(activation)
        ours = ct.accelerate(copy.deepcopy(theirs))
        found = []
        for model in (theirs, ours):
            torch.manual_seed(1)
            x = torch.randn(3, 3, 6, 6, requires_grad=True)
            (g,) = torch.autograd.grad(model(x).pow(2).sum(), x, create_graph=True)
            g.pow(2).sum().backward()
            found.append([x.grad, model[1].weight.grad, model[0].weight.grad])
        for a, b in zip(*found, strict=True):
            assert float((a - b).abs().max()) <= 2e-5 * float(a.abs().max())


def test_backward_twice_through_one_graph():
    norm = ct.BatchNorm2d(4)
    x = torch.randn(2, 4, 5, 5, requires_grad=True)
    y = norm(x).pow(3).sum()
    first = torch.autograd.grad(y, x, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(y, x)[0])
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, x)


def test_only_what_is_wanted_is_computed():
    norm = filled(ct.BatchNorm2d(4))
    x = torch.randn(2, 4, 5, 5)
    norm(x).pow(3).sum().backward()
    wanted = [norm.weight.grad.clone(), norm.bias.grad.clone()]
    norm.zero_grad()
    norm.bias.requires_grad_(False)
    norm(x).pow(3).sum().backward()
    assert norm.bias.grad is None and torch.equal(norm.weight.grad, wanted[0])


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_transforms_of_functions():
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    ours = ct.from_module(copy.deepcopy(norm))
    x = torch.randn(3, 2, 4, 5, 5)
    assert torch.allclose(torch.func.vmap(ours)(x), torch.func.vmap(norm)(x), atol=1e-4)
    gradients = [torch.func.grad(lambda t, m=m: m(t).pow(3).sum())(x[0]) for m in (ours, norm)]
    assert torch.allclose(*gradients, atol=1e-4)
    _, ours_tangent = torch.func.jvp(ours, (x[0],), (x[1],))
    _, tangent = torch.func.jvp(norm, (x[0],), (x[1],))
    assert torch.allclose(ours_tangent, tangent, atol=1e-4)


def test_compiled_models_leave_it_to_the_compiler():
    theirs = network()
    ours = torch.compile(ct.accelerate(copy.deepcopy(theirs)), backend="aot_eager", fullgraph=True)
    x = torch.randn(2, 3, 6, 6)
    assert torch.allclose(ours(x), theirs(x), atol=1e-5)


def test_accelerate_takes_it_unless_told_otherwise():
    model = network()
    weight = model[1].weight
    assert type(ct.accelerate(network(), batch_norm=False)[1]) is nn.BatchNorm2d
    made = ct.accelerate(model)
    assert type(made[1]) is ct.BatchNorm2d and type(made[2]) is ct.ReLU
    assert made[1].weight is weight and isinstance(made[1], nn.BatchNorm2d)
    seen = []
    ct.accelerate(network(), policy=lambda m: seen.append(type(m)) or True)
    assert set(seen) == {nn.Conv2d}
    twin = pickle.loads(pickle.dumps(made))
    assert type(twin[1]) is ct.BatchNorm2d
    network().load_state_dict(made.state_dict())


def test_a_model_without_convolutions_is_left_alone():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
    assert type(ct.accelerate(model)[1]) is nn.BatchNorm1d

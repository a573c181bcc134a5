"""Modules that take over PyTorch's, and whole models."""

import copy
import pathlib
import runpy
import subprocess
import sys

import pytest
import torch
from torch import nn

import convgrad.torch as ct

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_from_module(axes, transposed):
    name = f"{'ConvTranspose' if transposed else 'Conv'}{axes}d"
    module = getattr(nn, name)(4, 6, 3, stride=2, padding=1, groups=2)
    ours = ct.from_module(module)
    assert type(ours) is getattr(ct, name) and isinstance(ours, type(module))
    assert ours.weight is module.weight and ours.bias is module.bias
    data = torch.randn(2, 4, *[7] * axes)
    torch.testing.assert_close(ours(data), module(data), rtol=1e-4, atol=1e-5)
    if transposed:
        size = [14] * axes
        torch.testing.assert_close(ours(data, size), module(data, size), rtol=1e-4, atol=1e-5)
    fresh = getattr(ct, name)(4, 6, 3, stride=2, padding=1, groups=2)
    fresh.load_state_dict(module.state_dict())
    torch.testing.assert_close(fresh(data), module(data), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Using padding")
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [2, "same"])
def test_padding_modes(mode, padding):
    module = nn.Conv2d(3, 4, (3, 4), padding=padding, padding_mode=mode)
    data = torch.randn(1, 3, 8, 9)
    torch.testing.assert_close(ct.from_module(module)(data), module(data), rtol=1e-4, atol=1e-5)


def test_accelerate_swaps_everything_once():
    shared = nn.Conv1d(2, 2, 3, padding=1)

    class Special(nn.Conv2d):
        def forward(self, x):
            return x

    model = nn.Sequential(shared, nn.ReLU(), nn.Sequential(shared), Special(1, 1, 1))
    calls = []
    shared.register_forward_hook(lambda *_: calls.append(1))
    parameters = dict(model.named_parameters())
    assert ct.accelerate(model) is model
    assert type(model[0]) is ct.Conv1d and model[0] is model[2][0]
    assert type(model[3]) is Special
    assert all(p is parameters[name] for name, p in model.named_parameters())
    model[:3](torch.randn(1, 2, 5))
    assert len(calls) == 2
    alone = nn.Conv1d(1, 1, 1)
    assert type(ct.accelerate(alone)) is ct.Conv1d
    with pytest.raises(TypeError, match="Linear"):
        ct.from_module(nn.Linear(1, 1))


def test_modules_can_be_copied_and_saved(tmp_path):
    model = ct.accelerate(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ConvTranspose2d(2, 1, 3)))
    data = torch.randn(1, 1, 6, 6)
    assert torch.equal(copy.deepcopy(model)(data), model(data))
    torch.save(model, tmp_path / "model.pt")
    assert torch.equal(torch.load(tmp_path / "model.pt", weights_only=False)(data), model(data))
    assert torch.equal(model.double()(data.double()), model(data.double()))


def make_choices(monkeypatch, choose):
    """Lets accelerate's policy "faster" decide by `choose` instead of by the clock."""
    asked = []

    def decide(ours, theirs, *tensors):
        asked.append(tensors[0].shape)
        return choose(tensors[0])

    monkeypatch.setattr("convgrad.torch._policy.is_faster", decide)
    return asked


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_policy_takes_whoever_is_faster(axes, monkeypatch):
    name = f"{axes}d"
    stock = nn.Sequential(
        getattr(nn, "Conv" + name)(3, 6, 3, padding=1), getattr(nn, "ConvTranspose" + name)(6, 2, 3)
    )
    ours = ct.accelerate(copy.deepcopy(stock))
    faster = ct.accelerate(copy.deepcopy(stock), policy="faster")
    small, large = torch.randn(2, 3, *[5] * axes), torch.randn(2, 3, *[6] * axes)
    asked = make_choices(monkeypatch, lambda x: x.shape[2] == 5)
    for _ in range(2):  # the second time from memory
        assert torch.equal(faster[0](small), ours[0](small))
        assert torch.equal(faster[0](large), stock[0](large))
    mapped = stock[0](large)
    assert torch.equal(faster[1](mapped), stock[1](mapped))
    assert len(asked) == 3
    with torch.no_grad():  # a question of its own
        faster[0](small)
    assert len(asked) == 4


def test_policy_measures_without_side_effects():
    model = ct.accelerate(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3)), policy="faster")
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    data = torch.randn(2, 3, 9, 9, requires_grad=True)
    model(data).sum().backward()
    assert len(calls) == 1
    expected = torch.autograd.grad(model(data).sum(), (data, *model.parameters()))
    for tensor, gradient in zip((data, *model.parameters()), expected):
        torch.testing.assert_close(tensor.grad, gradient, rtol=1e-4, atol=1e-4)
    assert all(type(choice) is bool for m in model for choice in m._convgrad_faster.values())
    assert torch.equal(copy.deepcopy(model)(data), model(data))
    with torch.autocast("cpu", torch.bfloat16):
        assert model(data).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="fastest"):
        ct.accelerate(nn.Conv2d(1, 1, 1), policy="fastest")


def test_policy_weighs_device_and_host():
    from convgrad.torch._policy import Seconds, is_better

    def takes_ours(ours, theirs):
        return is_better(Seconds(*ours), Seconds(*theirs), "cuda")

    assert takes_ours((100e-6, 50e-6), (150e-6, 50e-6))
    assert not takes_ours((150e-6, 50e-6), (100e-6, 50e-6))
    assert not takes_ours((100e-6, 50e-6), (100e-6, 50e-6))  # ties are PyTorch's
    # The host counts half.
    assert takes_ours((100e-6, 50e-6), (100e-6, 80e-6))
    assert not takes_ours((120e-6, 50e-6), (100e-6, 80e-6))
    assert not takes_ours((100e-6, 200e-6), (140e-6, 50e-6))
    # On CPUs it is the device, and ties are ours.
    assert is_better(Seconds(1.0), Seconds(1.0), "cpu")
    assert not is_better(Seconds(1.1), Seconds(1.0), "cpu")


def test_signatures_tell_what_times_depend_on():
    from convgrad.torch._policy import signature

    x, w, b = torch.randn(2, 3, 5, 5), nn.Parameter(torch.randn(4, 3, 3, 3)), torch.randn(4)

    class Other(torch.Tensor):
        pass

    with torch.autocast("cpu", torch.bfloat16):
        cast = signature(x, w, b)
    with torch.no_grad():
        fixed = signature(x, w, b)
    different = [
        signature(x, w, b),
        signature(x[:1], w, b),
        signature(x.to(memory_format=torch.channels_last), w, b),
        signature(x.bfloat16(), w, b),
        signature(x.clone().requires_grad_(), w, b),
        signature(x, w, nn.Parameter(b)),
        signature(x.as_subclass(Other), w, b),
        cast,
        fixed,
    ]
    assert len(set(different)) == len(different)
    assert signature(x, w, b) == signature(x.clone(), w, None)


@pytest.mark.filterwarnings("ignore")
def test_policy_under_compile():
    torch._dynamo.reset()
    model = ct.accelerate(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), policy="faster")
    data = torch.randn(2, 3, 9, 9)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(data), model(data), rtol=1e-4, atol=1e-4)


def test_notebook_example(capsys):
    runpy.run_path(str(EXAMPLES / "train_torch.py"), run_name="__main__")
    assert "convgrad" in capsys.readouterr().out


def test_data_parallel(tmp_path):
    """Two processes reach the losses of one with the same global batch."""
    losses = {}
    for processes in (1, 2):
        file = tmp_path / f"losses{processes}"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(processes), str(EXAMPLES / "train_ddp.py")]
        done = subprocess.run([*command, "--losses", str(file)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        losses[processes] = torch.tensor([float(line) for line in file.read_text().split()])
    assert losses[1][-1] < losses[1][0]
    torch.testing.assert_close(losses[2], losses[1], rtol=1e-3, atol=1e-5)

"""bench/compare_torch.py on small problems: both sides compute the same on either device. No times."""

import sys

import pytest
import torch

import convgrad.torch  # noqa: F401  the operators

PROBLEMS = [
    ('g4mb2ic8ih9oc8kh3ph1n"groups"', False),
    ('mb2ic3ih12iw11oc5kh5kw3sh2sw2ph2pw1n"strides"', False),
    ('mb1ic6ih5oc4oh11kh3sh2ph0n"transposed"', True),
]
PASSES = ("fwd", "dat", "wei", "bwd")


@pytest.fixture
def calls(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "bench")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    import torch_calls

    with torch.no_grad():
        yield torch_calls


def on_host(calls):
    """What runs on a GPU, on tensors of the host: the operators are the same."""
    made = calls.Cuda.__new__(calls.Cuda)
    made.device = torch.device("cpu")
    return made


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p[0].partition('"')[2][:-1])
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_both_sides_agree(calls, problem, data_format, dtype):
    from problems import Problem

    for on in (calls.Cpu(1), on_host(calls)):
        for what in PASSES:
            ours, theirs = on.calls(Problem(*problem), what, dtype, data_format)
            assert calls.difference(ours(), theirs()) <= calls.TOLERANCE[dtype], what


def test_differences(calls):
    a = torch.tensor([1.0, 4.0])
    assert calls.difference(a, [a]) == 0
    assert calls.difference([a, a], [a, a + 2]) == 0.5
    with pytest.raises(ValueError, match="shapes differ"):
        calls.difference([a], [a, a])


def test_table_of_a_run(calls, capsys, monkeypatch):
    import compare_torch

    given = ["compare_torch.py", PROBLEMS[0][0], "--passes", "fwd,bwd", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", [*given, "--seconds", "0", "--rounds", "1", "--markdown"])
    assert compare_torch.main() == 0
    printed = capsys.readouterr().out
    assert "| groups | f32 | NXC | bwd |" in printed and "Time of PyTorch" in printed


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_that_is_said(calls, monkeypatch):
    import compare_torch

    monkeypatch.setattr(sys, "argv", ["compare_torch.py", "--device", "cuda", PROBLEMS[0][0]])
    with pytest.raises(SystemExit, match="--device cuda: PyTorch (sees no GPU|.* without CUDA)"):
        compare_torch.main()


@pytest.mark.usefixtures("gpu")
def test_both_sides_agree_on_a_gpu(calls):
    from problems import Problem

    on = calls.Cuda(0)
    for problem in PROBLEMS:
        for dtype in calls.TYPES:
            on.settings(dtype)
            for data_format in ("NXC", "NCX"):
                for what in PASSES:
                    ours, theirs = on.calls(Problem(*problem), what, dtype, data_format)
                    assert calls.difference(ours(), theirs()) <= calls.TOLERANCE[dtype], (
                        problem,
                        what,
                    )


@pytest.mark.usefixtures("gpu")
def test_medians_on_a_gpu(calls):
    from gpu_clock import medians_in_turns

    x = torch.zeros(1 << 22, device="cuda")
    once, often = medians_in_turns(
        [lambda: x.add_(1), lambda: [x.add_(1) for _ in range(20)]], 0.02, 2
    )
    assert 0 < once < often

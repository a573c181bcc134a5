"""What benchmarks do beside measuring: problems, arguments, refusals and tables. Without PyTorch."""

import importlib
import json
import sys
from types import SimpleNamespace

import pytest


@pytest.fixture
def imported(root, monkeypatch):
    """Imports a module of bench/ or scripts/."""

    def load(name):
        for folder in ("bench", "scripts"):
            monkeypatch.syspath_prepend(root / folder)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        return importlib.import_module(name)

    return load


@pytest.fixture
def compare(imported):
    return imported("compare_torch")


def test_listed_layers_of_gpus_are_problems(imported):
    measured = imported("measured_cuda")
    layers = measured.problems()
    assert len(layers) == 36
    assert all(measured.kind_of(name) in measured.KINDS.values() for name in layers)
    one = layers["dw-b0-56s2"]
    assert (one.mb, one.groups, one.ic, one.oc) == (128, 144, 144, 144)
    assert one.x[0] == one.x[1] == {
        "in": 56, "out": 28, "kernel": 5, "stride": 2, "dilation": 1, "pad": 2, "extra": 0
    }  # fmt: skip


def test_arguments(compare):
    options = compare.arguments(["mb1", "--device", "cuda:1", "--dtype", "f32,tf32,bf16,f16"])
    assert options.device == ("cuda", 1) and options.dtype == ["f32", "tf32", "bf16", "f16"]
    assert options.passes == ["fwd", "dat", "wei"] and options.data_format == ["NXC"]
    assert compare.arguments(["--device", "cuda"]).device == ("cuda", 0)
    assert compare.arguments([]).device == ("cpu", 0)


@pytest.mark.parametrize(
    "given, message",
    [
        (["--device", "tpu"], "tpu is not cpu, cuda or cuda:N"),
        (["--device", "cuda:x"], "cuda:x is not cpu, cuda or cuda:N"),
        (["--dtype", "f32,f64"], "'f64' is none of f32, tf32, bf16, f16"),
        (["--passes", "all"], "'all' is none of fwd, dat, wei, bwd"),
        (["--dtype", "tf32"], "tf32 needs --device cuda"),
        (["--device", "cuda", "--threads", "2"], "--threads is about CPUs"),
    ],
)
def test_arguments_that_are_refused(compare, capsys, given, message):
    with pytest.raises(SystemExit) as left:
        compare.arguments(given)
    assert left.value.code == 2 and message in capsys.readouterr().err


def test_help_says_what_is_compared(compare, capsys):
    with pytest.raises(SystemExit):
        compare.arguments(["--help"])
    printed = capsys.readouterr().out
    for part in ("--device cpu|cuda[:N]", "cudnn.benchmark", "CONVGRAD_CUDA=ON", "TF32 off"):
        assert part in printed


def fake_torch(version="13.0", is_available=True, count=1):
    cuda = SimpleNamespace(is_available=lambda: is_available, device_count=lambda: count)
    return SimpleNamespace(__version__="2.11", version=SimpleNamespace(cuda=version), cuda=cuda)


@pytest.mark.parametrize(
    "torch, native, engine, reason",
    [
        (fake_torch(version=None), True, True, "PyTorch 2.11 was built without CUDA"),
        (fake_torch(is_available=False), True, True, "PyTorch sees no GPU"),
        (fake_torch(count=0), True, True, "there is no device 0: PyTorch sees 0"),
        (fake_torch(), False, True, "convgrad.torch.build_operators()"),
        (fake_torch(), True, False, "cmake.define.CONVGRAD_CUDA=ON"),
        (fake_torch(), True, True, None),
    ],
)
def test_why_a_gpu_cannot_be_had(compare, torch, native, engine, reason):
    parts = (
        SimpleNamespace(native_operators=native),
        SimpleNamespace(has_cuda_device=lambda _: engine),
    )
    why = compare.why_no_cuda(torch, 0, lambda: parts)
    assert why is None if reason is None else reason in why


def test_without_pytorch_that_is_said(compare, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit, match="PyTorch is not installed"):
        compare.open_device(compare.arguments([]))


def result(name, what, ours, theirs, **more):
    return {"name": name, "deconv": False, "threads": 0, "device": "cuda", "pass": what, "dtype": "f32",
            "data_format": "NXC", "min_ms": ours, "peer_ms": theirs, "peer": "cuDNN 91900",
            "ratio": theirs / ours, "difference": 1e-7, "agrees": True, **more}  # fmt: skip


def test_tables(compare, capsys):
    results = [
        result("a", "fwd", 1.0, 4.0),
        result("b", "fwd", 2.0, 2.0),
        result("a", "dat", 1.0, 0.5),
    ]
    compare.print_tables(results, markdown=True)
    printed = capsys.readouterr().out
    assert "| a | f32 | NXC | fwd | 1.000 | 4.000 | 4.00 | 1.0e-07 |" in printed
    assert "Time of cuDNN 91900 / ours" in printed
    assert "| f32 NXC | fwd | 2 | 2.00 | 1.00 | b |" in printed
    assert "| f32 NXC | dat | 1 | 0.50 | 0.50 | a |" in printed


def test_results_that_are_kept_are_of_a_device(compare):
    mine = result("a", "fwd", 1.0, 4.0)
    older = {key: value for key, value in mine.items() if key != "device"}
    assert compare.case_of(mine)[-1] == "cuda" and compare.case_of(older)[-1] == "cpu"


def test_results_become_the_tables_of_the_documents(imported, tmp_path, monkeypatch):
    measured = imported("measured_cuda")
    table = imported("measured").table
    monkeypatch.setattr(measured, "DATA", tmp_path / "cuda_layers.csv")
    name = "dw-mnv2-7"
    results = [
        result(name, p, 0.01, 0.04, dtype=t) for p in ("fwd", "dat", "wei") for t in ("bf16", "f32")
    ]
    results.append(result(name, "fwd", 0.02, 0.02))  # of two runs the faster, on either side
    results.append(result(name, "bwd", 0.02, 0.02))  # no column of the table
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in results))
    measured.gather([path])
    lines = measured.DATA.read_text().splitlines()
    assert lines[:2] == ["layer,pass,type,layout,cuDNN ms,ms", f"{name},forward,f32,nxc,0.02,0.01"]
    assert len(lines) == 7 and lines[-1].startswith(f"{name},weights,bf16,nxc")
    limits = {"copies_tb_s": 4.0, "multiply_adds_tflops": 60, "mma_tflops": 600}
    bytes_of = 2 * (2 * 128 * 960 * 49 + 960 * 9)
    assert measured.limit_ms(measured.problems()[name], "bf16", limits) == pytest.approx(
        bytes_of / 4e9
    )
    about = {"device": "a GPU", "date": "today", "peer": "cuDNN", "limits": limits}
    parts = measured.parts(about, table)
    assert (
        "| depthwise | 2.00 (2.00) / 4.00 (4.00) / 4.00 (4.00) | 4.00 (4.00) /"
        in parts["cuda-summary"]
    )
    assert "In 6 of 6 cases convgrad is faster." in parts["cuda-summary"]
    assert (
        "| dw-mnv2-7: 3×3, 960 channels, 7×7, batch 128 | f32 | NXC | 0.02 / 0.01 / 2.00 / "
        in parts["cuda-layers"]
    )


def test_results_that_differ_are_no_measurement(imported, tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(result("dw-mnv2-7", "fwd", 1.0, 1.0, agrees=False)) + "\n")
    with pytest.raises(SystemExit, match="results differ"):
        imported("measured_cuda").gather([path])

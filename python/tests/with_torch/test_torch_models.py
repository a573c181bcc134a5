"""bench/models.py on small models: both ways agree, and the tables can be printed. No times."""

import argparse
import importlib.util

import pytest

OPTIONS = dict(
    batch=1, size=32, rounds=1, warm_up=0, policy="all", layers=False, memory=False, layer_seconds=0
)


@pytest.fixture
def models(root):
    spec = importlib.util.spec_from_file_location("models", root / "bench" / "models.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("data_format", ["NCX", "NXC"])
def test_steps_agree(models, dtype, data_format):
    make = {
        "U-Net": lambda batch, size: models.UNet(2, batch, size, width=4, depth=2),
        "3-D U-Net": lambda batch, size: models.UNet(3, batch, 12, width=4, depth=1),
        "DCGAN": lambda batch, size: models.DCGAN(2),
        "WaveNet": lambda batch, size: models.WaveNet(
            batch, length=64, width=8, blocks=1, layers=3
        ),
    }
    assert set(make) < set(models.MODELS)
    models.MODELS.update(make)
    for name in make:
        row = models.measure(name, dtype, data_format, argparse.Namespace(**OPTIONS))
        assert row["agrees"], row


@pytest.mark.filterwarnings("ignore")
def test_tables(models, capsys):
    models.MODELS["U-Net"] = lambda batch, size: models.UNet(2, batch, size, width=4, depth=1)
    options = argparse.Namespace(**{**OPTIONS, "layers": True, "policy": "faster"})
    row = models.measure("U-Net", "f32", "NXC", options)
    assert {"Conv2d", "ConvTranspose2d"} == {r["kind"] for r in row["layers"]}
    assert row["share"] > 0
    models.print_table([row])
    row["layers"][0]["ratio"] = 0.5  # a loser for certain
    models.print_losers([row])
    printed = capsys.readouterr().out
    assert "| U-Net |" in printed and row["layers"][0]["layer"] in printed

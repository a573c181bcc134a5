"""Whole training steps of models, PyTorch as it is beside `convgrad.torch.accelerate`, in turns.

    pip install . torch torchvision
    python bench/models.py                                      # all models, types and layouts
    python bench/models.py --models ResNet-50,U-Net --dtype bf16 --layers
    python bench/models.py --policy faster --json > results.jsonl

A step is forward, loss, backward and SGD with momentum, on the same data and from the same parameters.
After a warm-up the two take steps in turns, and the fastest of each counts. The share of convolutions
is the sum of PyTorch's own times for the model's convolutions, each measured alone (forward and
backward, on tensors of the same shapes), over its step; `--layers` lists those that lose, by what they
cost. Both computations must agree: losses of the first step are compared. `--memory` measures how much
a step adds to the largest resident size of a process, in a process of its own for each of the two.
"""

import argparse
import contextlib
import copy
import json
import math
import os
import resource
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import convgrad.torch

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
TOLERANCE = {"f32": 1e-3, "bf16": 5e-2}


class Classifier(nn.Module):
    """A model of torchvision with its loss."""

    def __init__(self, name, batch, size):
        super().__init__()
        import torchvision

        self.model = getattr(torchvision.models, name)()
        self.data = (torch.randn(batch, 3, size, size), torch.randint(0, 1000, (batch,)))

    def forward(self, images, labels):
        return F.cross_entropy(self.model(images).float(), labels)


class UNet(nn.Module):
    """Double convolutions with BatchNorm, halved and doubled again, in two or three dimensions."""

    def __init__(self, axes, batch, size, width, depth):
        super().__init__()
        conv, norm = (nn.Conv2d, nn.Conv3d)[axes - 2], (nn.BatchNorm2d, nn.BatchNorm3d)[axes - 2]
        up = (nn.ConvTranspose2d, nn.ConvTranspose3d)[axes - 2]
        self.pool = (nn.MaxPool2d, nn.MaxPool3d)[axes - 2](2)

        def double(ins, outs):
            layers = []
            for a, b in ((ins, outs), (outs, outs)):
                layers += [conv(a, b, 3, padding=1, bias=False), norm(b), nn.ReLU(inplace=True)]
            return nn.Sequential(*layers)

        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([1, *widths], widths))
        back = list(zip(widths[:0:-1], widths[-2::-1]))
        self.up = nn.ModuleList(up(a, b, 2, stride=2) for a, b in back)
        self.merge = nn.ModuleList(double(a, b) for a, b in back)
        self.last = conv(width, 4, 1)
        shape = [size] * axes
        self.data = (torch.randn(batch, 1, *shape), torch.randint(0, 4, (batch, *shape)))

    def forward(self, x, labels):
        kept = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else self.pool(x))
            kept.append(x)
        kept.pop()
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([up(x), kept.pop()], 1))
        return F.cross_entropy(self.last(x).float(), labels)


class DCGAN(nn.Module):
    """Generator and discriminator of 64x64 images; one step of both."""

    def __init__(self, batch):
        super().__init__()
        widths = [512, 256, 128, 64]
        generator = [nn.ConvTranspose2d(100, 512, 4), nn.BatchNorm2d(512), nn.ReLU(True)]
        for a, b in zip(widths, widths[1:]):
            generator += [nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b)]
            generator += [nn.ReLU(True)]
        self.generator = nn.Sequential(*generator, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())
        critic = [nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2, True)]
        for a, b in zip(widths[::-1], widths[-2::-1]):
            critic += [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b)]
            critic += [nn.LeakyReLU(0.2, True)]
        self.critic = nn.Sequential(*critic, nn.Conv2d(512, 1, 4))
        self.data = (torch.randn(batch, 100, 1, 1), torch.randn(batch, 3, 64, 64))

    def forward(self, noise, real):
        fake = self.generator(noise)
        loss = F.softplus(-self.critic(real).float()).mean()
        loss = loss + F.softplus(self.critic(fake.detach()).float()).mean()
        return loss + F.softplus(-self.critic(fake).float()).mean()


class WaveNet(nn.Module):
    """Gated, dilated convolutions of a sequence, with residuals and skips."""

    def __init__(self, batch, length=4096, width=64, blocks=2, layers=8):
        super().__init__()
        dilations = [2**i for i in range(layers)] * blocks
        self.first = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=d) for d in dilations)
        self.mix = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in dilations)
        self.skip = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in dilations)
        last = [nn.ReLU(), nn.Conv1d(width, 128, 1), nn.ReLU(), nn.Conv1d(128, 256, 1)]
        self.last = nn.Sequential(*last)
        self.data = (torch.randn(batch, 1, length), torch.randint(0, 256, (batch, length)))

    def forward(self, x, labels):
        x, total = self.first(x), 0
        for gate, mix, skip in zip(self.gates, self.mix, self.skip):
            a, b = gate(F.pad(x, (gate.dilation[0], 0))).chunk(2, 1)
            out = torch.tanh(a) * torch.sigmoid(b)
            total = total + skip(out)
            x = x + mix(out)
        return F.cross_entropy(self.last(total).float(), labels)


# Name -> what makes it from the batch and the length of an image's side.
MODELS = {
    "ResNet-50": lambda batch, size: Classifier("resnet50", batch, size),
    "ResNeXt-50": lambda batch, size: Classifier("resnext50_32x4d", batch, size),
    "MobileNetV2": lambda batch, size: Classifier("mobilenet_v2", batch, size),
    "EfficientNet-B0": lambda batch, size: Classifier("efficientnet_b0", batch, size),
    "ConvNeXt-T": lambda batch, size: Classifier("convnext_tiny", batch, size),
    "U-Net": lambda batch, size: UNet(2, batch, size, width=32, depth=4),
    "3-D U-Net": lambda batch, size: UNet(3, max(1, batch // 4), 48, width=16, depth=3),
    "DCGAN": lambda batch, size: DCGAN(4 * batch),
    "WaveNet": lambda batch, size: WaveNet(batch),
}


def spread(tensor, data_format):
    """A tensor or a parameter in the memory layout of a data format."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if data_format == "NXC" and tensor.dim() in formats:
        return tensor.to(memory_format=formats[tensor.dim()])
    return tensor


def autocast(dtype):
    return torch.autocast("cpu", TYPES[dtype]) if dtype != "f32" else contextlib.nullcontext()


class Trainer:
    """A model that takes steps."""

    def __init__(self, model, data, dtype):
        self.model, self.data, self.dtype = model, data, dtype
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.dtype):
            loss = self.model(*self.data)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def in_turns(calls, rounds, seconds=math.inf):
    """The fastest of each, in seconds; at least three rounds."""
    best = [math.inf] * len(calls)
    end = time.perf_counter() + seconds
    for number in range(rounds):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[i] = min(best[i], time.perf_counter() - start)
        if number >= 2 and time.perf_counter() > end:
            break
    return best


CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d,
                nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)  # fmt: skip


def find_layers(trainer):
    """[(name, module, input, how often)] of the convolutions in a step, equal ones once."""
    found = {}

    def note(name):
        def hook(module, inputs, _):
            x = inputs[0]
            key = (x.shape, x.stride(), x.dtype, x.requires_grad, module.weight.shape,
                   module.weight.stride(), module.stride, module.padding, module.dilation,
                   module.groups, type(module))  # fmt: skip
            if key in found:
                found[key][3] += 1
            else:
                found[key] = [name, module, x.detach().clone().requires_grad_(x.requires_grad), 1]

        return hook

    handles = [
        module.register_forward_hook(note(name))
        for name, module in trainer.model.named_modules()
        if isinstance(module, CONVOLUTIONS)
    ]
    trainer.step()
    for handle in handles:
        handle.remove()
    return list(found.values())


def layer_call(module, x, dtype):
    """Forward and backward of one layer."""
    wanted = [t for t in (x, *module.parameters()) if t.requires_grad]
    with autocast(dtype):
        grad = torch.ones_like(module(x))

    def call():
        with autocast(dtype):
            out = module(x)
        torch.autograd.grad(out, wanted, grad)

    return call


def measure_layers(trainer, options):
    rows = []
    for name, module, x, count in find_layers(trainer):
        ours = convgrad.torch.from_module(module)
        calls = [layer_call(m, x, trainer.dtype) for m in (module, ours)]
        in_turns(calls, 2)
        stock, accelerated = in_turns(calls, 50, options.layer_seconds)
        rows.append({
            "layer": name, "count": count, "input": list(x.shape), "weight": list(module.weight.shape),
            "stride": list(module.stride), "groups": module.groups, "kind": type(module).__name__,
            "stock_ms": stock * 1e3, "ours_ms": accelerated * 1e3, "ratio": stock / accelerated,
        })  # fmt: skip
    return rows


def make_model(name, data_format, options):
    """(model, data)"""
    torch.manual_seed(0)
    model = MODELS[name](options.batch, options.size)
    data = [spread(t, data_format) if t.is_floating_point() else t for t in model.data]
    for parameter in model.parameters():
        parameter.data = spread(parameter.data, data_format)
    return model, data


def peak_memory():
    """The largest resident size so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def print_memory(which, name, dtype, data_format, options):
    """For a process of its own: MiB that steps add to a model that is there."""
    model, data = make_model(name, data_format, options)
    if which == "accelerated":
        convgrad.torch.accelerate(model, policy=options.policy)
    trainer = Trainer(model, data, dtype)
    before = peak_memory()
    for _ in range(3):
        trainer.step()
    print(peak_memory() - before)


def measure_memory(name, dtype, data_format, options):
    """[stock, accelerated] in MiB. With blocks as mappings of their own, so that it is what was alive at
    once: the heap of glibc finds no room for an aligned block where an equal one was, and chance decides
    how far it grows (0.8 to 1.2 times as far for one as for the other)."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    same = ["--models", name, "--dtype", dtype, "--data-format", data_format, "--policy", options.policy]
    same += ["--batch", str(options.batch), "--size", str(options.size)]
    same += ["--threads", str(options.threads)]
    return [
        float(
            subprocess.check_output(
                [sys.executable, __file__, "--memory-of", which, *same], env=environment
            )
        )
        for which in ("stock", "accelerated")
    ]


def measure(name, dtype, data_format, options):
    model, data = make_model(name, data_format, options)
    kept = {k: v for k, v in {"policy": options.policy}.items() if v != "all"}
    accelerated = convgrad.torch.accelerate(copy.deepcopy(model), **kept)
    stock, ours = (Trainer(m, data, dtype) for m in (model, accelerated))
    torch.manual_seed(1)  # dropout
    first = stock.step()
    torch.manual_seed(1)
    apart = abs(first - ours.step()) / max(abs(first), 1e-3)
    in_turns([stock.step, ours.step], options.warm_up)
    times = in_turns([stock.step, ours.step], options.rounds)
    row = {
        "model": name, "dtype": dtype, "data_format": data_format, "batch": options.batch,
        "threads": torch.get_num_threads(), "policy": options.policy, "stock_ms": times[0] * 1e3,
        "ours_ms": times[1] * 1e3, "ratio": times[0] / times[1], "difference": apart,
        "agrees": apart <= TOLERANCE[dtype], "share": None, "layers": None,
        "memory_mib": None, "torch": torch.__version__, "native_operators": convgrad.torch.native_operators,
    }  # fmt: skip
    if options.memory:
        row["memory_mib"] = measure_memory(name, dtype, data_format, options)
    if options.layers:
        row["layers"] = measure_layers(stock, options)
        spent = sum(r["stock_ms"] * r["count"] for r in row["layers"])
        row["share"] = spent / row["stock_ms"]
    return row


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def print_table(rows):
    columns = list(dict.fromkeys((r["dtype"], r["data_format"]) for r in rows))
    print("| stock / accelerated | " + " | ".join(" ".join(c) for c in columns) + " |")
    print("|" + " --- |" * (len(columns) + 1))
    for model in dict.fromkeys(r["model"] for r in rows):
        cells = []
        for column in columns:
            of_model = [r for r in rows if r["model"] == model]
            found = [r for r in of_model if (r["dtype"], r["data_format"]) == column]
            text = f"{found[0]['ratio']:.2f}" if found else ""
            if found and found[0]["share"] is not None:
                text += f" ({found[0]['share']:.0%})"
            cells.append(text)
        print(f"| {model} | " + " | ".join(cells) + " |")
    means = [mean([r["ratio"] for r in rows if (r["dtype"], r["data_format"]) == c]) for c in columns]
    print("| geometric mean | " + " | ".join(f"{m:.2f}" for m in means) + " |")


def print_memory_table(rows):
    print("\n| model | type, layout | stock MiB | accelerated MiB | ratio |")
    print("|" + " --- |" * 5)
    for row in rows:
        stock, ours = row["memory_mib"]
        print(f"| {row['model']} | {row['dtype']} {row['data_format']} | {stock:.0f} | {ours:.0f} | {stock / ours:.2f} |")


def print_losers(rows, count=5):
    """Of each model, type and layout: the layers that lose, by milliseconds of a step."""
    print("\n| model | type, layout | layer | input | weight | times | stock ms | ours ms | ratio |")
    print("|" + " --- |" * 9)
    for row in rows:
        lost = lambda r: (r["ours_ms"] - r["stock_ms"]) * r["count"]
        losers = sorted((r for r in row["layers"] or [] if r["ratio"] < 0.97), key=lost)
        for r in losers[::-1][:count]:
            shapes = " | ".join("x".join(map(str, r[side])) for side in ("input", "weight"))
            print(f"| {row['model']} | {row['dtype']} {row['data_format']} | {r['layer']} | "
                  f"{shapes} | {r['count']} | {r['stock_ms']:.2f} | {r['ours_ms']:.2f} | {r['ratio']:.2f} |")  # fmt: skip


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS), help="of " + ", ".join(MODELS))
    parser.add_argument("--dtype", default="f32,bf16", help="bf16: autocast")
    parser.add_argument("--data-format", default="NCX,NXC")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=160, help="side of an image")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--policy", default="all", choices=["all", "faster"])
    parser.add_argument("--layers", action="store_true", help="measure each convolution too")
    parser.add_argument("--layer-seconds", type=float, default=0.2)
    parser.add_argument("--memory", action="store_true", help="measure the memory of a step too")
    parser.add_argument("--memory-of", choices=["stock", "accelerated"], help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one object per line")
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    rows = []
    for name in options.models.split(","):
        if name not in MODELS:
            sys.exit(f"models.py: {name} is none of {', '.join(MODELS)}")
        for dtype in options.dtype.split(","):
            for data_format in options.data_format.split(","):
                if name == "WaveNet" and data_format == "NXC":
                    continue  # PyTorch has no such layout of sequences
                if options.memory_of:
                    print_memory(options.memory_of, name, dtype, data_format, options)
                    return 0
                row = measure(name, dtype, data_format, options)
                rows.append(row)
                if options.json:
                    print(json.dumps(row), flush=True)
                else:
                    times = f"{row['stock_ms']:.0f} -> {row['ours_ms']:.0f} ms, {row['ratio']:.2f}"
                    print(f"{name} {dtype} {data_format}: {times}", file=sys.stderr, flush=True)
    if not options.json:
        print_table(rows)
        if options.memory:
            print_memory_table(rows)
        if options.layers:
            print_losers(rows)
    return 0 if all(r["agrees"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

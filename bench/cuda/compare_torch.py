#!/usr/bin/env python3
"""Layers on a GPU, ours and cuDNN's through PyTorch, in one run: a table of times and ratios.

    compare_torch.py [--cudnn] CONVGRAD_CUDA_BENCH [LAYERS]

LAYERS has one layer a line, as convgrad_cuda_bench reads them; without, a list of layers of known
networks. f32 is measured with TF32 off, and with TF32 on where the layer's math mode is fast. Times
are those of the device, without what calling takes the host. With --cudnn everything is measured a
second time with cuDNN as one more algorithm of the engine."""

import math
import subprocess
import sys

import torch
from gpu_clock import median_ms

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def default_layers():
    lines = []
    # name, batch, channels, size, kernel, stride
    depthwise = [("convnext56", 128, 96, 56, 7, 1), ("convnext28", 128, 192, 28, 7, 1),
        ("convnext14", 128, 384, 14, 7, 1), ("convnext7", 128, 768, 7, 7, 1),
        ("mnv2-112", 128, 32, 112, 3, 1), ("mnv2-56", 128, 144, 56, 3, 1), ("mnv2-56s2", 128, 144, 56, 3, 2),
        ("mnv2-14", 128, 576, 14, 3, 1), ("mnv2-7", 128, 960, 7, 3, 1), ("b0-56s2", 128, 144, 56, 5, 2),
        ("b0-28", 128, 240, 28, 5, 1), ("b0-14", 128, 672, 14, 5, 1)]
    for name, mb, c, size, k, s in depthwise:
        for t in ("f32", "bf16"):
            for layout in ("ncx", "nxc"):
                lines.append(f"dw-{name} {mb} {c} 1 1 {size} {k} {s} {k // 2} {t} {layout}")
    dense = [("resnet56", 64, 1, 64, 64, 56, 3, 1), ("resnet28", 64, 1, 128, 128, 28, 3, 1),
        ("resnet14", 64, 1, 256, 256, 14, 3, 1), ("resnet7", 64, 1, 512, 512, 7, 3, 1),
        ("resnet28s2", 64, 1, 128, 128, 56, 3, 2), ("1x1-56", 64, 1, 256, 64, 56, 1, 1),
        ("1x1-56b", 64, 1, 64, 256, 56, 1, 1), ("1x1-14", 64, 1, 1024, 256, 14, 1, 1)]
    stems = [("resnet", 64, 1, 3, 64, 224, 7, 2), ("convnext", 64, 1, 3, 96, 224, 4, 4)]
    groups = [("resnext56", 64, 32, 4, 4, 56, 3, 1), ("resnext28", 64, 32, 8, 8, 28, 3, 1),
        ("resnext14", 64, 32, 16, 16, 14, 3, 1), ("resnext7", 64, 32, 32, 32, 7, 3, 1),
        ("regnet28", 64, 5, 24, 24, 28, 3, 1)]
    for family, layers in (("dense", dense), ("stem", stems), ("groups", groups)):
        for name, mb, g, ic, oc, size, k, s in layers:
            pad = 0 if k == s else k // 2
            for t in ("f32", "bf16"):
                for layout in ("ncx", "nxc"):
                    lines.append(f"{family}-{name} {mb} {g} {ic} {oc} {size} {k} {s} {pad} {t} {layout}")
    for name, mb, g, ic, oc, size, k, s in dense:
        lines.append(f"tf32-{name} {mb} {g} {ic} {oc} {size} {k} {s} {k // 2} f32 nxc fast")
    return lines


def measure(line):
    name, *numbers = line.split()[:9]
    mb, groups, ic, oc = map(int, numbers[:4])
    size, kernel, stride, pad = ([int(v) for v in (text.split("x") * 2)[:2]] for text in numbers[4:])
    kind, layout, *more = line.split()[9:]
    torch.backends.cudnn.allow_tf32 = bool(more) and more[0] == "fast"
    form = torch.channels_last if layout == "nxc" else torch.contiguous_format
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=TYPES[kind]).to(memory_format=form)
    x, w = make(mb, groups * ic, *size), make(groups * oc, ic, *kernel)
    y = torch.nn.functional.conv2d(x, w, None, stride, pad, 1, groups)
    g = torch.randn_like(y)

    def backward(mask):
        return torch.ops.aten.convolution_backward(
            g, x, w, None, stride, pad, [1, 1], False, [0, 0], groups, mask)

    def forward():
        return torch.nn.functional.conv2d(x, w, None, stride, pad, 1, groups)

    work = {"forward": forward, "data": lambda: backward([True, False, False]),
        "weights": lambda: backward([False, True, False])}
    return {(name, what, kind, layout): median_ms(one, device_alone=True) for what, one in work.items()}


def run_bench(program, options, lines):
    """The rows that convgrad_cuda_bench prints, by layer, pass, type and layout."""
    done = subprocess.run([program, *options], input="\n".join(lines) + "\n", stdout=subprocess.PIPE, text=True, check=True)
    rows = {}
    for row in done.stdout.splitlines():
        name, what, kind, layout, algorithm, ms, share, rate = row.split(",")
        rows[name, what, kind, layout] = (algorithm, float(ms), float(share), float(rate))
    return rows


def main():
    arguments = [a for a in sys.argv[1:] if a != "--cudnn"]
    lines = open(arguments[1]).read().splitlines() if len(arguments) > 1 else default_layers()
    torch.backends.cudnn.benchmark = True
    kinds = [("", [])] + ([(" with cuDNN", ["--cudnn"])] if "--cudnn" in sys.argv else [])
    ours = [run_bench(arguments[0], options, lines) for _, options in kinds]
    ratios = {}
    print("layer,pass,type,layout,cuDNN ms" + "".join(
        f",algorithm{kind},ms,share of copy rate,TFLOP/s,cuDNN / ours" for kind, _ in kinds))
    for line in lines:
        for key, theirs in measure(line).items():
            text = ",".join(key) + f",{theirs:.4f}"
            for (kind, _), rows in zip(kinds, ours):
                algorithm, ms, share, rate = rows[key]
                text += f",{algorithm},{ms:.4f},{share:.2f},{rate:.1f},{theirs / ms:.2f}"
                family = key[0].split("-")[0]
                ratios.setdefault((family, key[1], key[2], key[3] + kind), []).append(theirs / ms)
            print(text, flush=True)
    for key, all_of in sorted(ratios.items()):
        mean = math.exp(sum(map(math.log, all_of)) / len(all_of))
        print(f"{' '.join(key)}: geometric mean {mean:.2f}, worst {min(all_of):.2f}")


if __name__ == "__main__":
    main()

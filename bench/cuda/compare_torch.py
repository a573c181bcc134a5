#!/usr/bin/env python3
"""Layers on a GPU, ours and cuDNN's through PyTorch, in one run: a table of times and ratios.

    compare_torch.py [--cudnn] [--fast] CONVGRAD_CUDA_BENCH [LAYERS]

LAYERS has one layer a line, as convgrad_cuda_bench reads them; without, ../layers_cuda.txt in all
types and layouts, or with --fast its dense layers in f32 and the math mode fast. f32 is measured
with TF32 off, and with TF32 on where the math mode is fast. Times are those of the device, without
what calling takes the host. The table goes to the standard output, as docs/measured/cuda_layers.csv has
it, means to the other one. With --cudnn everything is measured a second time with cuDNN as one more
algorithm of the engine. No Python package is needed: ../compare_torch.py --device cuda uses it."""

import math
import subprocess
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from gpu_clock import median_ms  # noqa: E402
from problems import Problem, read_batch  # noqa: E402

LIST = Path(__file__).resolve().parent.parent / "layers_cuda.txt"
LAYOUTS = ("nxc", "ncx")
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def default_layers(is_fast):
    """Lines for convgrad_cuda_bench: every listed layer in all types and layouts; in `fast` the dense ones."""
    lines = []
    for text in read_batch(LIST):
        p = Problem(text, deconv=False)
        x = p.x[0]  # squares
        shape = f"{p.mb} {p.groups} {p.ic // p.groups} {p.oc // p.groups} {x['in']} {x['kernel']} {x['stride']} {x['pad']}"
        if is_fast:
            if p.name.startswith("dense-"):
                lines += [f"{p.name} {shape} f32 {layout} fast" for layout in LAYOUTS]
        else:
            lines += [f"{p.name} {shape} {t} {layout}" for t in TYPES for layout in LAYOUTS]
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
    arguments = [a for a in sys.argv[1:] if a not in ("--cudnn", "--fast")]
    if not arguments or arguments[0].startswith("-"):
        sys.exit(__doc__)
    lines = Path(arguments[1]).read_text().splitlines() if len(arguments) > 1 else default_layers("--fast" in sys.argv)
    torch.backends.cudnn.benchmark = True
    kinds = [("", [])] + ([(" with cuDNN", ["--cudnn"])] if "--cudnn" in sys.argv else [])
    ours = [run_bench(arguments[0], options, lines) for _, options in kinds]
    ratios = {}
    print(f"# {torch.cuda.get_device_name()}, PyTorch {torch.__version__} with cuDNN {torch.backends.cudnn.version()}")
    columns = ("algorithm", "ms", "share of copy rate", "TFLOP/s", "cuDNN / ours")
    print("layer,pass,type,layout,cuDNN ms" + "".join(f",{c}{kind}" for kind, _ in kinds for c in columns))
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
        print(f"{' '.join(key)}: geometric mean {mean:.2f}, worst {min(all_of):.2f}", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Computes the problems that convgrad_accuracy exported with PyTorch on the CPU, as exchange.hpp says.

PyTorch takes convolutions to oneDNN where that supports them.
"""

import json
import pathlib
import re
import sys

import numpy
import torch


def compute(problem, a, b):
    """The result of one pass; a and b are its inputs in the order of the problem's pass."""
    # Leading axes of length 1 are no axes: oneDNN has kernels of its own for 1-D and 2-D.
    keys = ("src", "dst", "kernel", "stride", "dilation", "pad")
    axes = [[problem[key][i] for key in keys] for i in range(3)]
    used = [axis for axis in axes if axis != [1, 1, 1, 1, 1, 0]] or [axes[2]]
    src, dst, kernel, stride, dilation, pad = (list(column) for column in zip(*used))
    mb, groups, ic, oc = (problem[key] for key in ("mb", "groups", "ic", "oc"))
    shapes = {
        "src": [mb, groups * ic, *src],
        "dst": [mb, groups * oc, *dst],
        "weights": [groups * oc, ic, *kernel],
    }
    arguments = {"forward": ("src", "weights"), "backward_data": ("dst", "weights")}
    names = arguments.get(problem["pass"], ("src", "dst"))
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[problem["type"]]
    given = {
        name: torch.from_numpy(values).to(dtype).reshape(shapes[name])
        for name, values in zip(names, (a, b))
    }
    for name in ("src", "weights"):
        given.setdefault(name, torch.zeros(shapes[name], dtype=dtype))
    zeros = [0] * len(src)
    if problem["pass"] == "forward":
        convolution = torch.ops.aten.convolution
        return convolution(
            given["src"], given["weights"], None, stride, pad, dilation, False, zeros, groups
        )
    mask = [problem["pass"] == "backward_data", problem["pass"] == "backward_weights", False]
    results = torch.ops.aten.convolution_backward(
        given["dst"], given["src"], given["weights"], None, stride, pad, dilation, False, zeros,
        groups, mask,
    )
    return results[0] if mask[0] else results[1]


def main(directory):
    torch.set_num_threads(1)
    computed = 0
    with open(directory / "index.jsonl", encoding="utf-8") as index:
        for number, line in enumerate(index):
            problem = json.loads(line)
            if problem["out_type"] != problem["type"]:
                continue  # PyTorch has no f32 gradients of 16-bit data
            a, b = (
                numpy.fromfile(directory / f"{number}.{suffix}", dtype=numpy.float32)
                for suffix in "ab"
            )
            result = compute(problem, a, b).to(torch.float32).contiguous().numpy()
            result.tofile(directory / f"{number}.out")
            computed += 1
    onednn = re.search(r"MKL-DNN v(\S+)", torch.__config__.show())
    name = "PyTorch " + torch.__version__.split("+")[0]
    name += f", oneDNN {onednn[1]}" if onednn else ""
    (directory / "name").write_text(name + "\n", encoding="utf-8")
    print(f"computed {computed} problems")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

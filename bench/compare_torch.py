"""This library and PyTorch on the same problems, in turns: ratios of times.

    pip install . torch
    python bench/compare_torch.py --batch shapes.txt --dtype f32,bf16 --threads 2
    python bench/compare_torch.py mb16ic64ih56oc64kh3ph1 --data-format NXC,NCX --markdown

Both compute on the same tensors, contiguous (NCX) or in channels_last (NXC); weights are PyTorch's. Results
are compared, then each gets short rounds in turn, and the fastest call counts. Before each round the process
waits until no thread computes any more, so nobody runs beside the other's spinning threads.
"""

import argparse
import json
import math
import os
import re
import sys
import time

import torch
from problems import Problem, read_batch

import convgrad

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
TOLERANCE = {"f32": 1e-4, "bf16": 2**-7, "f16": 2**-9}
PASSES = ("fwd", "dat", "wei")


def spread(tensor, data_format):
    """The tensor in the memory layout of a data format; its shape stays N, C, X."""
    if data_format == "NCX":
        return tensor.contiguous()
    last = list(range(2, tensor.dim()))
    back = [0, tensor.dim() - 1] + list(range(1, tensor.dim() - 1))
    return tensor.permute(0, *last, 1).contiguous().permute(back)


def make_calls(problem, what, dtype, data_format, threads):
    """Two functions that compute the same, ours and PyTorch's."""
    p, ours = problem, convgrad
    generator = torch.Generator().manual_seed(1)

    def tensor(*shape):
        return (torch.rand(shape, generator=generator) * 2 - 1).to(TYPES[dtype])

    src = spread(tensor(p.mb, p.ic, *p.all("in")), data_format)
    dst = spread(tensor(p.mb, p.oc, *p.all("out")), data_format)
    sides = (p.ic, p.oc // p.groups) if p.deconv else (p.oc, p.ic // p.groups)
    weights = tensor(*sides, *p.all("kernel"))
    out = {"fwd": dst, "dat": src, "wei": weights}[what].clone()
    shared = {
        "strides": p.all("stride"), "dilations": p.all("dilation"), "groups": p.groups,
        "pads_begin": p.all("pad"), "pads_end": p.all("pad"), "data_format": "NCX",
        "weights_format": "IOX" if p.deconv else "OIX", "out": out,
        "engine": convgrad.Engine(threads=threads),
    }  # fmt: skip
    if p.deconv:
        shared["output_padding"] = p.all("extra")
    prefix = "conv_transpose" if p.deconv else "convolution"
    geometry = (p.all("stride"), p.all("pad"), p.all("dilation"), p.deconv, p.all("extra"), p.groups)

    def theirs_backward(data, weight):
        found = torch.ops.aten.convolution_backward(
            dst, src, weights, None, *geometry, [data, weight, False]
        )
        return found[0] if data else found[1]

    if what == "fwd":
        return (lambda: getattr(ours, prefix)(src, weights, **shared),
                lambda: torch.ops.aten.convolution(src, weights, None, *geometry))  # fmt: skip
    if what == "dat":
        extra = {} if p.deconv else {"dst_shape": tuple(src.shape)}
        return (lambda: getattr(ours, prefix + "_backward_data")(dst, weights, **extra, **shared),
                lambda: theirs_backward(True, False))  # fmt: skip
    shape = tuple(weights.shape)
    return (lambda: getattr(ours, prefix + "_backward_weights")(src, dst, shape, **shared),
            lambda: theirs_backward(False, True))  # fmt: skip


def wait_until_quiet():
    end = time.perf_counter() + 1
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(0.001)
        if time.process_time() - before < 0.0003:
            return


def play(calls, seconds, rounds):
    """The fastest call of each, in seconds."""
    best = [math.inf] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            wait_until_quiet()
            call()
            begin = time.perf_counter()
            while True:
                start = time.perf_counter()
                call()
                now = time.perf_counter()
                best[i] = min(best[i], now - start)
                if now - begin >= seconds / rounds / len(calls):
                    break
    return best


def difference(a, b):
    a, b = a.float(), b.float()
    return ((a - b).abs().max() / a.abs().max().clamp_min(1e-30)).item()


def measure(problem, what, dtype, data_format, options):
    calls = make_calls(problem, what, dtype, data_format, options.threads)
    apart = difference(calls[0](), calls[1]())
    ours, theirs = play(calls, options.seconds, options.rounds)
    return {
        "pass": what, "dtype": dtype, "data_format": data_format, "name": problem.name,
        "deconv": problem.deconv, "threads": options.threads, "min_ms": ours * 1e3,
        "peer": "PyTorch " + torch.__version__, "peer_ms": theirs * 1e3, "ratio": theirs / ours,
        "difference": apart, "agrees": apart <= TOLERANCE[dtype],
    }  # fmt: skip


def case_of(result):
    return tuple(result[key] for key in ("name", "deconv", "pass", "dtype", "data_format", "threads"))


def known_or_measured(known, problem, what, dtype, data_format, options):
    case = (problem.name, problem.deconv, what, dtype, data_format, options.threads)
    if case in known:
        return known[case]
    result = measure(problem, what, dtype, data_format, options)
    line = json.dumps(result)
    if options.json:
        print(line, flush=True)
    if options.resume:
        with open(options.resume, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    return result


def print_rows(rows, markdown):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        if markdown:
            print("| " + " | ".join(row) + " |")
            if number == 0:
                print("|" + " --- |" * len(row))
        else:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def print_tables(results, markdown):
    rows = [["problem", "dtype", "layout", "pass", "ours ms", "PyTorch ms", "ratio", "difference"]]
    groups = {}
    for r in results:
        rows.append(
            [r["name"], r["dtype"], r["data_format"], r["pass"], f"{r['min_ms']:.3f}",
             f"{r['peer_ms']:.3f}", f"{r['ratio']:.2f}", f"{r['difference']:.1e}"]  # fmt: skip
        )
        groups.setdefault((r["dtype"], r["data_format"], r["pass"]), []).append(r)
    print_rows(rows, markdown)
    summary = [["type, layout", "pass", "problems", "geometric mean", "worst", "of"]]
    for (dtype, data_format, what), list_ in groups.items():
        mean = math.exp(sum(math.log(r["ratio"]) for r in list_) / len(list_))
        worst = min(list_, key=lambda r: r["ratio"])
        summary.append([f"{dtype} {data_format}", what, str(len(list_)), f"{mean:.2f}",
                        f"{worst['ratio']:.2f}", worst["name"]])  # fmt: skip
    print("\nTime of PyTorch / ours:\n")
    print_rows(summary, markdown)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", metavar="PROBLEM")
    parser.add_argument("--batch", action="append", default=[], metavar="FILE")
    parser.add_argument("--deconv", action="store_true", help="transposed convolutions")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--data-format", default="NXC")
    parser.add_argument("--passes", default=",".join(PASSES))
    parser.add_argument("--match", default="", help="only problems whose text matches this expression")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=0.5, help="for each case, about")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one object per line")
    parser.add_argument("--resume", metavar="FILE", help="append results to this file, and do not measure again what it has")
    parser.add_argument("--markdown", action="store_true")
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    texts = options.problems + [word for path in options.batch for word in read_batch(path)]
    known = {}
    if options.resume and os.path.exists(options.resume):
        with open(options.resume, encoding="utf-8") as lines:
            known = {case_of(r): r for r in map(json.loads, lines)}
    results = []
    for text in texts:
        if not re.search(options.match, text):
            continue
        try:
            problem = Problem(text, options.deconv)
        except NotImplementedError as reason:
            print(f"{text}: left out: {reason}", file=sys.stderr)
            continue
        for dtype in options.dtype.split(","):
            for data_format in options.data_format.split(","):
                for what in options.passes.split(","):
                    results.append(known_or_measured(known, problem, what, dtype, data_format, options))
    if results and not options.json:
        print_tables(results, options.markdown)
    return 0 if all(r["agrees"] for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())

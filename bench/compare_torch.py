"""This library and PyTorch on the same problems, in turns: ratios of times.

    pip install . torch
    python bench/compare_torch.py --batch shapes.txt --dtype f32,bf16 --threads 2
    python bench/compare_torch.py mb16ic64ih56oc64kh3ph1 --data-format NXC,NCX --markdown
    python bench/compare_torch.py --device cuda --batch bench/layers_cuda.txt --dtype f32,tf32,bf16,f16 --data-format NXC,NCX

Both compute on the same tensors, contiguous (NCX) or in channels_last (NXC). Results are compared, then each gets
short rounds in turn.

On a CPU weights are contiguous, and the fastest call counts. Before each round the process waits until no thread
computes any more, so nobody runs beside the other's spinning threads.

On a GPU (--device cuda or cuda:N) PyTorch is cuDNN with cudnn.benchmark on, weights have the layout of the data, and
the median of what the device alone takes counts, by CUDA events: it is kept busy until a call is queued. f32 is with
TF32 off, tf32 the same tensors with cuDNN allowed to use TF32; ours is at f32 accuracy in both. Needs the CUDA engine:
pip install . --config-settings=cmake.define.CONVGRAD_CUDA=ON

Passes: fwd, dat and wei (the gradients of data and weights), bwd (both in one call).
"""

import argparse
import json
import math
import os
import re
import sys

from problems import Problem, read_batch

TYPES = ("f32", "tf32", "bf16", "f16")
PASSES = ("fwd", "dat", "wei", "bwd")
FORMATS = ("NXC", "NCX")


def device_of(text):
    """("cpu", 0), or ("cuda", N)."""
    found = re.fullmatch(r"(cpu)|cuda(?::(\d+))?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text} is not cpu, cuda or cuda:N")
    return ("cpu", 0) if found[1] else ("cuda", int(found[2] or 0))


def some_of(known):
    """For an argument that is a list of words with commas."""

    def parse(text):
        words = text.split(",")
        wrong = [w for w in words if w not in known]
        if wrong:
            raise argparse.ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(known)}")
        return words

    return parse


def arguments(given=None):
    words = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=words)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help="in benchdnn's syntax (docs/command.md)")
    parser.add_argument("--batch", action="append", default=[], metavar="FILE", help="problems, one a line")
    parser.add_argument("--device", type=device_of, default=("cpu", 0), metavar="cpu|cuda[:N]")
    parser.add_argument("--deconv", action="store_true", help="transposed convolutions")
    parser.add_argument("--dtype", type=some_of(TYPES), default=["f32"], help="of " + ",".join(TYPES))
    parser.add_argument("--data-format", type=some_of(FORMATS), default=["NXC"], help="of " + ",".join(FORMATS))
    parser.add_argument("--passes", type=some_of(PASSES), default=list(PASSES[:3]), help="of " + ",".join(PASSES))
    parser.add_argument("--match", default="", help="only problems whose text matches this expression")
    parser.add_argument("--threads", type=int, help="of a CPU; default: PyTorch's")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each case, about")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one object per line")
    parser.add_argument("--resume", metavar="FILE", help="append results to this file, and do not measure again what it has")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args(given)
    if options.device[0] == "cpu" and "tf32" in options.dtype:
        parser.error("tf32 needs --device cuda")
    if options.device[0] == "cuda" and options.threads is not None:
        parser.error("--threads is about CPUs")
    return options


def why_no_cuda(torch, index, convgrad_torch):
    """Why this machine, PyTorch or the package cannot compare on a GPU; None if they can. `convgrad_torch` imports the
    package's part for PyTorch, which comes last: it may start a compiler."""
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} was built without CUDA"
    if not torch.cuda.is_available():
        return "PyTorch sees no GPU"
    if index >= torch.cuda.device_count():
        return f"there is no device {index}: PyTorch sees {torch.cuda.device_count()}"
    ours, core = convgrad_torch()
    if not ours.native_operators:
        return ("the operators in C++ have not been built, without which convgrad computes on CPUs only: "
                'python -c "import convgrad.torch; convgrad.torch.build_operators()"')  # fmt: skip
    if not core.has_cuda_device(index):
        return ("convgrad has no CUDA engine for this device; the package is built with it by "
                "pip install . --config-settings=cmake.define.CONVGRAD_CUDA=ON")  # fmt: skip
    return None


def import_convgrad_torch():
    import convgrad._core
    import convgrad.torch

    return convgrad.torch, convgrad._core


def open_device(options):
    """What computes: an object of torch_calls."""
    try:
        import torch
    except ImportError:
        sys.exit("compare_torch.py: PyTorch is not installed: pip install torch")
    kind, index = options.device
    if kind == "cuda":
        why = why_no_cuda(torch, index, import_convgrad_torch)
        if why is not None:
            sys.exit(f"compare_torch.py: --device cuda: {why}")
    import torch_calls

    torch.set_grad_enabled(False)
    return torch_calls.Cuda(index) if kind == "cuda" else torch_calls.Cpu(options.threads)


def measure(on, problem, what, dtype, data_format, options):
    import torch_calls

    on.settings(dtype)
    calls = on.calls(problem, what, dtype, data_format)
    apart = torch_calls.difference(calls[0](), calls[1]())
    ours, theirs = on.times(calls, options.seconds, options.rounds)
    return {
        "pass": what, "dtype": dtype, "data_format": data_format, "name": problem.name,
        "deconv": problem.deconv, "threads": on.threads, "device": options.device[0], "min_ms": ours,
        "peer": on.peer, "peer_ms": theirs, "ratio": theirs / ours,
        "difference": apart, "agrees": apart <= torch_calls.TOLERANCE[dtype],
    }  # fmt: skip


def case_of(result):
    known = tuple(result[key] for key in ("name", "deconv", "pass", "dtype", "data_format", "threads"))
    return (*known, result.get("device", "cpu"))


def known_or_measured(known, on, problem, what, dtype, data_format, options):
    case = (problem.name, problem.deconv, what, dtype, data_format, on.threads, options.device[0])
    if case in known:
        return known[case]
    result = measure(on, problem, what, dtype, data_format, options)
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
    print(f"\nTime of {results[0]['peer']} / ours:\n")
    print_rows(summary, markdown)


def problems_of(options):
    texts = options.problems + [word for path in options.batch for word in read_batch(path)]
    for text in texts:
        if re.search(options.match, text):
            try:
                yield Problem(text, options.deconv)
            except NotImplementedError as reason:
                print(f"{text}: left out: {reason}", file=sys.stderr)


def main():
    options = arguments()
    on = open_device(options)
    known = {}
    if options.resume and os.path.exists(options.resume):
        with open(options.resume, encoding="utf-8") as lines:
            known = {case_of(r): r for r in map(json.loads, lines)}
    results = [
        known_or_measured(known, on, problem, what, dtype, data_format, options)
        for problem in problems_of(options)
        for dtype in options.dtype
        for data_format in options.data_format
        for what in options.passes
    ]
    if results and not options.json:
        print_tables(results, options.markdown)
    return 0 if all(r["agrees"] for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())

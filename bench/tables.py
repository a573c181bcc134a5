#!/usr/bin/env python3
"""Everything for docs/performance.md in one command: all problems, types, layouts and passes.

    bench/tables.py --bin build/release/bin --conv conv.txt --deconv deconv.txt --out results > tables.md

Results are kept in the directory `--out`, problem by problem; a run that was interrupted goes on where it
stopped. `convgrad bench` gives GFLOP/s and shares of the roofline, `convgrad-compare`, where it was built, the
ratios to oneDNN.
"""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

TYPES = ("f32", "bf16", "f16")
FORMATS = ("NXC", "NCX")
PASSES = ("fwd", "dat", "wei")


def pass_of(op):
    return "dat" if op.endswith("Data") else "wei" if op.endswith("Weights") else "fwd"


def problems(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        for word in line.split():
            if word.startswith("#"):
                break
            if not word.startswith("-"):
                yield word


def known(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]


def bench(options, path, deconv):
    """All results of one file's problems, measured or remembered."""
    store = options.out / ("deconv.jsonl" if deconv else "conv.jsonl")
    marks = options.out / (store.stem + ".done")
    done = set(marks.read_text(encoding="utf-8").split()) if marks.exists() else set()
    words = list(problems(path))
    for number, word in enumerate(words, 1):
        if word in done:
            continue
        print(f"{path.name} {number}/{len(words)} {word}", file=sys.stderr)
        command = [*options.run, options.bin / "convgrad", "bench", "--json", "--quiet", "--dtype", "all",
                   "--data-format", "all", "--threads", str(options.threads), "--seconds",
                   str(options.seconds), word]  # fmt: skip
        if deconv:
            command.append("--deconv")
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        with store.open("a", encoding="utf-8") as file:
            file.write(found)
        with marks.open("a", encoding="utf-8") as file:
            file.write(word + "\n")
    return known(store)


def row(cells):
    return "| " + " | ".join(cells) + " |"


def print_bench(results, title):
    columns = [(t, f, p) for t in TYPES for f in FORMATS for p in PASSES]
    cells, names = {}, []
    for r in results:
        name = r["name"] or r["problem"]
        if name not in names:
            names.append(name)
        cells[name, r["dtype"], r["data_format"], pass_of(r["op"])] = r
    print(f"\n### {title}: GFLOP/s (share of the roofline, %)\n")
    print(row(["problem"] + [" ".join(c) for c in columns]))
    print(row(["---"] + ["---:"] * len(columns)))
    for name in names:
        line = [name]
        for column in columns:
            r = cells.get((name, *column))
            line.append(f"{r['gflops']:.4g} ({r['roofline'] * 100:.0f})" if r else "–")
        print(row(line))
    line = ["geometric mean of shares"]
    for column in columns:
        shares = [r["roofline"] for key, r in cells.items() if key[1:] == column]
        mean = math.exp(sum(map(math.log, shares)) / len(shares)) if shares else 0
        line.append(f"{mean * 100:.0f} %")
    print(row(line))


def print_compare(options, path, deconv):
    program = options.bin / "convgrad-compare"
    if not program.exists():
        print(f"{program} is not there: no ratios to oneDNN", file=sys.stderr)
        return
    command = [*options.run, program, "--batch", path, "--dtype", "all", "--data-format", "all", "--threads",
               str(options.threads), "--seconds", str(options.seconds), "--resume",
               options.out / "compare.jsonl", "--markdown", *options.compare]  # fmt: skip
    if deconv:
        command.append("--deconv")
    found = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    print("\n### Transposed convolution beside oneDNN\n" if deconv else "\n### Convolution beside oneDNN\n")
    print(found.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=Path("build/release/bin"), help="where the commands are")
    parser.add_argument("--conv", type=Path, help="file with convolutions")
    parser.add_argument("--deconv", type=Path, help="file with transposed convolutions")
    parser.add_argument("--out", type=Path, default=Path("results"), help="directory that keeps results")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each case")
    parser.add_argument("--run", type=str.split, default=[], help="words before each command, e.g. 'taskset -c 0,1'")
    parser.add_argument("--compare", type=str.split, default=[], help="more options for convgrad-compare")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for path, deconv, title in ((options.conv, False, "Convolution"), (options.deconv, True, "Transposed convolution")):
        if path:
            print_bench(bench(options, path, deconv), title)
            print_compare(options, path, deconv)


if __name__ == "__main__":
    main()

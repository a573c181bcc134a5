"""Tables of layers on a GPU beside cuDNN, for scripts/measured.py: from docs/measured/cuda_layers.csv, the list of
layers bench/layers_cuda.txt and the device's limits in about.json."""

import csv
import json
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from problems import Problem, read_batch  # noqa: E402

LIST = ROOT / "bench/layers_cuda.txt"
DATA = ROOT / "docs/measured/cuda_layers.csv"
COLUMNS = ["layer", "pass", "type", "layout", "cuDNN ms", "ms"]
KINDS = {"dw": "depthwise", "groups": "groups", "stem": "first layers", "dense": "dense", "pw": "more 1×1 layers"}
PASSES = {"forward": "forward", "data": "data gradient", "weights": "weights gradient"}
SHORT = {"fwd": "forward", "dat": "data", "wei": "weights"}
TYPES = ["f32", "tf32", "bf16", "f16"]
LAYOUTS = ["nxc", "ncx"]


def problems():
    """{name: problem} in the order of the list."""
    listed = (Problem(text, deconv=False) for text in read_batch(LIST))
    return {p.name: p for p in listed}


def kind_of(name):
    return KINDS[name.partition("-")[0]]


def limit_ms(problem, dtype, limits):
    """What copying all tensors once or all multiply-adds take, whichever is longer."""
    inputs, outputs, taps = (math.prod(problem.all(key)) for key in ("in", "out", "kernel"))
    weights = problem.oc * problem.ic // problem.groups * taps
    elements = problem.mb * (problem.ic * inputs + problem.oc * outputs) + weights
    size, peak = (4, limits["multiply_adds_tflops"]) if dtype in ("f32", "tf32") else (2, limits["mma_tflops"])
    operations = 2 * problem.mb * outputs * weights
    return max(elements * size / limits["copies_tb_s"], operations / peak) / 1e9


def gather(paths):
    """Writes cuda_layers.csv from results of `compare_torch.py --device cuda --json`; of several the fastest
    counts, on either side."""
    best = {}
    for path in paths:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            r = json.loads(line)
            if r["pass"] not in SHORT:
                continue
            if not r["agrees"]:
                sys.exit(f"{path}: results differ: {line}")
            key = (r["name"], SHORT[r["pass"]], r["dtype"], r["data_format"].lower())
            times = (r["peer_ms"], r["min_ms"])
            best[key] = tuple(map(min, zip(best.get(key, times), times)))
    orders = [list(problems()), list(PASSES), TYPES, LAYOUTS]
    place = lambda key: [orders[i].index(key[i]) for i in (0, 2, 3, 1)]
    with DATA.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([*key, *(f"{ms:.4g}" for ms in best[key])] for key in sorted(best, key=place))


def read(limits):
    """{(layer, pass, type, layout): (cuDNN's ms, ours, the limit's)}, and the problems by their names."""
    listed = problems()
    with DATA.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    found = {}
    for r in rows:
        if r["layer"] not in listed:
            sys.exit(f"{DATA.relative_to(ROOT)}: {r['layer']} is not in {LIST.relative_to(ROOT)}")
        key = tuple(r[column] for column in COLUMNS[:4])
        found[key] = (float(r["cuDNN ms"]), float(r["ms"]), limit_ms(listed[r["layer"]], r["type"], limits))
    return found, listed


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def columns_of(cases):
    """(type, layout) of all cases."""
    return [(t, form) for t in TYPES for form in LAYOUTS if any(key[2:] == (t, form) for key in cases)]


def by_kind(cases, table, head, cell):
    """A row for each kind of layers; `cell` makes text of the times of one pass, type and layout."""
    rows = []
    for kind in KINDS.values():
        cells = []
        for column in columns_of(cases):
            times = [[v for key, v in cases.items() if key[1:] == (what, *column) and kind_of(key[0]) == kind]
                     for what in PASSES]  # fmt: skip
            cells.append(" / ".join(map(cell, times)) if all(times) else "–")
        rows.append([kind, *cells])
    return table([head, *(f"{t} {form.upper()}" for t, form in columns_of(cases))], rows)


def ratios(times):
    found = [theirs / ours for theirs, ours, _ in times]
    return f"{mean(found):.2f} ({min(found):.2f})"


def summary(cases, table):
    faster = sum(theirs >= ours for theirs, ours, _ in cases.values())
    head = "cuDNN / convgrad, forward / data gradient / weights gradient"
    return by_kind(cases, table, head, ratios) + f"\nIn {faster} of {len(cases)} cases convgrad is faster.\n"


def distance(cases, table):
    cell = lambda times: f"{mean([ours / limit for _, ours, limit in times]):.1f}"
    return by_kind(cases, table, "times the limit, geometric mean", cell)


def shape_of(p):
    size = lambda key: "×".join(str(n) for n in p.all(key))
    channels = f"{p.ic} → {p.oc} channels"
    if p.groups > 1:
        each = p.ic // p.groups
        channels = f"{p.ic} channels" if each == 1 else f"{p.groups} groups of {each} channels"
    stride = f", stride {p.all('stride')[0]}" if p.all("stride")[0] > 1 else ""
    return f"{size('kernel')}{stride}, {channels}, {size('in')}, batch {p.mb}"


def layers(cases, listed, table):
    """Every case, a table for each kind of layers."""
    parts = []
    for kind in KINDS.values():
        rows = []
        for name in (n for n in listed if kind_of(n) == kind):
            label = f"{name}: {shape_of(listed[name])}"
            for t, form in columns_of([key for key in cases if key[0] == name]):
                cells = []
                for what in PASSES:
                    theirs, ours, limit = cases[name, what, t, form]
                    cells.append(f"{theirs:.4g} / {ours:.4g} / {theirs / ours:.2f} / {ours / limit:.1f}")
                rows.append([label, t, form.upper(), *cells])
                label = ""
        parts.append(table([kind, "type", "layout", *PASSES.values()], rows))
    return "\n".join(parts)


def where(about):
    limits = about["limits"]
    return (f"Measured on {about['device']}, {about['date']}, beside {about['peer']}, TF32 off. Limits measured there: "
            f"copies {limits['copies_tb_s']} TB/s, f32 multiply-adds {limits['multiply_adds_tflops']} TFLOP/s, 16-bit "
            f"products on tensor cores by `mma` {limits['mma_tflops']} TFLOP/s.\n")  # fmt: skip


def parts(about, table):
    """What stands between the documents' marks."""
    cases, listed = read(about["limits"])
    return {
        "cuda-where": where(about),
        "cuda-summary": summary(cases, table),
        "cuda-limits": distance(cases, table),
        "cuda-layers": layers(cases, listed, table),
    }

#!/usr/bin/env python3
"""What was measured, as pictures and tables: everything between `<!-- measured: … -->` marks, and the plots.

    scripts/measured.py                        writes docs/images/*.svg and the tables in the documents
    scripts/measured.py --check                fails if one of them is not what the data say
    scripts/measured.py --layers RESULT.jsonl… first makes docs/measured/layers.csv from results of
                                               convgrad-compare and compare_torch.py on bench/layers*.txt;
                                               of several runs the fastest counts, on either side
    scripts/measured.py --winograd RESULT.jsonl…
                                               first makes docs/measured/winograd.csv from results of
                                               `convgrad bench --model --math fast --json` and
                                               `convgrad explain --math fast --json` on 3×3 layers
    scripts/measured.py --cuda RESULT.jsonl…   first makes docs/measured/cuda_layers.csv from results of
                                               `compare_torch.py --device cuda --json` on bench/layers_cuda.txt

The data are files of docs/measured: layers.csv (one layer, pass, type and layout a line), models.jsonl (training
steps, as bench/models.py --json writes them), calls.csv (what a call costs), winograd.csv (time and error of each
tile), cuda_layers.csv (one layer, pass, type and layout on a GPU a line), about.json (machines, threads, dates).
Needs Python alone.
"""

import csv
import json
import math
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import measured_cuda  # noqa: E402
import measured_plot  # noqa: E402
import winograd_plot  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs/measured"
COLUMNS = ["class", "name", "pass", "dtype", "data_format", "peer", "peer_ms", "convgrad_ms"]
CLASSES = ["3×3", "3×3, stride 2", "1×1", "depthwise", "groups", "stem", "dilated", "3-D", "1-D", "transposed"]
PASSES = {"fwd": "forward", "dat": "data gradient", "wei": "weights gradient"}
KINDS = [("f32", "NXC"), ("f32", "NCX"), ("bf16", "NXC"), ("bf16", "NCX")]
MARK = re.compile(r"(<!-- measured: ([\w-]+) -->\n).*?(<!-- /measured -->)", re.S)


def mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


# Layers


def class_of(problem, transposed):
    """The class of a problem in benchdnn's syntax."""
    sizes = {key: int(value) for key, value in re.findall(r"([a-z]+)(\d+)", problem)}
    axes = [a for a in "dhw" if "k" + a in sizes]
    if transposed:
        return "transposed"
    if "kd" in sizes:
        return "3-D"
    if axes == ["w"]:
        return "1-D"
    if sizes.get("g", 1) > 1:
        return "depthwise" if sizes["g"] == sizes["ic"] else "groups"
    if sizes["ic"] <= 4:
        return "stem"
    if sizes.get("dh", 0) > 0:
        return "dilated"
    if sizes["kh"] == 1:
        return "1×1"
    return "3×3, stride 2" if sizes.get("sh", 1) > 1 else "3×3"


def classes():
    """{name of a layer: its class}, from the lists that were measured."""
    found = {}
    for path, transposed in (("bench/layers.txt", False), ("bench/layers_transposed.txt", True)):
        for line in (ROOT / path).read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                problem, _, name = line.partition("n\"")
                found[name.rstrip('"')] = class_of(problem, transposed)
    return found


def gather_layers(paths):
    """Writes layers.csv from the results of benchmarks."""
    best, kinds = {}, classes()
    for path in paths:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            r = json.loads(line)
            if not r["agrees"]:
                sys.exit(f"{path}: results differ: {line}")
            what = r.get("pass") or ("dat" if r["op"].endswith("Data") else "wei" if r["op"].endswith("Weights") else "fwd")
            key = (kinds[r["name"]], r["name"], what, r["dtype"], r["data_format"], r["peer"].split()[0])
            times = (r["peer_ms"], r["min_ms"])
            best[key] = tuple(map(min, zip(best.get(key, times), times)))
    order = {kind: i for i, kind in enumerate(CLASSES)}
    rows = sorted(best, key=lambda k: (k[5], order[k[0]], k[1], k[3] != "f32", k[4] != "NXC", list(PASSES).index(k[2])))
    with (DATA / "layers.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([*key, *(f"{ms:.4g}" for ms in best[key])] for key in rows)


def read_layers():
    with (DATA / "layers.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["ratio"] = float(row["peer_ms"]) / float(row["convgrad_ms"])
    return rows


def by_class(layers, peer, dtype):
    """[(class, geometric mean of ratios)]"""
    chosen = [r for r in layers if r["peer"] == peer and r["dtype"] == dtype]
    return [(kind, mean(r["ratio"] for r in chosen if r["class"] == kind)) for kind in CLASSES]


def layer_summary(layers, peer):
    """Geometric mean and worst case of each pass, type and layout."""
    rows = []
    for what, words in PASSES.items():
        cells = []
        for dtype, form in KINDS:
            ratios = [r["ratio"] for r in layers if (r["peer"], r["pass"], r["dtype"], r["data_format"]) == (peer, what, dtype, form)]
            cells.append(f"{mean(ratios):.2f}, {min(ratios):.2f}")
        rows.append([words, *cells])
    ratios = [r["ratio"] for r in layers if r["peer"] == peer]
    count = f"\nIn {sum(r >= 1 for r in ratios)} of {len(ratios)} cases convgrad is faster.\n"
    return table(["geometric mean, worst", *map(" ".join, KINDS)], rows) + count


def layer_list(layers, peer):
    """Every layer: forward / data gradient / weights gradient."""
    rows = []
    for kind in CLASSES:
        for name in dict.fromkeys(r["name"] for r in layers if r["class"] == kind):
            cells = []
            for dtype, form in KINDS:
                found = {r["pass"]: r["ratio"] for r in layers
                         if (r["peer"], r["name"], r["dtype"], r["data_format"]) == (peer, name, dtype, form)}  # fmt: skip
                cells.append(" / ".join(f"{found[p]:.2f}" for p in PASSES) if found else "–")
            rows.append([kind, name, *cells])
    return table(["class", "layer", *map(" ".join, KINDS)], rows)


# Models and calls


MODEL_HEAD = ["f32 NCX", "f32 NXC", "bf16 autocast NCX", "bf16 autocast NXC"]
MODEL_COLUMNS = [("f32", "NCX"), ("f32", "NXC"), ("bf16", "NCX"), ("bf16", "NXC")]


def read_models(what="ratio"):
    """{(policy, model, dtype, data_format): ratio}; the last line of a case that has it counts."""
    path = DATA / "models.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines if line]
    return {(r["policy"], r["model"], r["dtype"], r["data_format"]): r[what] for r in rows if r[what] is not None}


def memory_table():
    """What steps add to the largest resident size: stock and accelerated."""
    memory = {key[1:]: value for key, value in read_models("memory_mib").items() if key[0] == "all"}
    cell = lambda pair: f"{pair[0]:.0f} → {pair[1]:.0f}" if pair else ""
    rows = [[name, *(cell(memory.get((name, *c))) for c in MODEL_COLUMNS)] for name in dict.fromkeys(k[0] for k in memory)]
    return table(["MiB, stock → accelerated", *MODEL_HEAD], rows)


def model_table(models, policy):
    columns = MODEL_COLUMNS
    names = list(dict.fromkeys(m for p, m, _, _ in models if p == policy))
    rows = []
    for name in names:
        ratios = [models.get((policy, name, *c)) for c in columns]
        rows.append([name, *(f"{r:.2f}" if r else "" for r in ratios)])
    means = [mean(r for (p, _, *c), r in models.items() if p == policy and tuple(c) == column) for column in columns]
    rows.append(["geometric mean", *(f"{m:.2f}" for m in means)])
    return table(["stock / accelerated", *MODEL_HEAD], rows)


def read_calls():
    with (DATA / "calls.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# Winograd's tiles


def sizes_of(problem):
    return {key: int(value) for key, value in re.findall(r"([a-z]+)(\d+)", problem)}


def gather_winograd(paths):
    """Writes winograd.csv: time of direct sums and of each tile, and the tile's error, by channels (weights
    gradient: by positions)."""
    times, errors = {}, {}
    for path in paths:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            r = json.loads(line)
            sizes, weights = sizes_of(r["problem"]), r["op"].endswith("Weights")
            size = sizes["mb"] * sizes["ih"] ** 2 if weights else sizes["ic"]
            for row in r.get("rows", []):
                key = ("wei" if weights else "fwd", row["algorithm"].partition(".")[0], size)
                if row["isa"] == r["isa"]:
                    times[key] = min(times.get(key, math.inf), row["min_ms"])
            for row in [r, *r["refused"]] if "refused" in r else []:
                errors["wei" if weights else "fwd", row["algorithm"].partition(".")[0], size] = row["error"]
    with (DATA / "winograd.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["pass", "tile", "size", "direct_ms", "tile_ms", "error"])
        for what, tile, size in sorted(times):
            if tile in winograd_plot.TILES:
                own = (what, tile, size)
                writer.writerow([*own, f"{times[what, 'tiled', size]:.4g}", f"{times[own]:.4g}", f"{errors[own]:.3g}"])


def read_winograd():
    with (DATA / "winograd.csv").open(encoding="utf-8", newline="") as file:
        return [{"pass": r["pass"], "tile": r["tile"], "size": int(r["size"]), "error": float(r["error"]),
                 "speed": float(r["direct_ms"]) / float(r["tile_ms"])} for r in csv.DictReader(file)]  # fmt: skip


def microseconds(calls, name):
    return next(float(c["us"]) for c in calls if c["call"] == name)


def call_table(calls):
    rows = [[c["call"], f"{float(c['us']):.2g}"] for c in calls if not c["pytorch_us"]]
    return table(["", "µs"], rows)


def torch_table(calls):
    rows = []
    for c in (c for c in calls if c["pytorch_us"]):
        ours, theirs = float(c["us"]), float(c["pytorch_us"])
        rows.append([c["call"], f"{ours:.2g}", f"{theirs:.2g}", f"{ours / theirs:.2f}"])
    return table(["", "`convgrad.torch`, µs", "`torch`, µs", "ratio"], rows)


def ways_table(calls):
    us = {name: f"{microseconds(calls, name):.1f} µs" for name in
          ("C++, eager call", "C++, compile()", "C++, compiled call", "C++, graph to compiled partition")}  # fmt: skip
    return table(["", "when", "made ready", "each call", "example"], [
        ["eager", "one line per op", "–", us["C++, eager call"],
         "[gradient_eager.cpp](examples/gradient_eager.cpp), [layer.cpp](examples/layer.cpp)"],
        ["`compile()`", "the same op and shapes many times", us["C++, compile()"], us["C++, compiled call"],
         "[accumulate.cpp](examples/accumulate.cpp)"],
        ["graph", "shapes known late, ops joined by tensors", us["C++, graph to compiled partition"],
         us["C++, compiled call"], "[gradient_graph.cpp](examples/gradient_graph.cpp)"],
    ])  # fmt: skip


# Documents


def five_numbers(layers, models, calls, about):
    def ratio(peer, dtype):
        return f"{mean(r['ratio'] for r in layers if r['peer'] == peer and r['dtype'] == dtype):.2f}"

    rows = []
    if models:
        steps = {t: mean(r for (p, _, d, _), r in models.items() if p == "all" and d == t) for t in ("f32", "bf16")}
        count = len({m for _, m, _, _ in models})
        rows.append([f"training steps of {count} models, PyTorch / `accelerate(model)`",
                     f"**{steps['f32']:.2f}** f32, **{steps['bf16']:.2f}** bf16", "`python bench/models.py`"])  # fmt: skip
    names = len({r["name"] for r in layers})
    rows += [
        [f"{names} layers, all passes, PyTorch / convgrad", f"**{ratio('PyTorch', 'f32')}** f32, **{ratio('PyTorch', 'bf16')}** bf16",
         "`python bench/compare_torch.py --batch bench/layers.txt`"],
        ["the same, oneDNN / convgrad (oneDNN's weights rearranged for free)",
         f"**{ratio('oneDNN', 'f32')}** f32, **{ratio('oneDNN', 'bf16')}** bf16",
         "`convgrad-compare --batch bench/layers.txt`"],
        ["cost of a call beside its arithmetic: eager, compiled",
         " µs, ".join(f"**{microseconds(calls, n) - microseconds(calls, 'C++, kernel alone'):.2g}**"
                      for n in ("C++, eager call", "C++, compiled call")) + " µs",
         "`build/release/bin/overhead`"],
        ["random problems, every value compared with f64", f"{about['hunt']['problems']:,}, **{about['hunt']['finds']}** wrong",
         "`make hunt` ([trust](docs/trust.md#hunt))"],
    ]  # fmt: skip
    return table(["geometric mean of time ratios; above 1: convgrad is faster", "", "repeat it"], rows)


def generated(layers, models, calls, about):
    parts = {
        "numbers": five_numbers(layers, models, calls, about),
        "where": where(about),
        "ways": ways_table(calls),
        "onednn-summary": layer_summary(layers, "oneDNN"),
        "onednn-layers": layer_list(layers, "oneDNN"),
        "pytorch-summary": layer_summary(layers, "PyTorch"),
        "pytorch-layers": layer_list(layers, "PyTorch"),
        "calls": call_table(calls),
        "calls-torch": torch_table(calls),
    }
    for policy in ("all", "faster"):
        if any(p == policy for p, *_ in models):
            parts["models-" + policy] = model_table(models, policy)
    parts["models-memory"] = memory_table()
    return parts | measured_cuda.parts(about["cuda"], table)


def where(about):
    others = " and ".join(about["peers"].values())
    return f"Measured on {about['machine']}, {about['threads']} threads, {about['date']}, beside {others}.\n"


def filled(text, parts, name):
    def fill(match):
        if match.group(2) not in parts:
            sys.exit(f"{name}: nothing measured is called {match.group(2)}")
        return f"{match.group(1)}\n{parts[match.group(2)]}\n{match.group(3)}"

    return MARK.sub(fill, text)


def files():
    """{path: what it should hold}"""
    layers, models, calls = read_layers(), read_models(), read_calls()
    about = json.loads((DATA / "about.json").read_text(encoding="utf-8"))
    parts = generated(layers, models, calls, about)
    found, shown = {}, set()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        if MARK.search(text):
            found[path] = filled(text, parts, path.relative_to(ROOT))
            shown.update(match.group(2) for match in MARK.finditer(text))
    if hidden := set(parts) - shown:
        sys.exit(f"measured, but in no document: {', '.join(sorted(hidden))}")
    bars = {d: {p: by_class(layers, p, d) for p in about["peers"]} for d in ("f32", "bf16")}
    for theme in measured_plot.THEMES:
        found[ROOT / f"docs/images/speed-{theme}.svg"] = measured_plot.draw(bars, about, theme)
        found[ROOT / f"docs/images/winograd-{theme}.svg"] = winograd_plot.draw(read_winograd(), about, theme)
    return found


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--layers"]:
        gather_layers(arguments[1:])
    elif arguments[:1] == ["--winograd"]:
        gather_winograd(arguments[1:])
    elif arguments[:1] == ["--cuda"]:
        measured_cuda.gather(arguments[1:])
    elif arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    stale = 0
    for path, text in files().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if arguments == ["--check"]:
            print(f"{path.relative_to(ROOT)} is not what docs/measured says; run scripts/measured.py", file=sys.stderr)
            stale += 1
        else:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main()

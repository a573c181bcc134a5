"""The code of docs/from-pytorch.md runs, and what stands side by side computes the same."""

import re
from pathlib import Path

import torch

PAGE = Path(__file__).resolve().parents[3] / "docs/from-pytorch.md"


def test_code_of_the_page_runs():
    torch.manual_seed(0)
    bf16 = torch.bfloat16
    names = {
        "model": torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3)),
        "x": torch.randn(2, 3, 16, 16, dtype=bf16),
        "w": torch.randn(16, 3, 3, 3, dtype=bf16),
        "diff_dst": torch.randn(2, 16, 16, 16, dtype=bf16),
        "total": torch.zeros(16, 3, 3, 3),
    }
    results = {"out": [], "diff_src": [], "diff_weights": [], "diff_bias": []}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 8
    for block in blocks:
        before = {name: names.get(name) for name in results}
        exec(block, names)
        for name, found in results.items():
            if names.get(name) is not before[name]:
                found.append(names[name])
    for name, (theirs, ours) in results.items():
        scale = theirs.float().abs().max()
        assert (theirs.float() - ours.float()).abs().max() <= scale * 2**-7, name
    assert names["total"].dtype == torch.float32
    apart = (names["total"] - results["diff_weights"][1].float()).abs().max()
    assert apart <= names["total"].abs().max() * 2**-8

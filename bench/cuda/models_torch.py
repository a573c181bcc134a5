#!/usr/bin/env python3
"""Whole training steps on a GPU: stock PyTorch, and with convgrad.torch.accelerate(policy="faster").

    models_torch.py [NAME[:SETTINGS] ...]   torchvision's models, one of their settings; default: those below

Forward, backward and an SGD step at 224x224, in turns; cudnn.benchmark is on."""

import copy
import statistics
import sys
import time

import torch
import torchvision

import convgrad.torch

# model, batch, settings: f32 (TF32 off), tf32, bf16 (autocast)
DEFAULT = [
    ("convnext_tiny", 128, ("tf32", "f32", "bf16")),
    ("mobilenet_v2", 128, ("f32", "bf16")),
    ("efficientnet_b0", 128, ("f32", "bf16")),
    ("resnext50_32x4d", 64, ("f32", "tf32", "bf16")),
    ("resnet50", 64, ("f32", "bf16")),
    ("regnet_y_1_6gf", 64, ("bf16",)),
]


def make_step(model, images, labels, settings):
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=settings == "bf16"):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def in_turns(steps, rounds=7, together=3):
    """The median of each step in milliseconds. Steps follow each other as in training, where nobody waits
    for the device after each; models take turns, as the host's speed changes."""
    times = [[] for _ in steps]
    for number in range(rounds + 1):
        for step, mine in zip(steps, times):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(together):
                step()
            torch.cuda.synchronize()
            if number > 0:  # the first measures layers, and starts what is to be started
                mine.append((time.perf_counter() - begin) * 1e3 / together)
    return [statistics.median(mine) for mine in times]


def main():
    torch.backends.cudnn.benchmark = True
    known = {d[0]: d for d in DEFAULT}
    wanted = []
    for name, _, settings in (a.partition(":") for a in sys.argv[1:]):
        _, batch, usual = known.get(name, (name, 64, ("f32", "bf16")))
        wanted.append((name, batch, (settings,) if settings else usual))
    print("model,batch,settings,layout,stock ms,accelerated ms,ratio,layers of ours", flush=True)
    for name, batch, all_settings in wanted or DEFAULT:
        for layout in (torch.contiguous_format, torch.channels_last):
            images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=layout)
            labels = torch.randint(0, 1000, (batch,), device="cuda")
            for settings in all_settings:
                torch.backends.cudnn.allow_tf32 = settings != "f32"
                torch.backends.cuda.matmul.allow_tf32 = settings != "f32"
                with torch.device("cuda"):
                    stock = torchvision.models.get_model(name, weights=None).to(memory_format=layout)
                ours = convgrad.torch.accelerate(copy.deepcopy(stock), policy="faster")
                before, after = in_turns([make_step(m, images, labels, settings) for m in (stock, ours)])
                known = [m._convgrad_faster for m in ours.modules() if hasattr(m, "_convgrad_faster")]
                taken = sum(any(k.values()) for k in known)
                text = "ncx" if layout == torch.contiguous_format else "nxc"
                print(
                    f"{name},{batch},{settings},{text},{before:.1f},{after:.1f},{before / after:.2f},{taken}/{len(known)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

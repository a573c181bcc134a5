#!/usr/bin/env python3
"""Whole training steps on a GPU: stock PyTorch, and with convgrad.torch.accelerate(policy="faster").

    models_torch.py [NAME ...]        names of torchvision's models; default: a list

Forward, backward and an SGD step at 224x224, median of ten; cudnn.benchmark is on."""

import copy
import sys

import torch
import torchvision
from gpu_clock import median_ms

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


def step_ms(model, images, settings):
    labels = torch.randint(0, 1000, (len(images),), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = settings != "f32"

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=settings == "bf16"):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return median_ms(step, 10)


def main():
    torch.backends.cudnn.benchmark = True
    wanted = [d for d in DEFAULT if len(sys.argv) == 1 or d[0] in sys.argv[1:]]
    print("model,batch,settings,layout,stock ms,accelerated ms,ratio,layers of ours", flush=True)
    for name, batch, all_settings in wanted:
        for layout in (torch.contiguous_format, torch.channels_last):
            stock = torchvision.models.get_model(name, weights=None).cuda().to(memory_format=layout)
            ours = convgrad.torch.accelerate(copy.deepcopy(stock), policy="faster")
            images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=layout)
            for settings in all_settings:
                before, after = step_ms(stock, images, settings), step_ms(ours, images, settings)
                known = [m._convgrad_faster for m in ours.modules() if hasattr(m, "_convgrad_faster")]
                taken = sum(any(k.values()) for k in known)
                text = "ncx" if layout == torch.contiguous_format else "nxc"
                print(
                    f"{name},{batch},{settings},{text},{before:.1f},{after:.1f},{before / after:.2f},{taken}/{len(known)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

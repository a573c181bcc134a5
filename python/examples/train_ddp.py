"""Data-parallel training of an accelerated model, on one machine or many.

    torchrun --nproc-per-node 2 python/examples/train_ddp.py

Every process computes the gradients of its share of the global batch; DistributedDataParallel averages
them while the backward pass still runs. The losses are those of one process with the whole batch.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import convgrad.torch


def make_model() -> nn.Module:
    torch.manual_seed(0)  # the same start everywhere
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, groups=2),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 8, 2, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    return convgrad.torch.accelerate(model)


def train(steps: int, global_batch: int) -> list[float]:
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(global_batch, 3, 16, 16, generator=generator)
    labels = torch.randint(0, 10, (global_batch,), generator=generator)
    mine = slice(rank * global_batch // size, (rank + 1) * global_batch // size)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data[mine]), labels[mine])
        loss.backward()
        optimizer.step()
        mean = loss.detach() / size
        dist.all_reduce(mean)
        losses.append(mean.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--global-batch", type=int, default=32)
    parser.add_argument("--losses", help="file to write the losses to")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    losses = train(options.steps, options.global_batch)
    if int(os.environ["RANK"]) == 0:
        print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f} in {options.steps} steps")
        if options.losses:
            with open(options.losses, "w") as file:
                file.write("\n".join(f"{loss:.9g}" for loss in losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

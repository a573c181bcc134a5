# %% [markdown]
# # Training a PyTorch model with and without convgrad
#
# A small network learns to tell horizontal, vertical and diagonal stripes apart. It is trained twice
# from the same start: with PyTorch's own convolutions, and after `convgrad.torch.accelerate`. The
# losses agree; the times are printed beside each other.
#
# Run it as a program, or cell by cell in an editor that knows `# %%`.

# %%
import copy
import time

import torch
from torch import nn

import convgrad.torch

torch.manual_seed(0)

# %% [markdown]
# ## Data: noisy stripes, 28 x 28


# %%
def stripes(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    kinds = torch.randint(0, 3, (count,))
    y, x = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    waves = torch.stack([y, x, (x + y) / 2**0.5])[kinds]
    phase = 6.28 * torch.rand(count, 1, 1)
    images = torch.sin(waves + phase) + 0.5 * torch.randn(count, 28, 28)
    return images.unsqueeze(1), kinds


images, kinds = stripes(512)

# %% [markdown]
# ## The model, and a twin that shares nothing with it but its start

# %%
reference = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 32, 3, padding=1, groups=4),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 3),
).to(memory_format=torch.channels_last)
accelerated = convgrad.torch.accelerate(copy.deepcopy(reference))
print(accelerated)

# %% [markdown]
# ## Training


# %%
def train(model: nn.Module, epochs: int = 4, batch: int = 64) -> tuple[list[float], float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    begin = time.perf_counter()
    for _ in range(epochs):
        for x, target in zip(images.split(batch), kinds.split(batch)):
            x = x.to(memory_format=torch.channels_last)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, time.perf_counter() - begin


losses, seconds = train(reference)
our_losses, our_seconds = train(accelerated)

# %% [markdown]
# ## The same losses

# %%
for step in range(0, len(losses), 4):
    print(f"step {step:2}  PyTorch {losses[step]:.6f}  convgrad {our_losses[step]:.6f}")
print(f"time     PyTorch {seconds:.2f} s     convgrad {our_seconds:.2f} s")

torch.testing.assert_close(torch.tensor(our_losses), torch.tensor(losses), rtol=2e-3, atol=2e-4)
assert our_losses[-1] < 0.8 * our_losses[0]

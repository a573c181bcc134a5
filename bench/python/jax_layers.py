"""convgrad.jax beside lax.conv_general_dilated: layers under jit, in turns, the best of many calls.

python bench/python/jax_layers.py
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import convgrad.jax

# src, weights, rounds, calls in a round
LAYERS = (
    ((1, 8, 8, 1), (3, 3, 1, 1), 200, 10),
    ((8, 56, 56, 64), (3, 3, 64, 64), 25, 1),
    ((8, 14, 14, 256), (3, 3, 256, 256), 25, 1),
    ((8, 28, 28, 128), (1, 1, 128, 512), 25, 1),
)


def ours(src, weights):
    return convgrad.jax.convolution(src, weights, auto_pad="same_upper")


def theirs(src, weights):
    order = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(src, weights, (1, 1), "SAME", dimension_numbers=order)


def gradients(function):
    return jax.grad(lambda src, weights: jnp.sum(function(src, weights) ** 2), (0, 1))


def best_times(functions, arguments, rounds, calls):
    """Microseconds of one call of each."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds + 1):  # the first compiles
        for i, function in enumerate(functions):
            start = time.perf_counter()
            for _ in range(calls):
                result = function(*arguments)
            jax.block_until_ready(result)
            best[i] = min(best[i], (time.perf_counter() - start) / calls * 1e6)
    return best


def main():
    rng = np.random.default_rng(0)
    make = lambda shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)
    print("| src | weights | | convgrad, µs | JAX, µs |\n| --- | --- | --- | --- | --- |")
    for src, weights, rounds, calls in LAYERS:
        for name, wrap in (("forward", lambda f: f), ("both gradients", gradients)):
            functions = [jax.jit(wrap(ours)), jax.jit(wrap(theirs))]
            mine, other = best_times(functions, (make(src), make(weights)), rounds, calls)
            print(f"| {src} | {weights} | {name} | {mine:.0f} | {other:.0f} |", flush=True)


if __name__ == "__main__":
    main()

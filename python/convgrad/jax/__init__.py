"""convgrad for JAX: differentiable convolutions that run on the CPU.

    dst = convgrad.jax.convolution(src, weights, strides=2, auto_pad="same_upper")

The functions take the attributes of the specification and work under `jax.jit`, `jax.grad` (any number
of times), `jax.vmap` and `jax.shard_map`. They are custom calls of XLA: the library computes on XLA's
threads, where XLA's buffers lie.
"""

from ._functions import conv_transpose, convolution

__all__ = ["conv_transpose", "convolution"]

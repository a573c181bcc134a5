"""convgrad.jax on XLA's threads and on several devices: processes of their own, because XLA reads both
from the environment once."""

import os
import subprocess
import sys

COMMON = """
import jax
import jax.numpy as jnp
import numpy as np

import convgrad.jax

rng = np.random.default_rng(3)
make = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)
x, w, b = make(8, 33, 31, 16), make(3, 3, 16, 24), make(24)
layer = lambda x, w, b: convgrad.jax.convolution(x, w, b, strides=2, auto_pad="same_upper")
loss = lambda x, w, b: jnp.sum(jnp.sin(layer(x, w, b)))
gradients = jax.grad(loss, (0, 1, 2))
"""

BITS = """
import hashlib
import os

def names():
    found = []
    for task in os.listdir("/proc/self/task"):
        try:
            found.append(open(f"/proc/self/task/{task}/comm").read().strip())
        except OSError:
            pass
    return found

step = jax.jit(lambda x, w, b: (layer(x, w, b), gradients(x, w, b)))
found = hashlib.sha256()
for _ in range(3):
    for array in jax.tree.leaves(step(x, w, b)):
        found.update(np.asarray(array).tobytes())
# The library starts no threads of its own: all work is done on XLA's.
assert not [n for n in names() if n.startswith("convgrad")], names()
print(found.hexdigest())
"""

SHARDS = """
from jax.sharding import Mesh, PartitionSpec as P

shard_map = getattr(jax, "shard_map", None)
if shard_map is None:
    from jax.experimental.shard_map import shard_map

assert len(jax.devices()) == 4
mesh = Mesh(np.array(jax.devices()), ("batch",))
split, whole = P("batch"), P()

# Each device computes its part, with the bits of a call on that part alone.
forward = jax.jit(shard_map(layer, mesh=mesh, in_specs=(split, whole, whole), out_specs=split))
got = forward(x, w, b)
for i in range(4):
    assert np.array_equal(got[2 * i : 2 * i + 2], layer(x[2 * i : 2 * i + 2], w, b))

# Training by parts: gradients of what all devices share are summed by JAX.
def step(x, w, b):
    return jax.grad(lambda *a: jax.lax.psum(loss(*a), "batch"), (0, 1, 2))(x, w, b)

specs = (split, whole, whole)
sharded = jax.jit(shard_map(step, mesh=mesh, in_specs=specs, out_specs=specs))(x, w, b)
for one, other in zip(sharded, gradients(x, w, b)):
    np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)

# Mapped and in parts at once.
xs = make(4, 2, 9, 9, 16)
both = jax.jit(shard_map(
    jax.vmap(layer, (0, None, None)), mesh=mesh, in_specs=specs, out_specs=split))
assert np.array_equal(both(xs, w, b), jnp.stack([layer(one, w, b) for one in xs]))

# Many steps in flight on all devices do not wait for each other in a circle.
several = [forward(x, w, b) for _ in range(30)]
assert all(np.array_equal(one, got) for one in several)
print("done")
"""


def run(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", COMMON + program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_same_bits_on_any_number_of_threads():
    """NPROC is how many threads XLA takes."""
    found = {run(BITS, NPROC=threads) for threads in ("1", "3", "8")}
    assert len(found) == 1 and len(found.pop()) == 64


def test_shard_map_on_several_devices():
    assert run(SHARDS, XLA_FLAGS="--xla_force_host_platform_device_count=4") == "done"

"""Answers: does data parallelism in JAX compute our gradients?

    pip install jax==0.10.2
    python benchmarks/same_in_jax.py

docs/pytorch.md shows the functions. One process has two virtual devices on the CPU.
"""

import jax
import jax.numpy as jnp
from same_problem import X, furthest, ours, params, y

jax.config.update("jax_num_cpu_devices", 2)
mesh = jax.make_mesh((2,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))


def pool(x):
    n, c, h, w = x.shape
    return x[:, :, : h // 2 * 2, : w // 2 * 2].reshape(n, c, h // 2, 2, w // 2, 2).mean((3, 5))


def loss(params, X, y):
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    x = pool(jax.nn.relu(jax.lax.conv(X, W1, (1, 1), "VALID") + b1[:, None, None]))
    x = pool(jax.nn.relu(jax.lax.conv(x, W2, (1, 1), "VALID") + b2[:, None, None])).reshape(len(X), -1)
    logits = jax.nn.relu(x @ W3 + b3) @ W4 + b4
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).sum()


def summed(params, X, y):
    """What each device does with its shard: the allreduce is written out."""
    return jax.lax.psum(jax.grad(loss)(params, X, y), "devices")


def data_parallel(step, check):
    specs = {"in_specs": (jax.P(), jax.P("devices"), jax.P("devices")), "out_specs": jax.P()}
    return jax.jit(jax.shard_map(step, mesh=mesh, check_vma=check, **specs))(params, X, y)


if __name__ == "__main__":
    for check in (False, True):
        for name, step in {"with psum": summed, "without psum": jax.grad(loss)}.items():
            differ = furthest(data_parallel(step, check), ours)
            print(f"check_vma={check}, {name}: gradients differ from ours by at most {differ:.1e}")

"""Solutions of notebook 13's exercises."""

from d2lmgpu.collectives import all_gather, chunk_bounds, execute, reduce_scatter


def largest_batch(parameters, activations, memory, k):
    """Parameters and gradients first, then as many whole examples as fit on one device, k times."""
    left = memory - 2 * 4 * parameters
    return k * max(0, left // (4 * activations))


def zero_bytes(stage, parameters, states, k):
    """Three kinds of numbers, each whole or in parts."""
    part = -(-parameters // k)
    weights = parameters if stage < 3 else part
    grads = parameters if stage < 2 else part
    state = states * (parameters if stage < 1 else part)
    return 4 * (weights + grads + state)


def zero1_step(params, grads, velocities, lr, momentum):
    """Sums for their owners, their updates, and parameters for all."""
    k, n = len(params), len(params[0])
    execute(reduce_scatter(k, n), grads)
    for param, grad, velocity, (start, stop) in zip(params, grads, velocities, chunk_bounds(n, k), strict=True):
        velocity[:] = momentum * velocity + grad[start:stop]
        param[start:stop] -= lr * velocity
    execute(all_gather(k, n), params)

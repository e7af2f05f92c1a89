"""Wrong answers to the exercises of notebook 13. A docstring is a part of what the check should say."""

import numpy as np

import d2lmgpu as d2l
from d2lmgpu.collectives import all_gather, chunk_bounds, execute, reduce_scatter


def zero_bytes__numbers(stage, parameters, states, k):
    """this counts numbers, not bytes"""
    return _bytes_of(stage, parameters, states, k) // 4


def zero_bytes__a_stage_too_far(stage, parameters, states, k):
    """the result for stage 2"""
    return _bytes_of(stage + 1, parameters, states, k)


def zero_bytes__forgets_the_state(stage, parameters, states, k):
    """it has `states` numbers per parameter"""
    return _bytes_of(stage, parameters, 0, k)


def zero_bytes__always_adam(stage, parameters, states, k):
    """each whole or a k-th of it"""
    return _bytes_of(stage, parameters, 2, k)


def zero_bytes__rounds_down(stage, parameters, states, k):
    """this uses the smallest part"""
    return _bytes_of(stage, parameters, states, k, parameters // k)


def zero1_step__does_not_gather(params, grads, velocities, lr, momentum):
    """all-gather the parameters after the update"""
    k, n = len(params), len(params[0])
    execute(reduce_scatter(k, n), grads)
    _update(params, grads, velocities, lr, momentum)


def zero1_step__does_not_sum(params, grads, velocities, lr, momentum):
    """each chunk used only one device's gradients"""
    _update(params, grads, velocities, lr, momentum)
    execute(all_gather(len(params), len(params[0])), params)


def zero1_step__allreduces(params, grads, velocities, lr, momentum):
    """a reduce-scatter is half of an allreduce"""
    d2l.allreduce(grads, "ring")
    _update(params, grads, velocities, lr, momentum)
    execute(all_gather(len(params), len(params[0])), params)


def zero1_step__forgets_momentum(params, grads, velocities, lr, momentum):
    """the velocities were not used"""
    k, n = len(params), len(params[0])
    execute(reduce_scatter(k, n), grads)
    for param, grad, (start, stop) in zip(params, grads, chunk_bounds(n, k), strict=True):
        param[start:stop] -= lr * grad[start:stop]
    execute(all_gather(k, n), params)


def zero1_step__forgets_to_keep_the_velocities(params, grads, velocities, lr, momentum):
    """the velocities of cpu(0) are"""
    k, n = len(params), len(params[0])
    execute(reduce_scatter(k, n), grads)
    for param, grad, velocity, (start, stop) in zip(params, grads, velocities, chunk_bounds(n, k), strict=True):
        param[start:stop] -= lr * (momentum * velocity + grad[start:stop])
    execute(all_gather(k, n), params)


def zero1_step__uphill(params, grads, velocities, lr, momentum):
    """the step is subtracted"""
    k, n = len(params), len(params[0])
    execute(reduce_scatter(k, n), grads)
    _update(params, grads, velocities, -lr, momentum)
    execute(all_gather(k, n), params)


def zero1_step__over_the_host(params, grads, velocities, lr, momentum):
    """right, but the numbers went through the host"""
    total = sum(d2l.to_host(grad) for grad in grads)
    bounds = chunk_bounds(len(total), len(params))
    for velocity, (start, stop) in zip(velocities, bounds, strict=True):
        velocity[:] = d2l.put(momentum * d2l.to_host(velocity) + total[start:stop], velocity.device)
    step = lr * np.concatenate([d2l.to_host(velocity) for velocity in velocities])
    for param in params:
        param[:] = d2l.put(d2l.to_host(param) - step, param.device)


def largest_batch__forgets_gradients(parameters, activations, memory, k):
    """there is a gradient for every parameter"""
    return k * max(0, (memory - 4 * parameters) // (4 * activations))


def largest_batch__of_one_device(parameters, activations, memory, k):
    """each device has its own memory and shard"""
    return max(0, (memory - 8 * parameters) // (4 * activations))


def largest_batch__shares_the_parameters(parameters, activations, memory, k):
    """with data parallelism every device holds all of them"""
    return k * max(0, (memory - 8 * parameters // k) // (4 * activations))


def largest_batch__a_part_of_an_example(parameters, activations, memory, k):
    """round down to whole examples per device"""
    return k * max(0, (memory - 8 * parameters) / (4 * activations))


def largest_batch__rounds_too_late(parameters, activations, memory, k):
    """devices hold whole examples"""
    return max(0, k * (memory - 8 * parameters) // (4 * activations))


def largest_batch__fewer_than_none(parameters, activations, memory, k):
    """if parameters and gradients alone do not fit, no example does"""
    return k * ((memory - 8 * parameters) // (4 * activations))


def _update(params, grads, velocities, lr, momentum):
    bounds = chunk_bounds(len(params[0]), len(params))
    for param, grad, velocity, (start, stop) in zip(params, grads, velocities, bounds, strict=True):
        velocity[:] = momentum * velocity + grad[start:stop]
        param[start:stop] -= lr * velocity


def _bytes_of(stage, n, states, k, part=None):
    part = -(-n // k) if part is None else part
    return 4 * ((n if stage < 3 else part) + (n if stage < 2 else part) + states * (n if stage < 1 else part))

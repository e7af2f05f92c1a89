"""Exercises for notebook 13, models that do not fit: the largest minibatch, ZeRO's bytes, and a step of its stage 1."""

import numpy as np

from ..base.text import several
from ..collectives import chunk_bounds
from .exercise import Empty, Exercise, call_recorded, close, expect, short
from .spies import check_ways, row_of, spread
from .splitting import LENET_OUTPUTS

STAGES = "stage 1 divides the state, stage 2 also the gradients, and stage 3 also the parameters"
WHOLE = "if k does not divide the number evenly, the largest part has one number more: round up"


class zero_bytes(Exercise):
    """Write zero_bytes(stage, parameters, states, k): return the bytes that parameters, gradients and the optimiser's
    state take on the fullest of k devices, when its gradients are complete. ZeRO's stage is 0 (nothing is divided), 1,
    2 or 3; the optimiser keeps `states` numbers for each parameter; all numbers are float32. If k does not divide
    evenly, the largest part has one number more than the smallest.

    parameters, gradients and state are whole or divided, as the stage says.
    """

    cases = ((1, 129_068, 2, 8), (2, 129_068, 2, 8), (3, 1_000, 1, 3), (0, 1_000, 2, 4), (2, 64, 0, 4), (3, 50, 2, 1))
    hint = "add up three things, each whole or a k-th of it: parameters, gradients, state"

    def right(self, stage, n, states, k, part=None):
        """The bytes on a device whose part of each divided array has ``part`` numbers; by default, the largest part."""
        part = -(-n // k) if part is None else part
        return 4 * ((n if stage < 3 else part) + (n if stage < 2 else part) + states * (n if stage < 1 else part))

    def mistakes(self, _, right, stage, n, states, k):
        yield right / 4, "this counts numbers, not bytes", "a float32 number takes 4 bytes"
        yield self.right(stage, n, 0, k), "the optimiser's state is missing", "it has `states` numbers per parameter"
        for other in range(4):
            yield self.right(other, n, states, k), f"the result for stage {other}", STAGES
        yield self.right(stage, n, states, k, n // k), "this uses the smallest part", WHOLE


_LR, _MOMENTUM = 0.5, 0.75


class zero1_step(Exercise):
    """Write zero1_step(params, grads, velocities, lr, momentum): lists of flat device arrays, one on each of k devices.
    params[i] and grads[i] are whole (grads[i] are device i's own gradients); velocities[i] has only the elements of
    chunk_bounds(n, k)[i]. Do a step of momentum in place, v = momentum · v + summed gradient and p = p - lr · v. Each
    device updates only its own chunk, and afterwards all devices have all parameters.

    each device updates its own chunk, and sends no more than in an allreduce.
    """

    cases = ((2, 6), (3, 7), (1, 4), (4, 3), (5, 23))
    hint = "reduce-scatter the gradients, update each device's own chunk, all-gather the parameters"

    def words(self, k, n):
        return f"{several(n, 'parameter')} on {several(k, 'device')}"

    def test(self, answer, k, n):
        """Test that every device has all new parameters and its own new velocities, with no needless byte sent."""
        rng, devices, bounds = np.random.default_rng(4), row_of(k), chunk_bounds(n, k)
        start, before = (rng.normal(0, 1, n).astype(np.float32) for _ in range(2))
        own = [rng.normal(0, 1, n).astype(np.float32) for _ in devices]
        params, grads = spread([start] * k, devices), spread(own, devices)
        velocities = spread([before[a:b] for a, b in bounds], devices)
        given = [list(arrays) for arrays in (params, grads, velocities)]
        _, transfers = call_recorded(answer, *given, _LR, _MOMENTUM, hint=self.hint)
        if all(close(array, start) for array in params):
            raise Empty("no parameter has changed")
        after = _MOMENTUM * before + np.sum(own, axis=0, dtype=np.float32)
        for i, (a, b) in enumerate(bounds):
            what = f"the parameters of {devices[i]}"
            self.compare(params[i], start - _LR * after, start, own, before, i, what=what)
            said = f"the velocities of {devices[i]} are {short(velocities[i])} instead of {short(after[a:b])}"
            hint = "v = momentum · v + gradient, in place, with the sum of all devices' gradients"
            expect(close(velocities[i], after[a:b], 1e-4), said, hint)
        check_ways(transfers, devices, n)
        between = [t for t in transfers if "host" not in (t.source, t.destination) and t.source != t.destination]
        sent, enough = sum(t.nbytes for t in between), 8 * (k - 1) * n
        hint = "only its owner needs the sum of a chunk: a reduce-scatter is half of an allreduce"
        expect(sent <= enough, f"right, but the devices sent {sent:,} bytes; {enough:,} are enough", hint)

    def mistakes(self, _, right, start, own, before, i):
        bounds, part = chunk_bounds(len(start), len(own)), start.copy()
        part[slice(*bounds[i])] = right[slice(*bounds[i])]
        mixed = np.concatenate([grad[a:b] for grad, (a, b) in zip(own, bounds, strict=True)])
        forgotten = start - _LR * np.sum(own, axis=0, dtype=np.float32)
        yield part, "its own chunk is right, but the others are old", "all-gather the parameters after the update"
        alone = start - _LR * (_MOMENTUM * before + mixed)
        yield alone, "each chunk used only one device's gradients", "sum them first"
        yield forgotten, "the velocities were not used", "p = p - lr · v, with v = momentum · v + gradient"
        yield 2 * start - right, "a step uphill", "the step is subtracted"


PARAMETERS, ACTIVATIONS = 129_068, sum(LENET_OUTPUTS)


class largest_batch(Exercise):
    """Write largest_batch(parameters, activations, memory, k): with data parallelism, each of k devices has `memory`
    bytes and holds all parameters, their gradients, and the activations of each example of its shard; all are float32
    numbers. Return the largest number of examples in a minibatch.

    every device holds all parameters and gradients, and whole examples in the remaining memory.
    """

    cases = [(PARAMETERS, ACTIVATIONS, memory, k) for memory, k in ((2**24, 1), (2**22, 5), (2**20, 3), (10**6, 4))]
    hint = "how many examples fit into a device's memory beside parameters and gradients? Multiply that by k"

    def right(self, parameters, activations, memory, k):
        return k * max(0, (memory - 8 * parameters) // (4 * activations))

    def mistakes(self, found, right, parameters, activations, memory, k):
        shared, no_grads = (self.right(few, activations, memory, k) for few in (parameters / k, parameters / 2))
        yield found < 0, "this is negative", "if parameters and gradients alone do not fit, no example does"
        yield found % 1 != 0, "a fraction of an example", "round down to whole examples per device, then multiply by k"
        yield right > 0 and found == right // k, "those of one device", "each device has its own memory and shard"
        yield no_grads, "this leaves no room for gradients", "there is a gradient for every parameter"
        yield shared, "only a part of the parameters", "with data parallelism every device holds all of them"
        yield 0 < found - right < k, "a shard would not fit", "devices hold whole examples: first round down"

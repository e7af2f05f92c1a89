"""What the actions of a plan do on one device: a function for each, of the device's `Store` and the action.

How a stage is computed depends on its mode (modes.py); as_written.py has the mode `REFERENCE`. Everything here runs on
the device, as work in its queue, with plain arrays.
"""

import itertools

import numpy as np

from ...devices import array_module, parts_of
from ...layers import track_statistics
from ...layers.functions import with_shapes
from ...networks.mixed import are_finite
from ..plan import COMPUTES
from . import as_written
from .as_written import add_moments, add_to_each, hand_back, hand_on
from .modes import CACHED, EMPTY, FUSED, IN_FUSED, REFERENCE


def do(store, action, *more):
    """Do an action by its function in `FUNCTIONS`; ``more``: the function's further arguments."""
    with store.precision.quiet():
        FUNCTIONS[action.what, store.mode_of(action)](store, action, *more)


# A step's beginning and end:


def begin_step(store, minibatch):
    """Begin a step with this `Minibatch`."""
    store.minibatch, store.scale_of_step = minibatch, store.precision.scale
    for array in itertools.chain(*store.moments.values()):
        array.fill(0)


def end_step(store):
    """End a step: move the running statistics, and forget all data that belong only to the step."""
    for s, running in store.running.items():
        for mean, variance, moments in zip(running[::2], running[1::2], store.moments[s], strict=True):
            track_statistics(mean, variance, moments)
    store.minibatch = None
    store.values.clear()
    store.unwritten.clear()
    store.steps += store.accepted


# With kernels, forward of several stages and immediately back, for some of the examples at a time:


def there_and_back(store, action, final=()):
    """Compute a run that begins with this stage, forward to the loss and back.

    ``final``: one event for each stage, triggered when the stage's gradients are final; or no events.
    """
    s, m = action.stage, action.micro_batch
    stages, x, y = range(s, len(store.layers)), store.x(s, m), store.minibatch.y[m]
    params = [param for i in stages for param in contiguous_params(store, i)]
    layers = with_shapes(sum((store.layers[i] for i in stages), ()), params)
    grads, later = places_for(store, store.runs[s, m])
    moments = [store.new_moments(i) for i in stages]
    dx = None
    if s:
        dx = store.values["dy", s - 1, m] = store.new((*x.shape[1:], len(x)))
        dx = array_module(dx).moveaxis(dx, -1, 0)
    options = {"scale": store.precision.scale, "draws": store.draws(s, m), "loss": store.loss.for_kernels(y), "dx": dx}
    options["ready"] = _teller(store, stages, final) if final and not later else None
    found = store.kernels.loss_and_grads(x, y, params, layers, grads, moments=sum(moments, []), **options)
    for i, own in zip(stages, moments, strict=True):
        add_moments(store, i, own)
    add_to_each(later)
    store.minibatch.sums[m] = found.astype(store.dtype)


def _teller(store, stages, final):
    """A function that the kernels call with n when all gradients from number n on, counted in the stages, are final.

    Kernels go from the last gradient to the first, so stages become final from the last to the first.
    """
    firsts = itertools.accumulate((len(store.shapes[i]) for i in stages), initial=0)
    left = list(zip(firsts, final, strict=False))

    def ready(number):
        while left and left[-1][0] >= number:
            left.pop()[1].finish(store.device.mark())

    return ready


def done_already(store, action):
    """The run's first F has done this."""


# With kernels, forward now and backward later:


def forward_by_kernels(store, action):
    """F; the cache is a `Pass`, which is used again later."""
    s, m = action.stage, action.micro_batch
    x, params, is_last = store.x(s, m), contiguous_params(store, s), store.is_last(s)
    targets = store.minibatch.y[m] if is_last else None
    cache = store.idle.take((s, x.shape))
    if cache is None:
        loss, layers = store.loss.for_kernels(targets) if is_last else None, with_shapes(store.layers[s], params)
        about = params, x.shape[1:], store.dtype, len(x), s > 0, is_last, loss, store.scratch[s]
        cache = store.kernels.Pass(layers, *about)
    store.set("cache", s, m, cache)
    y = cache.forward(x, params, targets, store.draws(s, m))
    add_moments(store, s, cache.moments)
    hand_on(store, action, y)


def backward_by_kernels(store, action):
    """B."""
    s, m = action.stage, action.micro_batch
    places, later = places_for(store, [action.target])
    params, scale = contiguous_params(store, s), store.precision.scale
    dx = store.values["cache", s, m].backward(params, places, store.dy(s, m), scale)
    add_to_each(later)
    hand_back(store, action, dx)


def contiguous_params(store, s):
    """A stage's parameters for kernels; kernels for GPUs need contiguous arrays."""
    params = store.params(s)
    if store.device.kind == "cpu":
        return params
    return [array_module(param).ascontiguousarray(param) for param in params]


def places_for(store, values):
    """Arrays to which kernels write gradients, and pairs (gradient, array to be added to it later).

    The first result is written directly into the gradients; each further one needs an array of its own.
    """
    places, later = [], []
    for value in values:
        views = store.views(store.room_for(value), value[1])
        if value in store.unwritten and all(view.flags.c_contiguous for view in views):
            store.unwritten.remove(value)
            places += views
            continue
        store.flat_of(value)  # zeros, unless something has been written there
        size = sum(view.size for view in views)
        terms = parts_of(array_module(store.flat).empty(size, store.dtype), views)  # not the device's memory
        places += terms
        later += zip(views, terms, strict=True)
    return places, later


# Without examples or units:


def of_nothing(store, action):
    """Compute nothing, but make what others expect: gradients, a loss of 0, and a y or dy that is empty or zero."""
    what, s, m = action[:3]
    if what in "BW":
        store.flat_of(action.target)  # to which nothing is added
    if what == "F" and store.is_last(s):
        store.minibatch.sums[m] = array_module(store.flat).zeros(2, store.dtype)
    elif what == "F" or (what in "BI" and s):
        name, s = ("y", s) if what == "F" else ("dy", s - 1)
        examples = store.minibatch.examples[m]
        width = store.widths[s] if name == "dy" or not examples else 0
        store.values[name, s, m] = store.new((width, *store.images[s], examples))
        store.values[name, s, m].fill(0)


# All other actions:


def update(store, action, lr, batch_size):
    """Do a step of the optimiser for the elements that the device updates."""
    if store.accepted:
        s, part = action.stage, store.parts[action.stage]
        params = [store.own[s][slice(*(edge - part.params[0] for edge in part.state))]]
        grads, state, scale = [store.final(s)], [[array] for array in store.state[s]], store.scale_of_step
        store.optimizer.update(params, grads, *state, store.steps + 1, lr, batch_size * scale)


def finite(store):
    """A row with 1 if all gradients that the device uses for its updates are finite, and otherwise 0."""
    return [float(are_finite([store.final(s) for s, part in store.parts.items() if part.state[0] < part.state[1]]))]


def agree(store, rows):
    """In mixed precision, decide from all devices' ``rows`` whether to update: only if all gradients are finite."""
    store.accepted = store.precision.adapt(rows.raw.view(np.float64).all())


def keep(store, action):
    """Add elements of a value to another value."""
    kept = store.elements(action.target, action.bounds)
    kept += store.elements(action.value, action.bounds)


def free(store, action):
    """Drop a value; its memory is used again, unless the device's memory is limited and so counted."""
    value = store.values.pop(action.value, None)
    store.unwritten.discard(action.value)
    if store.device.accounting is not None:
        return
    if hasattr(value, "backward"):
        store.idle.give_back((action.stage, value.shape), value)
    elif action.value[0] in ("params", "grads") and value is not None:
        store.spare[action.value[:2]] = value


FUNCTIONS = {
    ("F", FUSED): there_and_back,
    ("F", IN_FUSED): done_already,
    ("B", FUSED): done_already,
    ("B", IN_FUSED): done_already,
    ("F", CACHED): forward_by_kernels,
    ("B", CACHED): backward_by_kernels,
    ("F", REFERENCE): as_written.forward_as_written,
    ("B", REFERENCE): as_written.backward_as_written,
    ("I", REFERENCE): as_written.inputs_as_written,
    ("W", REFERENCE): as_written.weights_as_written,
    **{(what, EMPTY): of_nothing for what in COMPUTES},
    ("update", None): update,
    ("keep", None): keep,
    ("free", None): free,
}
"""What does each kind of action; a computation for a micro-batch in each of its modes."""

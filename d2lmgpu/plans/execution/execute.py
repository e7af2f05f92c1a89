"""Carry out a plan with real arrays on real devices.

The plan's steps become actions (lower.py), which are submitted to the devices' queues. A device that reads data that
another device writes waits for an event (step.py), or, if the devices belong to different processes, for a message
(across.py). The host program waits only at the end of the step.
"""

import functools
import itertools

import numpy as np

from ...base.arguments import plain, shown
from ...cluster import Cluster, as_cluster, gather, sum_disjoint
from ...devices import DeviceArray, check_devices, isolated_errors, put, to_host
from ...networks import find_loss
from ...networks.checks import check_drawing, check_params
from ...networks.optimizers import OPTIMIZERS, Optimizer
from ..plan import shapes_of
from ..proof.prove import replayed
from ..proof.sizes import examples_in_each, examples_of, stage_sizes
from ..stages import flat_stages, in_shapes, splits_of, views
from .across import AcrossProcesses
from .lower import actions_of, extents_of
from .modes import ExecutionModes
from .queues import Errors
from .step import Minibatch, StepOfPlan
from .store import Store


def execute(plan, X, y, params, devices, lr=0.1, optimizer="sgd", draws=None):
    """Do one training step according to the plan, with examples ``X`` (N, C, H, W) and ``y`` (N,) on the host.

    ``params``: a list of host arrays, as from `init_params`. Returns the summed loss and the parameters after the step,
    on the host. For more than one step, use `Execution`, which raises the same errors.

    ``devices``: a list, or a `Cluster`; on a `Cluster`, all processes call this with the same arguments and get the
    same result. ``draws``: the `Draws` for a network with dropout.
    """
    execution = Execution(plan, params, devices, optimizer)
    loss = execution.step(X, y, lr, draws=draws)
    return loss, execution.params()


class Execution:
    """A plan on its devices, with the parameters and the optimiser's state, step after step.

    ``optimizer``: a name, or an `Optimizer`. ``loss``: as in `networks.find_loss`. The plan is proved correct first.
    Raises PlanError for a wrong plan, and ValueError for parameters that do not fit the network or a wrong number of
    devices.

    On a `Cluster`, every process has an execution with the same plan and parameters, and all processes call the same
    methods.

    ``store``: by device number, the `Store` of each of this process's devices; ``stores``: the same as a list.
    ``actions``: pairs (number, `Action`) of those that involve these devices; the first ``before_updates`` of them come
    before all updates. ``begins`` and ``ends``: the (device, micro-batch) that take images, and that take targets.
    ``holder``: by micro-batch, the first device that computes its loss. ``begun``: how many steps have begun.
    ``errors``: those of the devices.

    ``mixed``: use mixed precision (see `Store`), for plans in which all updates come after all gradients. ``overlap``:
    exchange gradients while others are still being computed (queues.py). ``library``: "nccl" or an `Across`, which then
    sums gradients over all devices, in place of the plan's schedule.
    """

    def __init__(
        self, plan, params, devices, optimizer="sgd", loss="cross_entropy", mixed=False, overlap=False, library=None
    ):
        group = devices if isinstance(devices, Cluster) else as_cluster(check_devices(devices))
        if not isinstance(optimizer, Optimizer):
            optimizer = OPTIMIZERS[optimizer]
        columns = replayed(plan).columns
        if len(group) != plan.k:
            raise ValueError(f"the plan {plan.name} is for {plan.k} devices, not {len(group)}")
        check_params("params", params, plan.network)
        self.plan, self.group, self.devices, self.optimizer = plan, group, group.mine, optimizer
        self.begun, self.has_failed = 0, False
        self.loss, self.mixed, self.overlap, self.library = find_loss(loss), mixed, overlap, library
        host = [np.asarray(to_host(param)) for param in params]
        self.dtype = host[0].dtype
        self.sizes = stage_sizes(plan.network, plan.stages, self.dtype)
        actions, modes, flat = actions_of(plan, columns), ExecutionModes(plan, columns), flat_stages(host, plan)
        extents = extents_of(plan, columns, actions)
        tasks = {
            i: device.submit(Store, plan, i, device, flat, optimizer, extents[i], self.loss, modes, mixed)
            for i, device in enumerate(self.devices, group.first)
        }
        self.store = {i: task.result() for i, task in tasks.items()}
        self.stores = list(self.store.values())
        for store in self.stores if library else ():
            sizes = {("grads", s): stage.params for s, stage in enumerate(plan.stages)}
            store.fixed |= {value: store.device.empty(n, store.dtype) for value, n in sizes.items()}
        computes = sorted(itertools.chain(*(each for each, _ in columns)), key=lambda c: -c.device)
        last = len(plan.stages) - 1  # the first device that computes each micro-batch's loss:
        self.holder = {c.micro_batch: c.device for c in computes if (c.what, c.stage) == ("F", last)}
        own = [c for c in computes if c.what == "F" and c.device in self.store]
        self.begins = [(c.device, c.micro_batch) for c in own if c.stage == 0]
        self.ends = [(c.device, c.micro_batch) for c in own if c.stage == last]
        self.actions = [(n, each) for n, each in enumerate(actions) if not self.store.keys().isdisjoint(each.devices)]
        first_update = next(n for n, action in enumerate(actions) if action.what == "update")
        self.before_updates = sum(n < first_update for n, _ in self.actions)
        self.across = AcrossProcesses(plan, group, actions, host) if group.size > 1 else None
        self.errors = Errors(self.across and self.across.progress)

    def step(self, X, y, lr, draws=None, examples=None):
        """Train for a step on ``X`` (N, C, H, W), in the parameters' dtype, and ``y`` (N, ...); return the summed loss.

        Afterwards, ``correct`` is the number of examples whose label had the largest logit. ``draws``: for a network
        with dropout. ``examples``: a tuple with the sizes of the micro-batches; by default as even as possible.

        If a device fails, its error is raised, and this object cannot be used any more. Raises ValueError for examples
        that do not fit the network, and for a network with dropout if there are no ``draws``.
        """
        with isolated_errors(self.devices):
            return self.finish(self.submit(X, y, lr, draws, examples))

    def submit(self, X, y, lr, draws=None, examples=None, tell=0.0):
        """Begin a `step`. Pass the result to `finish` to wait until the step is done.

        You may begin the next step before then.

        ``tell``: a number of this process. After `finish`, ``told`` lists the numbers of all devices' processes.
        """
        X, y = self._check_examples(X, y)
        check_drawing(self.plan.network, draws)
        examples = len(y) if examples is None else tuple(plain(examples))
        return self.submit_placed(self.place_examples(X, y, draws, examples), lr, tell)

    def submit_placed(self, minibatch, lr, tell=0.0):
        """Begin a step as `submit` does, with data on the devices: a `Minibatch` for each of this process's devices."""
        if self.has_failed:
            raise ValueError("a step of this execution has failed; create a new execution")
        self._raise_error()  # if a step that is still running has failed
        step = StepOfPlan(self, minibatch, plain(lr), tell)
        self.begun += 1
        step.batch.commit()
        self.errors.let_go()
        return step

    def finish(self, step):
        """Wait for a step that `submit` has begun; results and errors are those of `step`."""
        for end in step.ends:
            end.wait()
        self._raise_error()
        rows = step.rows()
        self.told = [row[-1] for row in rows]
        self.correct = int(sum(rows[i][2 * m + 1] for m, i in self.holder.items()))
        return sum(rows[i][2 * m] for m, i in sorted(self.holder.items()))

    def _raise_error(self):
        """Raise the first error of a device, if there is one."""
        if self.errors:
            self.has_failed = True
            raise self.errors[0]

    def set_params(self, values):
        """Set all parameters from host arrays."""
        flat = flat_stages([np.asarray(to_host(value)) for value in values], self.plan)
        for store in self.stores:
            store.device.submit(store.set_params, flat).result()

    def params(self):
        """All parameters on the host, as from `init_params`. Each element comes from the first device that holds it."""
        return [np.ascontiguousarray(array) for array in self._gathered("params", lambda store, s: store.own[s])]

    def gather_state(self):
        """For each of the optimiser's states, a flat array on the host with one number per parameter, in order.

        So a checkpoint is the same with any split, and without a split.
        """
        each = (self._gathered("state", lambda store, s, i=i: store.state[s][i]) for i in range(self.optimizer.states))
        return [np.concatenate([array.reshape(-1) for array in arrays]) for arrays in each]

    def scatter_state(self, state):
        """Put a state, as from `gather_state`, back on the devices that hold parts of it."""
        shapes = [shape for layer in self.plan.network for shape in layer.shapes]
        for i, whole in enumerate(state):
            flats = flat_stages(in_shapes(whole, shapes), self.plan)
            for store in self.stores:
                for s, arrays in store.state.items():
                    part = flats[s][slice(*store.parts[s].state)]
                    DeviceArray(arrays[i], store.device)[...] = put(part, store.device)

    def statistics(self):
        """Batch norm's running statistics for each device of all processes: NumPy arrays, as from `init_statistics`.

        If a device does not compute a layer, the layer's statistics are those of the first device that does.
        """
        shapes = [(C,) for channels in self.stores[0].norms for C in channels for _ in ("mean", "variance")]
        mine = np.full((len(self.stores), sum(C for (C,) in shapes)), np.nan)
        for row, store in zip(mine, self.stores, strict=True):
            for array, own, view in self._running(store, in_shapes(row, shapes)):
                view[own] = to_host(array)
        rows = gather(self.group, mine)
        whole = functools.reduce(lambda one, other: np.where(np.isnan(one), other, one), rows)
        rows = np.where(np.isnan(rows), whole, rows)
        return [[array.astype(self.dtype) for array in in_shapes(row, shapes)] for row in rows]

    def set_statistics(self, statistics):
        """Set the running statistics of each of this process's devices, from arrays as `statistics` returns them."""
        for store, arrays in zip(self.stores, statistics, strict=True):
            for array, own, value in self._running(store, arrays):
                array[...] = put(value[own], store.device)

    def _running(self, store, values):
        """For each of a device's running statistics: its array, its channels, and the array in ``values`` for all."""
        rest = iter(values)
        for s, channels in enumerate(store.norms):
            whole = [next(rest) for _ in channels for _ in ("mean", "variance")]
            for array, value in zip(store.running.get(s, ()), whole, strict=False):
                yield DeviceArray(array, store.device), store.channels_of(s), value

    def _gathered(self, name, held):
        """The devices' "params" or "state", ``held(store, stage)``, put together as arrays in the parameters' shapes.

        With several processes, each element comes from the process of the first device that holds it; all other
        processes contribute zeros.
        """
        whole = np.zeros(sum(stage.params for stage in self.plan.stages), self.dtype)
        flats = in_shapes(whole, [(stage.params,) for stage in self.plan.stages])
        for i, parts in reversed([*enumerate(self.plan.layout)]):
            store = self.store.get(i)
            for part in parts:
                own = 0 if store is None else to_host(DeviceArray(held(store, part.stage), store.device))
                flats[part.stage][slice(*getattr(part, name))] = own
        sum_disjoint(self.group, whole)
        splits = splits_of(self.plan.network, self.plan.stages)
        for stage, split, flat in zip(self.plan.stages, splits, flats, strict=True):
            yield from views(flat, split, shapes_of(stage, self.plan.network))

    def _check_examples(self, X, y):
        X, y, network = np.asarray(X), np.asarray(y), self.plan.network
        if X.shape[1:] != network.input_shape or X.dtype != self.dtype or not len(X):
            raise ValueError(f"X is {shown(X)}; it should be {self.dtype} of shape (N, *{network.input_shape})")
        self.loss.check(y, len(X), network.classes)
        return X, y.astype(self.dtype if y.dtype.kind == "f" else np.int64)

    def place_examples(self, X, y, draws, examples):
        """Put the micro-batches on the devices that begin or end them; return a `Minibatch` for each device."""
        count = self.plan.micro_batches
        parts = [slice(*examples_of(examples, count, m)) for m in range(count)]
        found = {i: Minibatch(examples_in_each(examples, count), draws) for i in self.store}
        for i, m in self.begins:
            found[i].X[m] = put(X[parts[m]], self.store[i].device).raw
        for i, m in self.ends:
            found[i].y[m] = put(y[parts[m]], self.store[i].device).raw
        return found

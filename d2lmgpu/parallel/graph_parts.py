"""What a training step that is recorded as a CUDA graph consists of: each device's part, and exchanges between them.

A part has a device's arrays, with everything that changes from step to step (see graph.py), and gives its stream the
kernels in order. An exchange gives all devices' streams an allreduce at once.
"""

import numpy as np

from ..collectives import compile_algorithm, needs_staging, schedules_of
from ..collectives.execute import do_action
from ..devices import in_one_piece, parts_of
from ..kernels.cuda import PRECISIONS, Branches, Program, batch_norm, launch, run, tensor_cores
from . import loss_scale


class GraphPart:
    """One device's part of a step. Made and used with its device current."""

    def __init__(self, images, labels, replica, size, steps, precision):
        import cupy

        self.images, self.labels, self.replica = images, labels, replica
        self.params = params = [param.raw for param in replica.params]
        self.flat_params = in_one_piece(params)[0]
        self.flat_grads = cupy.zeros(self.flat_params.size, np.float32)
        self.grads = parts_of(self.flat_grads, params)
        self.optimizer_state = [array.raw for array in replica.flat_optimizer_state]
        self.branches = Branches(replica.device.stream)
        self.program = program = Program(replica.network, params, images.shape[1:], size, precision, self.branches)
        self.statistics = [array.raw for array in replica.statistics]
        self.sync_statistics, self.flat_moments = _sync_statistics_in_one_piece(program)
        program.use_statistics(self.sync_statistics)
        self.kind = PRECISIONS[precision] if precision == "mixed" else None
        self.overflow, self.good_steps, self.taken = (cupy.zeros(1, np.int32) for _ in range(3))
        self.scale, self.number = program.scale, program.step
        self.scale.fill(loss_scale.FIRST_SCALE if self.kind else 1)
        self.order = cupy.zeros(len(images) + size, np.int32)  # of which this device's shards take their part
        self.starts = cupy.zeros(steps + 2, np.int32)  # see gather.cu
        self.rates, self.sizes = cupy.zeros(steps + 1, np.float32), cupy.zeros(steps + 1, np.float32)  # see sgd.cu
        self.pixels = images.size // len(images)
        self._gather()  # an empty minibatch: a step that is tried before the first epoch finds labels

    def start_epoch(self, order, starts, rates, sizes, done, loss, correct):
        self.order[: len(order)].set(order)
        self.starts.set(np.append(starts, starts[-1]))
        self.rates.set(np.insert(rates, 0, 0))
        self.sizes.set(np.insert(sizes, 0, 0))
        self.taken.fill(self.replica.steps)
        self.number.fill(done)
        self.program.epoch_loss.fill(loss)
        self.program.epoch_correct.fill(correct)
        self._gather()

    def compute(self):
        """The gradients of the minibatch that lies ready. The next one is made ready until `update` ends.

        A generator that pauses where ``sync_statistics`` may be summed over devices.
        """
        yield from self.program.forward(self.params)
        yield from self.program.backward(self.params, self.grads)
        self.branches.join()
        with self.program.bookkeeping:
            self._gather()

    def _gather(self):
        program, n = self.program, self.program.N
        arguments = (
            self.images,
            self.labels,
            self.order,
            self.starts,
            self.number,
            program.x,
            program.labels,
            program.count,
        )
        run(launch.rounding(launch.gather(self.pixels, n), out=program.half_x), *arguments, np.int32(n))

    def update(self):
        """A step of the optimiser, and of batch norm's running statistics, with the sums over devices."""
        if self.sync_statistics:
            means, variances = self.statistics[::2], self.statistics[1::2]
            with self.program.bookkeeping:
                for mean, variance, sync in zip(means, variances, self.sync_statistics, strict=True):
                    run(batch_norm.track(mean.size), sync.moments, mean, variance)
        if self.kind:
            self._run_mixed("check_finite", self.flat_grads.size, self.flat_grads, self.overflow)
        getattr(self, f"_{self.replica.optimizer.name}")(self.flat_params.size)
        if self.kind:
            update_scale = tensor_cores.mixed_precision("update_scale", self.kind, 1, loss_scale.INTERVAL)
            run(update_scale, self.scale, self.overflow, self.good_steps)
        self.branches.join()

    def _sgd(self, n):
        arguments = self.flat_params, self.flat_grads, self.rates, self.number
        if self.kind:
            self._run_mixed("scaled_sgd", n, *arguments, self.scale, self.overflow)
        else:
            run(launch.sgd(n), *arguments, np.int32(n))

    def _momentum(self, n):
        arguments = self.rates, self.sizes, self.number, self.scale, self.overflow
        run(launch.momentum(n), self.flat_params, self.flat_grads, *self.optimizer_state, *arguments, np.int32(n))

    def _adam(self, n):
        arguments = self.rates, self.sizes, self.number, self.scale, self.overflow, self.taken
        run(launch.adam(n), self.flat_params, self.flat_grads, *self.optimizer_state, *arguments, np.int32(n))
        run(launch.count_step(), self.taken, self.overflow)

    def _run_mixed(self, name, size, *arguments):
        run(tensor_cores.mixed_precision(name, self.kind, size), *arguments, np.int32(size))

    def save(self):
        """Keep what a step changes, until `restore`."""
        program = self.program
        minibatch = self.number, program.x, program.labels, program.count, program.epoch_loss, program.epoch_correct
        changing = [self.flat_params, *self.optimizer_state, *self.statistics, self.taken, *minibatch]
        self.saved = [(array, array.copy()) for array in [*changing, self.scale, self.overflow, self.good_steps]]

    def restore(self):
        self.branches.join()  # a step that failed did not get that far
        for array, saved in self.saved:
            array[...] = saved
        self.saved = None

    def scaling(self):
        """In precision "mixed" the scale of the loss and the number of good steps with it, for a checkpoint."""
        return self.scale.get(), self.good_steps.get()

    def set_scaling(self, scale, good_steps):
        self.scale.set(scale)
        self.good_steps.set(good_steps)

    def sums(self):
        self.replica.steps = int(self.taken.get()[0])
        return float(self.program.epoch_loss.get()[0]), int(self.program.epoch_correct.get()[0])


def _sync_statistics_in_one_piece(program):
    """Batch norm's new `SyncStatistics`, and the flat array with all their moments, so that they travel as one."""
    import cupy

    made = program.own_sync_statistics()
    flat = cupy.zeros(sum(sync.moments.size for sync in made), np.float64)
    moments = parts_of(flat, [sync.moments for sync in made])
    return [sync._replace(moments=part) for sync, part in zip(made, moments, strict=True)], flat


class GraphExchange:
    """Sums ``flats``, plain flat arrays of one dtype, one on each of the ``devices``, in place.

    As in collectives/execute.py each phase waits for those that the program says; but one thread does all devices'
    phases, the staging buffers are this exchange's own, since a graph keeps nothing alive that it uses, and nothing is
    measured or reported.
    """

    def __init__(self, flats, devices, algorithm):
        self._flats, self.devices = flats, devices
        staging = needs_staging(devices, flats[0].dtype)
        self.program = compile_algorithm(schedules_of(algorithm), len(devices), flats[0].size, staging)
        sizes, dtype = self.program.stage_sizes, np.dtype(flats[0].dtype)
        self._stages = [device.empty(size, dtype) for device, size in zip(devices, sizes, strict=True)]

    def issue(self):
        """Give the devices' streams their parts.

        A device that still reads what the others have finished with need not be waited for: it is written in the next
        step only.
        """
        devices = self.devices
        done = [[record(device)] for device in devices]  # each is there; to be followed by the ends of its phases
        for i, phase in self.program.order:
            with devices[i].as_current():
                for other, count in phase.waits:
                    devices[i].stream.wait_event(done[other][count])
                for action in phase.actions:
                    do_action(action, i, devices, self._flats, self._stages[i], None)
            done[i].append(record(devices[i]))


def record(device):
    """An event at the end of the device's stream so far."""
    with device.as_current():
        return device.stream.record()


def let_wait(device, other):
    """Let the next work in the stream of ``device`` wait for the work given to the ``other``'s so far."""
    event = record(other)
    with device.as_current():
        device.stream.wait_event(event)

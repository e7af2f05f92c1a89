"""Exercises for notebook 11, find the bug: functions to repair, each tried on more cases than the notebook shows.

faulty.py contains the functions before the repair. A function that does the same as an answer to an exercise of
notebook 1 or 4 is tried as that exercise tries its answers.
"""

import contextlib
import io

import numpy as np

from . import places, synchronisation
from .exercise import Exercise, expect
from .synchronisation import RAGGED

ONE_FOR_ALL = "one device does all the work: let every device add up one chunk, and send it back"
IN_CHUNKS = "cut the array into k chunks, d2lmgpu.collectives.chunk_bounds(n, k), and send one at a time"


class sum_into_all(synchronisation.allreduce):
    """Repair sum_into_all(data): data is a list of device arrays of one shape, one on each device; afterwards each
    holds the sum of all. Code that holds a reference to one of these arrays must see the sum in it."""


class sum_by_chunks(synchronisation.allreduce):
    """Repair sum_by_chunks(data): data is a list of device arrays of one shape, one on each device; afterwards each
    holds the sum of all. Each device adds up one chunk, and sends it back to all.

    all devices hold the sum, and each has added up one chunk, for 2, 3, 5 and 8 devices.
    """

    cases = ((2, 1000), (1, 4), (3, 999), (5, 1003), (8, 4000))
    enough = "each device sends k - 1 chunks to their owners, and its own sum to the k - 1 others"

    def test(self, answer, k, n):
        """Test the sums, and that no device sends more than 2(k - 1) chunks."""
        away = [t for t in super().test(answer, k, n) if t.source != t.destination]
        sent = [sum(t.nbytes for t in away if t.source == f"cpu({i})") // 4 for i in range(k)]
        enough = 2 * (k - 1) * -(-n // k)
        few, found = max(sent) <= enough, f"right, but a device sends {max(sent)} numbers; {enough} are enough"
        expect(few or sent.count(max(sent)) == k, f"{found}: cpu({np.argmax(sent)}) sends most", ONE_FOR_ALL)
        expect(few or all(t.nbytes < 4 * n for t in away), f"{found}: all devices send whole arrays", IN_CHUNKS)
        expect(few, found, self.enough)


class sum_from_neighbours(synchronisation.allreduce):
    """Repair sum_from_neighbours(data), for any number of devices: data is a list of device arrays of one shape, one on
    each device; afterwards each holds the sum of all."""


class sum_round_the_ring(sum_by_chunks):
    """Repair sum_round_the_ring(data): data is a list of device arrays of one shape, one on each device; afterwards
    each holds the sum of all. For any number of devices, no device sends more than 2(k - 1) chunks, that is, less than
    twice the array.

    all devices hold the sum, and none sends more than 2(k - 1) chunks, for 2, 3, 5 and 8 devices.
    """

    enough = "a chunk goes round twice: once to be added up, and once to be sent back unchanged"


class step_replicas(synchronisation.update_replicas):
    """Repair step_replicas(device_params, device_grads, shard_sizes, lr): for each device you get the list of its
    parameters, the list of its gradients, summed over its shard, and the size of its shard. All replicas take one step
    of SGD, in place: the step that one device would take with all examples."""

    cases = (((4, 3, 3),), ((1, 5, 0),), ((10,),))

    def test(self, answer, sizes):
        """Test the step as notebook 4's `update_replicas` does, but pass the shards' sizes to the answer."""
        super().test(lambda params, grads, lr, _: answer(params, grads, list(sizes), lr), sizes)


END_TO_END = "the first shard begins at 0, each other shard begins where the one before it ends, and the last ends at n"


class cut(Exercise):
    """Repair cut(n, k): it returns a list of k pairs (start, stop), one for each device, which together cover the
    examples 0 to n - 1 in order. Sizes differ by one at most, and n may be less than k.

    there are k pairs, end to end, whose sizes differ by one at most, for any n.
    """

    without = "chunk_bounds", "shard_bounds"
    cases = ((8, 2), (9, 2), (9, 8), (38, 8), (3, 5), (0, 2), (7, 1))
    form = [(int, int)]
    returns = "return a list of pairs (start, stop)"
    raises = "a shard may be empty: a pair (start, stop) of equal numbers"

    def mistakes(self, bounds, _, n, k):
        sizes = [stop - start for start, stop in bounds]
        yield len(bounds) != k, f"{len(bounds)} shards", "every device needs a pair, even if no example is left for it"
        yield [start for start, _ in bounds] + [n] != [0] + [stop for _, stop in bounds], END_TO_END
        yield max(sizes) - min(sizes) > 1, f"shards of {sizes} examples; all devices wait for the largest", RAGGED


class stopwatch(places.timed):
    """Repair stopwatch(work, devices, repeats=5, clock=time.perf_counter): work() submits work to all devices; clock()
    reads the time. It returns a list of seconds, one for each of `repeats` calls of work() after a warm-up. Each time
    lasts until all devices have finished, and includes nothing else."""

    def test(self, answer, k, repeats):
        """Test as notebook 1's `timed` does; in addition, the times must not include printing.

        Each character that is printed moves the clock by a fraction of a second, and everything else moves it by whole
        seconds.
        """
        screen = io.StringIO()

        def quiet(work, devices, repeats, clock):
            with contextlib.redirect_stdout(screen):
                return answer(work, devices, repeats, lambda: clock() + screen.tell() / 1024)

        super().test(quiet, k, repeats)

    def mistakes(self, seconds, right, took):
        printed = (seconds > 1) & (seconds % 1 > 0)
        yield printed.any(), "this includes the time for printing", "print before or after both readings of the clock"
        yield from super().mistakes(seconds, right, took)


_SHARE = "several devices may share one GPU, each with its own number: d2lmgpu puts gpu(i) on card i % gpus itself"


class name_devices(Exercise):
    """Repair name_devices(k, gpus): it returns the names of k devices, numbered from 0: 'gpu(0)', 'gpu(1)', ... on a
    machine with any number of GPUs, and 'cpu(0)', 'cpu(1)', ... on a machine without. A number is a device's own, and
    not its card's: if there are fewer GPUs than devices, gpu(i) is on card i % gpus.

    all devices are of one kind, for any number of GPUs.
    """

    cases = ((2, 2), (2, 1), (3, 0), (4, 1), (4, 3), (1, 8))
    hint = "number them from 0 on, in order"
    form = [str]
    returns = "return a list of names, such as ['cpu(0)', 'cpu(1)']"
    raises = _SHARE

    def right(self, k, gpus):
        return [f"{'gpu' if gpus else 'cpu'}({i})" for i in range(k)]

    def mistakes(self, names, _, k, gpus):
        kinds = {name[:3] for name in names}
        yield len(names) != k, "return a name for each of the k devices"
        yield len(kinds) > 1, "all wait for the slowest: if there is a GPU, put all devices on GPUs, otherwise none"
        yield gpus == 0 and kinds == {"gpu"}, "without a GPU, the devices are cpu(0), cpu(1), ..."
        yield gpus > 0 and kinds == {"cpu"}, f"the GPU has nothing to do; {_SHARE}"
        yield len(set(names)) < k, "a name is in the list twice", _SHARE

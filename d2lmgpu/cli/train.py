"""``d2lmgpu train``: train a network on Fashion-MNIST, or on pictures in folders.

Trains on one or more devices, by data parallelism unless --split chooses another way. With --environment parallel, it
trains on the devices of all processes that mpiexec or srun starts.
"""

from ..base import signals
from ..base.files import check_folder, is_plot, save_figure, write_json
from ..base.text import listed
from ..devices import ENVIRONMENTS, count_cores
from ..devices.timeline import Timeline, chrome_trace
from ..pictures.plots import plot_history, plot_timeline
from ..training import train
from ..training.monitor import TensorBoard, say
from .inputs import add_data, add_devices, find_data, find_devices, metrics_from, network_from
from .options import add_input, add_output, add_plot, add_settings, settings, taken, write_results
from .ranks import RankLogger, add_ranks


def add_to(command):
    """Add the options to the command's parser."""
    add_devices(command, default="1, or all for multi-gpu", environments=(*ENVIRONMENTS, "parallel"))
    add_ranks(command)
    add_data(command)
    add_input(command, "--metrics", "a Python file that defines metrics, a dict of functions of outputs and labels")
    add_plot(command, "--plot", "plot accuracy and loss by epoch")
    add_output(
        command, "--trace", "write what each device did when, as a Chrome trace (JSON) or a plot (.png, .svg, .pdf)"
    )
    add_output(command, "--checkpoint", "write a checkpoint after every epoch and when training stops")
    command.add_argument("--checkpoint-steps", type=int, metavar="N", help="also write it after every N steps")
    add_output(command, "--keep-best", "write the model that was best on the test set so far")
    add_input(command, "--resume", "continue from a checkpoint, with the same settings")
    add_output(command, "--tensorboard", "write event files for TensorBoard", "DIR", check_folder)
    add_settings(command)


@signals.listening()
def run(options, group=None):
    """Train, print how it goes, and write what was asked for; return the exit code.

    ``group``: a `Cluster` to train on, instead of the devices that the options name.
    """
    environment, devices = ("parallel", group) if group else find_devices(options)
    if options.environment == "auto" and options.devices is None and devices[0].kind == "cpu" and count_cores() > 1:
        print(f"no GPU here: cpu(0) takes one of {count_cores()} cores; --devices {count_cores()} takes all")
    data = find_data(options, options.limit)
    network, metrics = network_from(options.network, data), metrics_from(options.metrics)
    timeline = Timeline(group.mine if group else devices, spans=options.trace is not None)
    callbacks = [TensorBoard(options.tensorboard)] if options.tensorboard else []
    if group and group.rank > 0:
        callbacks.append(RankLogger())
    chosen = settings(options) | {"network": network}
    files = taken(options, "checkpoint", "checkpoint_steps", "keep_best", "resume", "invert")
    watched = {"callbacks": callbacks, "timeline": timeline, "environment": environment, "metrics": metrics}
    history, _ = train(devices, data=data, **chosen, **files, **watched)
    _tell(options, history, timeline)
    if history.diverged:
        return 1
    return signals.exit_code() if history.interrupted else 0


def _tell(options, history, timeline):
    """Print the results, and write what was asked for."""
    if history.peak_memory:
        peaks = listed(f"{nbytes / 1e6:.1f}" for nbytes in history.peak_memory)
        print(f"split {history.split}: devices hold at most {peaks} MB")
    if len(history.devices) > 1 and any(history.utilisation.values()):  # not if a resumed run had nothing left to do
        print(history.balance())
    say(history.summary())  # before anything that could fail; files are written even if nobody reads this
    trace = options.trace, _save_trace, timeline.all_spans()
    write_results(options, history.as_dict(), trace, plot=lambda: plot_history(history))


def _save_trace(path, spans):
    if is_plot(path):
        save_figure(path, lambda: plot_timeline(spans))
    else:
        write_json(path, chrome_trace(spans), indent=None)

"""What a person sees while training runs: a progress bar, a line an epoch, and a way to stop."""

import contextlib
import signal
import threading


class Stop:
    """Whether somebody asked training to end after the current step."""

    requested = False


@contextlib.contextmanager
def stop_on_interrupt():
    """Turn the first Ctrl-C within the block into a request to stop: yields a `Stop`.

    A step is never torn apart, so all devices keep the same parameters. A second
    Ctrl-C interrupts at once, as usual. Python delivers signals to the main
    thread only; elsewhere nothing changes.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request(signum, frame):
        stop.requested = True
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, request)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, previous)


class Callback:
    """What `train` calls as it goes on: override what is of interest. Who returns True ends training after the step."""

    def on_start(self, history, steps):
        """Training begins, with so many ``steps`` an epoch."""

    def on_step(self, epoch, step, loss):
        """``step`` (from 1) of ``epoch`` (from 0) was submitted; ``loss``: of the epoch so far per example, or None.

        The host program is a step ahead of the devices: the loss is of the steps that it has waited for.
        """

    def on_epoch(self, history):
        """An epoch is complete, and the last in ``history``."""

    def on_end(self, history):
        """Training is over, for whatever reason."""


class TensorBoard(Callback):
    """Writes loss, accuracy and speed as event files, which ``tensorboard --logdir DIR`` shows.

    Raises ValueError unless tensorboardX is installed.
    """

    def __init__(self, folder):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ValueError("TensorBoard needs a package: pip install 'd2lmgpu[tensorboard]'") from None
        self._writer = SummaryWriter(str(folder))

    def on_start(self, history, steps):
        self._steps = steps
        settings = {name: value for name, value in history.as_dict().items() if isinstance(value, (int, float, str))}
        self._writer.add_text("settings", "  \n".join(f"{name}: {value}" for name, value in settings.items()))

    def on_step(self, epoch, step, loss):
        if loss is not None:
            self._writer.add_scalar("loss/so_far", loss, epoch * self._steps + step)

    def on_epoch(self, history):
        step = len(history.train_loss) * self._steps
        self._writer.add_scalar("loss/training", history.train_loss[-1], step)
        self._writer.add_scalar("accuracy/test", history.test_accuracy[-1], step)
        self._writer.add_scalar("seconds/epoch", history.seconds_per_epoch[-1], step)
        self._writer.flush()

    def on_end(self, history):
        self._writer.close()


class Progress:
    """A progress bar for each epoch on standard error (terminals only), and a line for each on standard output."""

    def __init__(self, num_epochs, num_examples, visible=True):
        self.num_epochs = num_epochs
        self.num_examples = num_examples
        self.visible = visible

    def start_epoch(self, epoch, done=0):
        """``epoch`` counts from 0; ``done`` of its examples were trained on before."""
        from tqdm import tqdm

        self._epoch = f"epoch {epoch + 1}/{self.num_epochs}"
        self._examples = done
        self._bar = tqdm(
            total=self.num_examples,
            initial=done,
            desc=self._epoch,
            unit=" examples",
            leave=False,
            disable=None if self.visible else True,  # None: wherever standard error is no terminal
        )

    def step(self, num_examples, loss):
        """A minibatch is done; ``loss`` is that of the epoch so far per example, or None if it is not known yet."""
        self._examples += num_examples
        if loss is not None:
            self._bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        self._bar.update(num_examples)

    def end_epoch(self):
        """Remove the bar; returns the number of examples that were trained on."""
        self._bar.close()
        return self._examples

    def note(self, text):
        """Print a line about the run."""
        if self.visible:
            print(text, flush=True)

    def report(self, text):
        """Print a line about this epoch."""
        if self.visible:
            print(f"{self._epoch}: {text}", flush=True)

"""Plots: figures that a person can read without the text."""

from .collectives.draw import BLUE, ORANGE


def plot_history(history):
    """Test accuracy and training loss by epoch, side by side; returns the matplotlib figure."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    accuracy, loss = figure.subplots(1, 2)
    epochs = range(1, len(history.train_loss) + 1)
    accuracy.plot(epochs, history.test_accuracy, "o-", color=BLUE)
    accuracy.set(xlabel="epoch", ylabel="test accuracy", ylim=(0, 1))
    if history.test_accuracy:
        accuracy.annotate(
            f"{history.test_accuracy[-1]:.3f}",
            (len(epochs), history.test_accuracy[-1]),
            textcoords="offset points",
            xytext=(0, 8),
            ha="center",
            color=BLUE,
        )
    loss.plot(epochs, history.train_loss, "s-", color=ORANGE)
    loss.set(xlabel="epoch", ylabel="training loss per example", ylim=(0, None))
    for axes in (accuracy, loss):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlim(0.5, history.epochs + 0.5)
        axes.grid(alpha=0.3)
    figure.suptitle(
        f"LeNet on Fashion-MNIST, {', '.join(history.devices)}: batch {history.batch_size}, lr {history.lr:g}, "
        f"{history.allreduce} allreduce, {history.init} weights"
    )
    return figure

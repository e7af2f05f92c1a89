"""Plots: figures that a person can read without the text."""

COLOURS = "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #000000 #999999 #8B5A2B".split()
"""Told apart by colour-blind readers too (Okabe and Ito 2008, and two more)."""
BLUE, ORANGE = COLOURS[:2]
MARKERS = "os^vDP*X<"


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


def plot_allreduce(rows):
    """Time and bus bandwidth of `Measurement` rows by size, a line an algorithm; returns the matplotlib figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    times, bandwidths = figure.subplots(1, 2)
    names = list(dict.fromkeys(row.algorithm for row in rows))
    for name, colour, marker in zip(names, COLOURS * 2, MARKERS * 2, strict=False):
        mine = [row for row in rows if row.algorithm == name]
        sizes = [row.bytes for row in mine]
        style = {"color": colour, "marker": marker, "label": name, "markersize": 5}
        spread = [[row.seconds - row.seconds_min for row in mine], [0] * len(mine)]
        times.errorbar(sizes, [row.seconds for row in mine], spread, capsize=2, **style)
        bandwidths.plot(sizes, [row.busbw for row in mine], **style)
    times.set(xlabel="bytes on each device", ylabel="seconds (median; bar: down to the least)", yscale="log")
    bandwidths.set(xlabel="bytes on each device", ylabel="bus bandwidth, GB/s", ylim=(0, None))
    for axes in (times, bandwidths):
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
    times.legend(fontsize=8)
    figure.suptitle(f"Allreduce of float32 on {rows[0].devices} devices")
    return figure

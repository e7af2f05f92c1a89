"""One reader of plans: the picture of draw.py as an animation, in which time passes and messages travel."""

import bisect

from ..arguments import check_number, check_whole
from .draw import MESSAGES, draw_in, ends_of
from .simulate import simulate


def animate(
    plan,
    network=None,
    costs=None,
    batch_size=256,
    optimizer="sgd",
    dtype="float32",
    company=(1,),
    frames=120,
    milliseconds=80,
):
    """The plan in time as a matplotlib animation, as `simulate` tells it, which has the same arguments and errors.

    ``animation.to_jshtml()`` plays it in a notebook, ``animation.save("1f1b.gif")`` writes a file; `write_html` makes
    a page that can do more. What is still to come is pale.
    """
    from matplotlib import pyplot
    from matplotlib.animation import FuncAnimation

    check_whole("frames", frames, least=2)
    check_number("milliseconds", milliseconds, above=0)
    simulation = simulate(plan, network, costs, batch_size, optimizer, dtype, company)
    figure = pyplot.figure(layout="constrained")
    in_seconds = costs is not None or network is not None
    top, below = draw_in(figure, plan, simulation, messages=True, in_seconds=in_seconds)
    pyplot.close(figure)  # the animation shows it; a notebook should not show it once more
    end = top.get_xlim()[1]
    covers = [axes.axvspan(0, end, color="white", alpha=0.75, zorder=5) for axes in (top, below)]
    lines = [axes.axvline(0, color="#c2185b", zorder=6) for axes in (top, below)]
    dots = top.scatter([], [], s=36, zorder=7)
    levels = below.scatter([], [], s=20, color="#c2185b", zorder=7)
    times = [[time for time, _ in line] for line in simulation.memory]

    def show(frame):
        now = simulation.seconds * frame / (frames - 1)
        for cover, line in zip(covers, lines, strict=True):
            cover.set_bounds(now, 0, end - now, 1)
            line.set_xdata([now, now])
        flying = [message for message in simulation.messages if message.start <= now < message.end]
        dots.set_offsets([_place(message, now) for message in flying] or [(-end, 0)])
        dots.set_color([MESSAGES[message.action.value] for message in flying] or ["none"])
        held = [line[bisect.bisect(own, now) - 1][1] for line, own in zip(simulation.memory, times, strict=True)]
        levels.set_offsets([(now, nbytes) for nbytes in held])
        return []

    return FuncAnimation(figure, show, frames=frames, interval=milliseconds, blit=False)


def _place(message, now):
    """Where a message is: (time, height)."""
    (_, begin), (_, end) = ends_of(message)
    part = (now - message.start) / (message.end - message.start)
    return now, begin + part * (end - begin)

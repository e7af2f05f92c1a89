"""Turn a plan into an animated page for a browser: what each device does, when, and how much memory it holds.

`play` shows such a page for a plan or a schedule in a notebook.
"""

from ..base.arguments import check_whole
from ..collectives.columns import check_steps
from ..plans.plan import Plan
from .films import film_of
from .player import Player, write_page
from .schedule_films import film_of as film_of_schedule

MOST_PIXELS = 10_000


def write_html(plan, file, network=None, costs=None, **options):
    """Write an HTML file that animates the plan as computed by `simulate`, with the same arguments and errors.

    The file needs only a browser. Raises OSError if it cannot be written.
    """
    write_page(film_of(plan, network, costs, **options), file)


def play(schedule_or_plan, network=None, height=None, **options):
    """Animate a schedule or a plan in a notebook, as the value of a cell, and in web pages made from the notebook.

    The options for a schedule are those of `collectives.write_html`: itemsize, title, k and n (by default, as many
    devices and elements as the schedule names). The options for a plan are those of `simulate`: costs, batch_size,
    optimizer, dtype, contention. Times are in seconds if there is a ``network`` from `collectives.network`. ``height``:
    the height of the frame, in pixels.

    Nothing is loaded from the internet. JupyterLab shows the animation in trusted notebooks, such as your own.

    Raises ValueError for what is neither a schedule nor a plan; `ScheduleError` or `PlanError`, both of them
    ValueErrors, for a wrong schedule or plan; and TypeError for an option that there is not.
    """
    if height is not None:
        height = check_whole("height", height, most=MOST_PIXELS)
    if isinstance(schedule_or_plan, Plan):
        return Player(film_of(schedule_or_plan, network, **options), height)
    schedule = [step for step, _ in check_steps(schedule_or_plan)]
    named = [(max(t.source, t.destination) + 1, t.stop) for step in schedule for t in step]
    options = dict(zip("kn", map(max, zip(*named, (1, 0), strict=True)), strict=True)) | options
    return Player(film_of_schedule(schedule, network=network, **options), height)

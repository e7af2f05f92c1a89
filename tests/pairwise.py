"""Rows of a table in which each two values of different columns occur together, where they can."""

import itertools
import random


def pairwise(columns, settled, seed=0, tries=15):
    """Rows (dicts) of values of ``columns``, a dict of lists: few of them, and the same ones for the same ``seed``.

    ``settled(row)``: the row, or a similar one whose values go together. For a pair that is still missing rows are made
    at random, and the one with most missing pairs stays.
    """
    rng = random.Random(seed)
    missing = [
        ((one, value), (other, another))
        for one, other in itertools.combinations(columns, 2)
        for value in columns[one]
        for another in columns[other]
    ]
    rng.shuffle(missing)
    missing = dict.fromkeys(missing)
    while missing:
        wanted = next(iter(missing))
        rows = [{name: rng.choice(values) for name, values in columns.items()} | dict(wanted) for _ in range(tries)]
        news = [
            [pair for pair in itertools.combinations(row.items(), 2) if pair in missing] for row in map(settled, rows)
        ]
        new, row = max(zip(news, map(settled, rows), strict=True), key=lambda each: len(each[0]))
        if new:
            yield row
        for pair in [wanted, *new]:  # the wanted one also if its values do not go together
            missing.pop(pair, None)

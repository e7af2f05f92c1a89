"""The solution of notebook 8b's exercise."""

import numpy as np


def split_by_loads(n, loads):
    """Shares rounded down; those that lost most by it get one of the rest each."""
    shares = n * np.array(loads) / sum(loads)
    sizes = np.floor(shares).astype(int)
    neediest = np.argsort(sizes - shares)
    sizes[neediest[: n - sizes.sum()]] += 1
    return sizes.tolist()

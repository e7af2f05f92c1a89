"""Solution of notebook 6's exercise."""

from d2lmgpu.collectives import Transfer, chunk_bounds


def ring(k, n):
    """Chunk c sets out from device c + 1, collects all shares on its way to device c, and goes round once more."""
    bounds = chunk_bounds(n, k)

    def send(i, chunk, op):
        return Transfer(i, (i + 1) % k, *bounds[chunk % k], op)

    collect = [[send(i, i - 1 - step, "add") for i in range(k)] for step in range(k - 1)]
    give_back = [[send(i, i - step, "copy") for i in range(k)] for step in range(k - 1)]
    return collect + give_back

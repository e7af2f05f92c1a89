"""Networks at random, for tests: connected ones, of any wires."""

from d2lmgpu.collectives.wirings.wires import wired


def random_wiring(rng, least=3, most=16, widths=None, latencies=(0.0, 1e-6, 5e-6)):
    """A connected network of ``least`` to ``most`` devices; ``rng``: a `random.Random`.

    The bandwidths are of ``widths``, bytes/s, or 1 to 100 GB/s.
    """
    k = rng.randint(least, most)
    pairs = {(rng.randrange(i), i) for i in range(1, k)}
    pairs |= {tuple(sorted(rng.sample(range(k), 2))) for _ in range(rng.randint(0, 2 * k))}
    wires = {pair: rng.choice(widths) if widths else 10 ** rng.uniform(9, 11) for pair in sorted(pairs)}
    return wired(wires, rng.choice(latencies), f"{k} devices, {len(pairs)} wires")

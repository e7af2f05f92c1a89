"""Networks at random, for tests: connected ones, of any wires."""

from hypothesis import strategies as st

from d2lmgpu.collectives.wirings.wires import wired


@st.composite
def wirings(draw, least=3, most=16, widths=None, latencies=(0.0, 1e-6, 5e-6)):
    """A connected network of ``least`` to ``most`` devices; its bandwidths are of ``widths``, bytes/s, or any."""
    k = draw(st.integers(least, most))
    pairs = {(draw(st.integers(0, i - 1)), i) for i in range(1, k)}
    ends = st.tuples(st.integers(0, k - 1), st.integers(0, k - 1))
    pairs |= {(min(pair), max(pair)) for pair in draw(st.lists(ends, max_size=2 * k)) if pair[0] != pair[1]}
    any_width = st.sampled_from(widths) if widths else st.floats(1e9, 1e11)
    wires = {pair: draw(any_width) for pair in sorted(pairs)}
    return wired(wires, draw(st.sampled_from(latencies)), f"{k} devices, {len(pairs)} wires")

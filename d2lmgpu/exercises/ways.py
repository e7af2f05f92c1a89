"""The ways that numbers took: between devices, and not over the host or past the record."""

from .results import Wrong, expect

RAW = "reading .raw gets around the rules, which a GPU would not forgive"


def check_ways(transfers, devices, numbers, case):
    """Raise `Wrong` if so many float32 numbers went over the host, or never came to one of several devices."""
    places, nbytes = set(map(str, devices)), 4 * numbers
    up = sum(t.nbytes for t in transfers if t.source in places and t.destination == "host")
    down = sum(t.nbytes for t in transfers if t.source == "host" and t.destination in places)
    if up >= nbytes and down >= nbytes:
        raise Wrong(
            f"{case}: right, but the numbers went over the host: {up:,} bytes up and {down:,} down",
            "put copies from device to device; the host is twice the way, and the same one for all devices",
        )
    for place in sorted(places):
        got = sum(t.nbytes for t in transfers if t.destination == place != t.source and t.source != "host")
        expect(
            got >= nbytes,
            f"{case}: right, but only {got:,} bytes came to {place} from other devices; the sum has {nbytes:,}",
            f"numbers travel by put; {RAW}",
        )

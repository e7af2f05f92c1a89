"""The exceptions that devices raise."""

import sys

HOST = "host"
"""The place of plain NumPy arrays: the program's own memory, which belongs to no device."""


class DeviceError(RuntimeError):
    """A device does not exist, cannot be used, or is used against the rules."""


class DeviceMemoryError(DeviceError, MemoryError):
    """More memory is asked for than a device has, or than its limit allows."""


class DeviceMismatchError(DeviceError):
    """One operation was given arrays in different places.

    The message names both places and says how to move the data.
    """

    def __init__(self, operation, first, second, what="another"):
        places = ["the host" if str(place) == HOST else str(place) for place in (first, second)]
        device = first if str(first) != HOST else second
        advice = f"d2l.put(x, d2l.{device}) copies an array to {device}"
        if "the host" in places:
            advice = f"d2l.put(x, d2l.{device}) copies a host array to {device}, "
            advice += "d2l.to_host(x) copies a device array to the host"
        super().__init__(
            f"{operation}: one array is on {places[0]} and {what} on {places[1]}; "
            f"an operation needs all its arrays in one place. {advice}."
        )


def errors_of_cuda():
    """For an ``except``: CuPy's exceptions for errors of CUDA's runtime and driver; none if CuPy is not imported."""
    cuda = getattr(sys.modules.get("cupy"), "cuda", None)
    return (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError) if hasattr(cuda, "driver") else ()

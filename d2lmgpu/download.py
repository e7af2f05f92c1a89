"""A file from the web, of a limited size and in a limited time, whatever the other side does."""

import threading

from .devices.errors import message_of

WAIT = 30.0
"""Seconds for which the other side may say nothing."""


class DownloadError(RuntimeError):
    """A file was not to be had at an address; the message says why."""


def download(url, most, seconds, name):
    """The bytes that ``url`` gives, ``most`` at the most, with a progress bar called ``name``.

    Raises DownloadError: no connection, a bad status or answer, more bytes, or not all of them there in so many
    ``seconds``. The thread that waits for them is then left alone, and ends when it hears from the other side.
    """
    late, result = threading.Event(), []

    def work():
        try:
            result.append(_read(url, most, min(WAIT, seconds), name, late))
        except Exception as error:  # urllib raises many kinds for answers that are none
            result.append(error)

    # a thread, since a timeout of urllib's begins anew with every byte, of the answer's head, too
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    late.set()
    if not result:
        raise DownloadError(f"not there after {seconds:.3g} seconds")
    if isinstance(result[0], Exception):
        raise DownloadError(_why(result[0])) from result[0]
    return result[0]


def _read(url, most, wait, name, late):
    from urllib.request import urlopen

    from tqdm import tqdm

    data = bytearray()
    with urlopen(url, timeout=wait) as response, tqdm(total=most, desc=name, unit="B", unit_scale=True) as bar:
        while not late.is_set() and (block := response.read1(1 << 16)):
            data += block
            if len(data) > most:
                raise DownloadError(f"sends more than {most:,} bytes")
            bar.update(len(block))
    return bytes(data)


def _why(error):
    from urllib.error import HTTPError, URLError

    if isinstance(error, HTTPError):
        error.close()
    elif isinstance(error, URLError):
        error = error.reason
    return message_of(error)[:200]

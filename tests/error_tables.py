"""Tables of wrong calls and what is said of them: tests/base/test_errors.py, tests/cli/test_errors_of_commands.py.

A row has calls, with | between, and after => words of the message, in this order; … stands for words between. What
begins with spaces belongs to the row above.
"""

import re

import pytest


def rows(tables):
    """The rows of some tables, by name, for ``parametrize``: a list of calls, and what is said of each."""
    for name, table in tables.items():
        for row in table.strip().replace("\n    ", " ").splitlines():
            calls, said = row.split(" => ")
            yield pytest.param(calls.split(" | "), said, id=f"{name}: {calls[:50]}")


def says(message, words):
    """Whether a message is one line, not too long, with these words."""
    pattern = ".*".join(map(re.escape, re.split(" ?… ?", words)))
    return re.search(pattern, message) and "\n" not in message and len(message) < 1000

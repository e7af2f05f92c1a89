"""The rows of docs/documents.md, and which function or test shows each of them."""

import functools
import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs" / "documents.md"

DOCUMENTS = ("guide", "japanese", "loops", "article", "textbook", "others")
"""MATLAB's guide, its Japanese edition, MATLAB's page on custom training loops, an article on TensorFlow, the chapter.

The last is no document: it is what PyTorch, and TensorFlow's own guide, have beyond those.
"""

NOT_HERE = "not here: "
"""How ``here`` begins where this project does not do it: then comes why."""


class Item(NamedTuple):
    """A row of the page: what one of the documents lets its reader do, and what does it here, both as Markdown."""

    document: str
    item: str
    here: str


def _read_items():
    tables = re.findall(r"<!-- rows: (\w+) -->\n(.*?)<!-- end of rows -->", PAGE.read_text("utf-8"), re.DOTALL)
    for document, table in tables:
        for line in table.strip().splitlines()[2:]:
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            yield Item(document, *(cell.strip().replace("\\|", "|") for cell in cells))


ITEMS = list(_read_items())

CHECKS = {}
"""For an `Item` the function that asserts it, or the test that shows it, as "test_file.py::test_name".

A function runs in an empty folder, on 60 images of Fashion-MNIST; its arguments are names of pytest's fixtures.
"""


def _shows(document, *beginnings, by=None):
    """Enter the function that is decorated, or else the test ``by``, for the rows that begin with these words."""

    def enter(check):
        for words in beginnings:
            own = [item for item in ITEMS if item.document == document and item.item.startswith(words)]
            rows = [item for item in own if item.item == words] or own
            assert len(rows) == 1 and rows[0] not in CHECKS, f"{len(rows)} rows of {document}, or shown twice: {words}"
            CHECKS[rows[0]] = check
        return check

    return enter if by is None else enter(by)


guide, japanese, loops, article, textbook, others = (functools.partial(_shows, document) for document in DOCUMENTS)

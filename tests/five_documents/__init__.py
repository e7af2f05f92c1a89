"""The five documents, item by item: what each lets its reader do, what does it here, and a small program that shows it.

docs/tables.py makes the page docs/documents.md of it, and test_five_documents.py runs the programs. Each document is a
file, in its own order; the files are imported in the order of the page, since each enters its items.
"""

from . import guide as guide  # isort: skip
from . import loops as loops  # isort: skip
from . import article as article  # isort: skip
from . import textbook as textbook  # isort: skip
from . import others as others  # isort: skip
from .items import DOCUMENTS as DOCUMENTS, ITEMS as ITEMS, NOT_HERE as NOT_HERE

"""The five documents, item by item: for each row of docs/documents.md a small program that does what the row promises.

The page owns the words; the files here name its rows by the words with which they begin. test_five_documents.py runs
the programs, and fails if a row has none.
"""

from .rows import DOCUMENTS as DOCUMENTS, ITEMS as ITEMS, NOT_HERE as NOT_HERE

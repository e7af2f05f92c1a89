"""The browser that prints the slides, and in which the tests look at the website."""

import shutil


def find_chromium():
    """The browser's file; None if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

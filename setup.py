"""What setup.cfg cannot say: the README's links lead to the repository where a package shows it."""

import configparser
import re
from pathlib import Path

HERE = Path(__file__).parent
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)[^)\s]+")


def absolute(text, address):
    """Markdown of the repository's main folder with the whole address in each link and picture."""

    def place(found):
        path = HERE / found[0].partition("#")[0]
        kind = "tree" if path.is_dir() else "raw" if path.suffix in (".svg", ".png") else "blob"
        return f"{address}/{kind}/main/{found[0]}"

    return LINK.sub(place, text)


if __name__ == "__main__":
    from setuptools import setup

    settings = configparser.ConfigParser()
    settings.read(HERE / "setup.cfg", "utf-8")
    address = settings["metadata"]["url"]
    pages = {"Documentation": "docs/index.md", "Changes": "CHANGELOG.md"}
    setup(
        long_description=absolute((HERE / "README.md").read_text("utf-8"), address),
        project_urls={name: f"{address}/blob/main/{page}" for name, page in pages.items()},
    )

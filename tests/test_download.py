"""Mirrors that misbehave: each is given up in time, and the next one asked; the error says what each of them did."""

import gc
import socketserver
import threading
from pathlib import Path

import pytest
from conftest import few

import d2lmgpu as d2l
from d2lmgpu import fashion_mnist

SHIPPED = Path(__file__).resolve().parents[1] / "data" / "fashion-mnist"
NAME = "t10k-labels-idx1-ubyte.gz"
GOOD = (SHIPPED / NAME).read_bytes()
OK, CHUNKED = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MOVED = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n"
ENDLESS = [b"x" * 65536] * 10_000  # 655 MB

ANSWERS = {  # what a mirror sends, a block at a time, and what the error says of it; those called slow take their time
    "flood": ([OK + b"\r\n", *ENDLESS], "5,149 bytes of 5,148, MD5"),
    "flood announced": ([OK + b"Content-Length: 3300000000\r\n\r\n", *ENDLESS], "5,149 bytes of 5,148, MD5"),
    "flood of chunks": ([CHUNKED, *[b"10000\r\n" + b"x" * 65536 + b"\r\n"] * 10_000], "5,149 bytes of 5,148, MD5"),
    "flood of headers": ([OK, *[b"X-A: " + b"x" * 60000 + b"\r\n"] * 10_000], "got more than 100 headers"),
    "slow and silent": ([b""] * 3000, "timed out"),
    "no chunks": ([CHUNKED, b"nonsense\r\n" + GOOD], "IncompleteRead"),
    "half a chunk": ([CHUNKED, b"1000\r\n" + GOOD[:100]], "IncompleteRead"),
    "a negative chunk": ([CHUNKED, b"-5\r\n" + GOOD], "non-negative|bytes of 5,148, MD5"),
    "half the file": ([OK + b"Content-Length: 5148\r\n\r\n" + GOOD[:1000]], "1,000 bytes of 5,148, MD5 "),
    "another file": ([OK + b"\r\n" + GOOD[::-1]], "5,148 bytes of 5,148, MD5 "),
    "nothing": ([OK + b"\r\n"], r"\(0 bytes of 5,148"),
    "no answer": ([], "closed connection without response|reset"),
    "no HTTP": ([b"220 ftp.example.org\r\n" * 20], "220 ftp.example.org"),
    "a bad status": ([b"HTTP/1.1 2oo OK\r\n\r\n"], "2oo"),
    "not found": ([b"HTTP/1.1 404 Not Found\r\n\r\n"], "HTTP Error 404: Not Found"),
    "out of order": ([b"HTTP/1.1 503 Busy\r\n\r\n"], "HTTP Error 503: Busy"),
    "a status of no file": ([b"HTTP/1.1 204 No Content\r\n\r\n"], r"\(0 bytes of 5,148"),
    "moved round and round": ([MOVED + b"Location: /moved round and round/\r\n\r\n"], "infinite loop"),
    "moved to a file": ([MOVED + b"Location: file:///etc/hosts\r\n\r\n"], "not allowed"),
    "moved to nonsense": ([MOVED + b"Location: http://[nonsense\r\n\r\n"], "Invalid IPv6 URL"),
    "moved to no port": ([MOVED + b"Location: http://127.0.0.1:port/\r\n\r\n"], "nonnumeric port"),
    "moved nowhere": ([MOVED + b"\r\n"], "HTTP Error 302: Found"),
    "moved away": ([MOVED + b"Location: http://127.0.0.1:9/x\r\n\r\n"], "refused"),
}


@pytest.fixture
def mirror():
    """A server that answers as its address says; (its address, how many bytes it has sent)."""
    over, sent = threading.Event(), []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            path = self.rfile.readline().decode().split(" ")[1].replace("%20", " ").strip("/")
            while self.rfile.readline().strip():
                pass
            name = path.split("/")[0]
            for block in ANSWERS[name][0] if name != "good" else [OK + b"\r\n" + GOOD]:
                if over.wait(0.01 if name.startswith("slow") else 0):
                    return
                self.wfile.write(block)
                sent.append(len(block))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def handle_error(self, *_):  # the other side has gone
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", sent
        over.set()
        server.shutdown()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # urllib leaves a connection open whose redirect is nonsense
@pytest.mark.parametrize(
    "name", few(ANSWERS, "flood", "slow and silent", "half the file", "another file", "not found", "no answer")
)
def test_the_next_mirror_is_asked(tmp_path, monkeypatch, mirror, name):
    address, sent = mirror
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fashion_mnist, "_folders", lambda: iter([fashion_mnist.cache_folder()]))
    bad, good = f"{address}{name.replace(' ', '%20')}/", f"{address}good/"
    monkeypatch.setattr(fashion_mnist, "WAIT", 0.3 if name.startswith("slow") else 60)
    monkeypatch.setattr(fashion_mnist, "MIRRORS", (bad,))
    with pytest.raises(d2l.DataError, match=ANSWERS[name][1]) as error:
        fashion_mnist.find_file(NAME)
    assert f"{bad}{NAME} (" in str(error.value) and "\n" not in str(error.value)
    del error
    gc.collect()
    assert sum(sent) < 50e6  # what was under way when the connection was closed
    cache = fashion_mnist.cache_folder()
    assert not [path for path in cache.iterdir() if path.name.endswith((".gz", ".part"))]
    monkeypatch.setattr(fashion_mnist, "WAIT", 60)
    monkeypatch.setattr(fashion_mnist, "MIRRORS", (*[bad] * (not name.startswith("slow")), good))
    assert fashion_mnist.find_file(NAME).read_bytes() == GOOD

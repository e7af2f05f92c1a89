"""Answers: what does a command do on several hosts, joined by wires of limited speed?

    python benchmarks/hosts.py --hosts 2 --bandwidth 100 -- mpiexec -n 2 d2lmgpu train --environment parallel

makes hosts on this one machine, each with its own address, name and shared memory, and runs the command on the first
of them, and what mpiexec starts (MPICH's or Open MPI's) on all of them. It needs Linux, the tools of iproute2 and
util-linux, and the permission to make network namespaces, but not to be root.

    a  eth0 ──────── to-a ┐
    b  eth0 ──────── to-b ├ a switch that never blocks (a bridge)
    c  eth0 ──────── to-c ┘

A host is a few namespaces, a wire a pair of virtual Ethernet devices, each of whose two ends sends so many bits a
second (tc's token bucket). Latency is what the kernel needs. All of it belongs to one shell, which this program tells
what to do, and which is process 1 in a namespace of its own: however this program ends, the shell ends, too, and with
it, by the kernel's rules, all processes, namespaces and wires.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

BURST = 1e-3
"""Seconds of full speed that a wire lets through at once after a pause; less, and the kernel's timers slow it down."""

QUEUE = "4mb"
"""What may wait before a wire until packets are lost."""

TOOLS = ("unshare", "nsenter", "ip", "tc", "hostname")

ALIVE = 5
"""Seconds after which a login to a host that is not reached any more ends."""


class NoNamespaces(OSError):
    """Network namespaces are not to be had here."""


class Hosts:
    """``count`` hosts as long as this is open: ``with Hosts(2, 100) as hosts: hosts.start(["mpiexec", ...])``.

    ``bandwidth``: of each host's wire in Mbit/s, either way; a list has one for each. ``each``: how many processes
    mpiexec starts on a host before it goes on with the next. Raises `NoNamespaces` where they are not allowed, or tools
    are missing.
    """

    def __init__(self, count=2, bandwidth=1000, each=1):
        self.names = [chr(ord("a") + i) for i in range(count)]
        each_one = bandwidth if isinstance(bandwidth, (list, tuple)) else [bandwidth] * count
        self.bandwidth, self.each = dict(zip(self.names, each_one, strict=True)), each

    def __enter__(self):
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if missing:
            raise NoNamespaces(f"network namespaces cannot be made here: there is no {', '.join(missing)}")
        user = ["--user", "--map-root-user"] if os.geteuid() else []
        command = ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self._shell = subprocess.Popen(command, **pipes, start_new_session=True)
        self._folder = tempfile.TemporaryDirectory(prefix="hosts")
        self.folder = Path(self._folder.name)
        try:
            self._write_files()
            self.do("ip link set lo up; ip link add switch type bridge; ip link set switch up")
            for number, name in enumerate(self.names, 1):
                self._add(name, f"10.77.0.{number}/24")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception):
        self._shell.kill()  # and the kernel all others
        self._shell.communicate()
        self._folder.cleanup()

    def _write_files(self):
        """The names' addresses, the two mpiexecs' lists of hosts, and what they take for ssh."""
        lines = {
            "addresses": ["127.0.0.1 localhost", *(f"10.77.0.{i} {name}" for i, name in enumerate(self.names, 1))],
            "for-mpich": [f"{name}:{self.each}" for name in self.names],
            "for-openmpi": [f"{name} slots={self.each}" for name in self.names],
            "login": ["#!/bin/sh", f'exec {sys.executable} {Path(__file__).resolve()} --login {self.folder} "$@"'],
        }
        for file, text in lines.items():
            (self.folder / file).write_text("\n".join(text) + "\n")
        (self.folder / "login").chmod(0o755)

    def _add(self, name, address):
        own = "--net --uts --mount"
        self.do(f"unshare {own} sh -c 'echo $$ > {self.folder}/{name}.pid; exec sleep infinity' >/dev/null 2>&1 &")
        (self.folder / f"{name}.boot").write_text(f"{uuid.uuid4()}\n")
        file = self.folder / f"{name}.pid"
        while not (file.exists() and file.read_text().endswith("\n")):
            self.do("sleep 0.01")
        pid = file.read_text().strip()
        self.do(f"ip link add to-{name} type veth peer name eth0 netns {pid}; ip link set to-{name} master switch up")
        bandwidth = self.bandwidth[name]
        burst = max(4096, round(BURST * bandwidth * 1e6 / 8))
        limit = f"root tbf rate {bandwidth}mbit burst {burst} limit {QUEUE}"
        inside = [
            f"hostname {name}; mount -t tmpfs shm /dev/shm; mount --bind {self.folder}/addresses /etc/hosts",
            f"mount --bind {self.folder}/{name}.boot /proc/sys/kernel/random/boot_id",  # who has one, shares memory
            f"ip link set lo up; ip addr add {address} dev eth0; ip link set eth0 up; tc qdisc add dev eth0 {limit}",
        ]
        self.do(f"tc qdisc add dev to-{name} {limit}; nsenter --target {pid} {own} sh -ec '{'; '.join(inside)}'")

    def do(self, line):
        """Let the shell that has all hosts do this. Raises `NoNamespaces`, and all hosts are gone, if that fails."""
        said, found = "", ""
        try:
            self._shell.stdin.write(f"set -e; {line}\necho =\n")
            self._shell.stdin.flush()
            while (found := self._shell.stdout.readline()) not in ("=\n", ""):
                said += found
        except BrokenPipeError:
            said += self._shell.stdout.read()
        if not found:
            raise NoNamespaces(f"network namespaces cannot be made here: {said.strip() or line}")
        return said

    def start(self, command, host="a", **how):
        """Start a command on a host, as `subprocess.Popen`; mpiexec there finds the others."""
        children = Path(f"/proc/{self._shell.pid}/task/{self._shell.pid}/children").read_text().split()
        user = ["--user", "--preserve-credentials"] if os.geteuid() else []
        enter = ["nsenter", "--target", children[0], *user, "--mount", "--pid", f"--wd={os.getcwd()}"]
        pid = (self.folder / f"{host}.pid").read_text().strip()
        enter += ["nsenter", "--target", pid, "--net", "--uts", "--mount", f"--wd={os.getcwd()}"]
        environment = {**(how.pop("env", None) or os.environ), **self.launching()}
        return subprocess.Popen([*enter, *map(str, command)], env=environment, **how)

    def launching(self):
        """Environment variables: MPICH's, then Open MPI's."""
        folder = self.folder
        return {
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": f"{folder}/login",
            "HYDRA_HOST_FILE": f"{folder}/for-mpich",
            "HYDRA_IFACE": "eth0",
            "PRTE_MCA_plm_ssh_agent": f"{folder}/login",
            "PRTE_MCA_prte_default_hostfile": f"{folder}/for-openmpi",
            "PRTE_MCA_prte_tmpdir_base": str(folder),  # where nobody has been before
            "PRTE_MCA_prte_if_include": "eth0",
            "PRTE_MCA_rmaps_default_mapping_policy": f"ppr:{self.each}:node",
            "OMPI_MCA_btl_tcp_if_include": "eth0",
        }

    def cut(self, name):
        """Pull a host's wire out of the switch."""
        self.do(f"ip link set to-{name} down; touch {self.folder}/{name}.cut")


def login(folder, *words):
    """What mpiexec takes for ssh: login [options] HOST COMMAND...; returns the command's exit code.

    As ssh with ServerAliveInterval it gives up a host that it does not reach any more; what runs there goes on.
    """
    words = list(words)
    while words[0].startswith("-"):
        words.pop(0)
    host, *words = words
    pid = Path(folder, f"{host}.pid").read_text().strip()
    enter = [
        "nsenter",
        "--target",
        pid,
        "--net",
        "--uts",
        "--mount",
        f"--wd={os.getcwd()}",
        "sh",
        "-c",
        " ".join(words),
    ]
    there = subprocess.Popen(enter, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    relays = [
        threading.Thread(target=_relay, args=(said.fileno(), here), daemon=True)
        for said, here in ((there.stdout, 1), (there.stderr, 2))
    ]
    for relay in relays:
        relay.start()
    cut_since = None
    while there.poll() is None:
        cut = any(Path(folder, f"{name}.cut").exists() for name in (host, socket.gethostname()))
        cut_since = (cut_since or time.monotonic()) if cut else None
        if cut and time.monotonic() - cut_since > ALIVE:
            print(f"no answer from {host}", file=sys.stderr, flush=True)
            os._exit(255)
        time.sleep(0.05)
    for relay in relays:
        relay.join()
    return there.returncode


def _relay(source, destination):
    while some := os.read(source, 65536):
        os.write(destination, some)


def main():
    if sys.argv[1:2] == ["--login"]:
        return login(*sys.argv[2:])
    parser = argparse.ArgumentParser(description="Run a command, such as mpiexec, on hosts that are not there.")
    parser.add_argument("--hosts", type=int, default=2, metavar="N")
    parser.add_argument(
        "--bandwidth", default="1000", metavar="N", help="Mbit/s of each host's wire, or a list: 100,100,10"
    )
    parser.add_argument("--each", type=int, default=1, metavar="N", help="processes on a host before the next has some")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    words = options.bandwidth.split(",")
    if not all(word.isdigit() and int(word) for word in words) or len(words) not in (1, options.hosts):
        parser.error(f"--bandwidth is {options.bandwidth}; it should be at least 1, for all hosts or one for each")
    bandwidth = list(map(int, words)) if len(words) > 1 else int(words[0])
    for name in ("hosts", "each"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}; it should be at least 1")
    if not options.command[options.command[:1] == ["--"] :]:
        parser.error("give a command to run on the first host, after --, such as -- mpiexec -n 2 hostname")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and so through what stands after `with`
    with Hosts(options.hosts, bandwidth, options.each) as hosts:
        running = hosts.start(options.command[options.command[:1] == ["--"] :])
        try:
            return running.wait()
        except KeyboardInterrupt:  # the command has got it, too, and may have something to write
            return running.wait()


if __name__ == "__main__":
    sys.exit(main())

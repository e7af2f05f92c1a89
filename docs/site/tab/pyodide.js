// Python for WebAssembly: Pyodide, behind the interface of wasi.js. UNTRIED: where this was written, Pyodide's packages
// could not be had. conf.py chooses it (tab_runtime = "pyodide"); all of Pyodide's files are then in tab/pyodide/.

import { read } from "./wasi.js";

export async function start(base, progress, tell, env) {
  const { loadPyodide } = await import(base + "pyodide/pyodide.mjs");
  const line = file => text => tell(read(text, file));
  const python = await loadPyodide({ env: Object.fromEntries(env.map(pair => pair.split("="))), stdout: line(1), stderr: line(2) });
  progress(0.3);
  await python.loadPackage(["numpy", "matplotlib", "tqdm", "threadpoolctl", "pillow"]);
  progress(0.8);
  const own = await (await fetch(base + "library.tar.gz")).arrayBuffer();
  python.unpackArchive(own, "gztar", { extractDir: "/own" });
  python.runPython(`import os, sys
os.rename("/own/course", "/course")
for name in os.listdir("/own"):  # not the libraries of another Python
    if name.startswith(("d2lmgpu", "tab_")):
        os.renames(f"/own/{name}", f"/lib/tab/{name}")
sys.path.insert(0, "/lib/tab")`);
  return {
    memory: () => python._module.HEAP8.length,
    write: (name, text) => python.FS.writeFile(`/${name}`, text),
    run(code) {
      try {
        python.runPython(code);
        return true;
      } catch (error) {
        return /SystemExit: (0|False)/.test(error.message);
      }
    },
  };
}

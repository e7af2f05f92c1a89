// The worker of a page: it has Python, and runs a cell at a time. It cannot touch the page, only send it messages.
//
//     page                                           worker
//     {begin: {base, runtime, name, files}}    →
//                                              ←     {progress: 0 to 1}, {ready: {seconds, memory}} or {failed: text}
//     {run: {id, source, name}}                →
//                                              ←     {id, text} and the like (tab_cells.py), then {id, done: well or not}

let python, current;

let said = ""; // by Python while it begins

const tell = told => {
  if (!python || current === undefined) said += told.text ?? told.error ?? "";
  postMessage({ id: current, ...told });
};

const ENVIRONMENT = ["D2LMGPU_QUICK=1", "NO_COLOR=1", "MPLBACKEND=agg"];

async function begin({ base, runtime, files }) {
  const begun = performance.now();
  const { start } = await import(`./${runtime}.js`);
  python = await start(base, progress => postMessage({ progress }), tell, ENVIRONMENT);
  for (const [file, text] of Object.entries(files)) python.write(`course/${file}`, text);
  const ready = python.run(`import os, tab_cells\nos.chdir("/course")\ntab_cells.begin()`);
  if (!ready) throw Error(said);
  postMessage({ ready: { seconds: (performance.now() - begun) / 1000, memory: python.memory() } });
}

function run({ id, source, name }) {
  current = id;
  const done = python.run(`import sys\nsys.exit(not tab_cells.run(${JSON.stringify(source)}, ${JSON.stringify(name)}))`);
  current = undefined;
  postMessage({ id, done, memory: python.memory() });
}

onmessage = async ({ data }) => {
  try {
    if (data.begin) await begin(data.begin);
    else run(data.run);
  } catch (error) {
    postMessage({ failed: String(error) });
  }
};

// One Python for a page: a worker that is started when it is first needed, and ended by stop().

const ROOT = new URL("../../", import.meta.url); // of the site
const KEPT = "d2lmgpu files"; // in the browser's storage: the reader's files, such as mine.py, by name

export function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// The browser's storage may be forbidden, full, or damaged: then nothing is kept, and all else works.
export function load(key) {
  try {
    return JSON.parse(localStorage.getItem(key)) || {};
  } catch {
    return {};
  }
}

export function save(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {}
}

export class Session {
  // onState(text, progress): what goes on, for the reader.
  constructor(onState) {
    Object.assign(this, { onState, files: load(KEPT), runs: new Map(), count: 0, number: 0 });
  }

  start() {
    if (!this.ready) {
      this.onState("loading Python …", 0);
      this.ready = this.#begin();
      this.ready.catch(() => {});
    }
    return this.ready;
  }

  async #begin() {
    const number = ++this.number;
    await keepForTheNextVisit();
    if (number !== this.number) throw Error("stopped");
    const runtime = document.querySelector("meta[name=d2lmgpu-python]").content;
    this.worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    return new Promise((resolve, reject) => {
      this.worker.onmessage = ({ data }) => this.#got(data, resolve, reject);
      this.worker.onerror = event => this.#got({ failed: event.message || "its worker does not start" }, resolve, reject);
      this.worker.postMessage({ begin: { base: new URL("tab/", ROOT).href, runtime, files: this.files } });
    });
  }

  // Run a cell's source; show(told) is called for each thing that it shows. Returns whether it raised nothing.
  async run(source, name, show) {
    await this.start();
    const id = ++this.count;
    this.onState(`running ${name} …`);
    return new Promise(done => {
      this.runs.set(id, { show, done });
      this.worker.postMessage({ run: { id, source, name } });
    });
  }

  stop() {
    this.#end({});
    this.onState("stopped; what is above is run again when you go on");
  }

  // End the worker; runs that are under way show why.
  #end(why) {
    this.worker?.terminate();
    this.worker = this.ready = undefined;
    this.number += 1;
    for (const { show, done } of this.runs.values()) (show(why), done(false));
    this.runs.clear();
  }

  #got(data, resolve, reject) {
    const run = this.runs.get(data.id);
    if (data.progress !== undefined) this.onState(`loading Python … ${Math.floor(100 * data.progress)}%`, data.progress);
    else if (data.ready) {
      this.measured = data.ready;
      this.onState(`Python is ready, after ${data.ready.seconds.toFixed(1)} s`);
      resolve();
    } else if (data.failed) {
      const old = data.failed.includes("CompileError") ? "; this browser is too old for it, a current one is needed" : "";
      const error = `Python ended: ${data.failed}${old}`;
      this.#end({ error });
      this.onState(error);
      reject(Error(data.failed));
    } else if (data.done !== undefined) {
      this.measured = { ...this.measured, memory: data.memory };
      this.runs.delete(data.id);
      this.onState(data.done ? "ready" : "ready; the last cell raised an error");
      run?.done(data.done);
    } else if (data.files) save(KEPT, Object.assign(this.files, data.files));
    else if (data.waits !== undefined) this.onState(data.waits || "running …");
    else run?.show(data);
  }
}

// A service worker keeps what is loaded from now on, and what this page has loaded: the next visit needs no network.
// Without one, as from file: or where the browser forbids it, all is loaded each time.
async function keepForTheNextVisit() {
  const workers = navigator.serviceWorker;
  if (!workers) return;
  try {
    await workers.register(new URL("sw.js", ROOT));
    if (!workers.controller) await new Promise(come => ((workers.oncontrollerchange = come), setTimeout(come, 3000)));
    const loaded = [location.href.split("#")[0], ...performance.getEntriesByType("resource").map(entry => entry.name)];
    workers.controller?.postMessage({ loaded: loaded.filter(url => url.startsWith(ROOT.href)) });
  } catch {}
}

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
const TELL_HEIGHT = `<script>{
  const tell = () => parent.postMessage({height: document.documentElement.offsetHeight}, "*");
  new ResizeObserver(tell).observe(document.documentElement); // it tells when the frame comes into sight
}</script>`;

// Where a cell's output goes. HTML that the reader's code has made gets a frame of its own, which cannot touch the page.
export class Output {
  constructor(element) {
    this.element = element;
    element.replaceChildren();
  }

  show = told => {
    if (told.text !== undefined) this.#print(told.text);
    else if (told.error !== undefined) this.#add("pre", { className: "tab-error", textContent: told.error });
    else if (told.png) this.#add("img", { src: `data:image/png;base64,${told.png}`, width: told.width, alt: "the cell's figure" });
    else if (told.html) this.#frame(told.html);
  };

  #add(tag, properties) {
    this.text = undefined;
    const made = make(tag, properties);
    this.element.append(made);
    return made;
  }

  #print(text) {
    this.text ??= this.#add("pre", {});
    const shown = this.text.textContent + text;
    this.text.textContent = shown.replace(/^.*\r(?!\n)(?=.)/gm, "").slice(-100_000); // progress bars write over themselves
  }

  #frame(html) {
    const frame = this.#add("iframe", { title: "the cell's output", srcdoc: "" });
    frame.setAttribute("sandbox", "allow-scripts");
    frame.srcdoc = `<!doctype html><meta http-equiv="Content-Security-Policy" content="${POLICY}"><meta name="color-scheme" content="light dark"><body style="margin:0">${html}${TELL_HEIGHT}`;
    addEventListener("message", ({ source, data }) => {
      if (source === frame.contentWindow && data.height) frame.style.height = `${Math.min(data.height, 1200)}px`;
    });
  }
}

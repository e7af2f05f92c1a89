// "Try it": a notebook's page becomes one whose cells run, when the reader asks for it; until then nothing is loaded.

import { editor } from "./editor.js";
import { Output, Session, load, make, save } from "./session.js";

const NAME = location.pathname.split("/").pop().replace(/\.html$/, "") || "index";
const KEY = `d2lmgpu cells of ${NAME}`; // the reader's changes: by a cell's number its source

class Cell {
  constructor(element, number, notebook) {
    const input = element.querySelector(".cell_input");
    Object.assign(this, { element, input, number, notebook, original: input.querySelector("pre").textContent.replace(/\n+$/, "") });
  }

  get source() {
    return this.editor.field.value;
  }

  get name() {
    return `cell ${this.number}`;
  }

  open(changed) {
    this.editor = editor(changed ?? this.original, this.name, () => this.notebook.run(this), text => this.notebook.keep(this, text));
    const bar = make("div", { className: "tab-bar" });
    const button = make("button", { textContent: "▶ Run", onclick: () => this.notebook.run(this) });
    this.reset = make("button", { textContent: "As it was", hidden: changed === undefined, onclick: () => this.restore() });
    this.said = make("span", { textContent: "" });
    this.said.setAttribute("role", "status");
    bar.append(button, this.reset, this.said);
    this.input.replaceChildren(this.editor, bar);
  }

  restore() {
    this.editor.set(this.original);
    this.notebook.keep(this, this.original);
  }

  // Where the saved output was is what the cell shows now.
  clear() {
    [...this.element.children].filter(part => !part.contains(this.input)).forEach(old => old.remove());
    const place = make("div", { className: "cell_output tab-output" });
    this.element.append(place);
    return new Output(place);
  }
}

class Notebook {
  constructor(cells, bar) {
    this.cells = [...cells].map((element, i) => new Cell(element, i + 1, this));
    this.changed = load(KEY);
    this.session = new Session((text, progress) => this.state(text, progress));
    this.bar = bar;
    this.done = new Set(); // cells that this Python has run
    this.queue = [];
  }

  open() {
    for (const cell of this.cells) cell.open(this.changed[cell.number]);
    this.said = make("span", {});
    this.said.setAttribute("role", "status");
    this.progress = make("progress", { max: 1, hidden: true });
    this.progress.setAttribute("aria-label", "Python is being loaded");
    const all = make("button", { textContent: "▶ Run all", onclick: () => this.run(this.cells.at(-1)) });
    this.stopper = make("button", { textContent: "■ Stop", onclick: () => this.stop(), disabled: true });
    const mine = make("button", { textContent: "mine.py", onclick: () => this.download(), title: "Download your right answers, the file that d2lmgpu course keeps, too" });
    this.bar.replaceChildren(all, this.stopper, mine, this.progress, this.said);
    this.bar.classList.add("tab-open");
    this.session.start().catch(() => {});
  }

  state(text, progress) {
    this.said.textContent = text;
    this.progress.hidden = progress === undefined;
    this.progress.value = progress ?? 0;
    this.stopper.disabled = !this.queue.length && progress === undefined;
  }

  keep(cell, text) {
    if (text === cell.original) delete this.changed[cell.number];
    else this.changed[cell.number] = text;
    cell.reset.hidden = text === cell.original;
    save(KEY, this.changed);
  }

  // Run a cell, and before it what is above it and has not been run: as in a notebook it may need it.
  async run(cell) {
    const waiting = new Set(this.queue);
    this.queue.push(...this.cells.slice(0, cell.number - 1).filter(above => !this.done.has(above) && !waiting.has(above)), cell);
    this.queue.forEach(waits => (waits.said.textContent = "waits"));
    if (this.running) return;
    this.running = true;
    while (this.queue.length) {
      const [next] = this.queue, output = next.clear(), begun = performance.now();
      next.said.textContent = "runs …";
      const well = await this.session.run(next.source, next.name, output.show).catch(() => false);
      next.said.textContent = well ? `✓ ${((performance.now() - begun) / 1000).toFixed(1)} s` : "ended with an error";
      if (well) this.done.add(next);
      this.queue.shift();
      if (!well) this.queue.splice(0).forEach(waits => (waits.said.textContent = `not run: ${next.name} above has ended`));
    }
    this.running = false;
    this.stopper.disabled = true;
  }

  stop() {
    this.queue.splice(1).forEach(waits => (waits.said.textContent = "stopped"));
    this.done.clear();
    this.session.stop();
  }

  download() {
    const text = this.session.files["mine.py"];
    if (!text) return this.state("mine.py is still empty: check saves right answers there");
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/x-python" })), download: "mine.py" });
    link.click();
    URL.revokeObjectURL(link.href);
  }
}

const NOT_HERE = {
  "14_many_machines": "This notebook starts several processes, which a browser does not have: run it from a clone.",
};

// A cell that a tab cannot run keeps what it showed where the notebook was run.
for (const cell of document.querySelectorAll("div.cell.tag_not-in-a-tab"))
  cell.append(make("p", { className: "tab-not-here", textContent: "In a browser this cell is not run: it starts other processes." }));
const cells = document.querySelectorAll("div.cell:not(.tag_not-in-a-tab):has(.cell_input)");
if (NOT_HERE[NAME]) document.querySelector("h1").after(make("div", { className: "tab-top", textContent: NOT_HERE[NAME] }));
else if (cells.length) {
  const bar = make("div", { className: "tab-top" });
  const notebook = new Notebook(cells, bar);
  const text = "Change and run this page's code here, in your browser: 34 MB are loaded once, nothing is sent.";
  bar.append(make("button", { textContent: "▶ Try it", onclick: () => notebook.open() }), make("span", { textContent: text }));
  document.querySelector("h1").after(bar);
  globalThis.notebook = notebook; // for tests
}

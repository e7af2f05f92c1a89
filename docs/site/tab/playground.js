// The playground: a wiring that is drawn, an allreduce for it as code, and what Python says of the two.
//
// The wiring is a text, a wire a line ("0-1: 25 GB/s"); drawing changes that text, and the text is drawn.

import { editor } from "./editor.js";
import { Output, Session, make } from "./session.js";

const WIRE = /^\s*(\d+)\s*-\s*(\d+)\s*:\s*([\d.]+)\s*GB\/s\s*$/;
const SPEEDS = [25, 100, 10, 1]; // GB/s: a wire that is clicked takes the next one, and after the last it is gone
const PRESETS = {
  "a ring of 4": [[0, 1], [1, 2], [2, 3], [3, 0]],
  "a line of 4": [[0, 1], [1, 2], [2, 3]],
  "a star of 5": [[0, 1], [0, 2], [0, 3], [0, 4]],
  "two rings, joined": [[0, 1], [1, 2], [2, 0], [3, 4], [4, 5], [5, 3], [0, 3, 10], [1, 4, 10]],
  "a grid of 2 × 3": [[0, 1], [1, 2], [3, 4], [4, 5], [0, 3], [1, 4], [2, 5]],
  "a cube": [[0, 1], [2, 3], [4, 5], [6, 7], [0, 2], [1, 3], [4, 6], [5, 7], [0, 4], [1, 5], [2, 6], [3, 7]],
};
const INVENT = `def schedule(k, n):
    """Found for the wiring; the player shows its steps."""
    return invent(network, n)
`;
const BUSY = "still running: wait, or press Stop";
const SVG = "http://www.w3.org/2000/svg";

function drawn(tag, attributes, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

const textOf = wires => wires.map(([a, b, speed = 25]) => `${a}-${b}: ${speed} GB/s\n`).join("");

// The wires of a text: of each its line, its ends and its speed.
function wiresOf(text) {
  const found = text.split("\n").map((line, i) => [i, line.match(WIRE)]);
  return found.filter(([, match]) => match).map(([line, [, a, b, speed]]) => ({ line, a: +a, b: +b, speed: +speed }));
}

// A link has the wiring and the code in its part after #, which is never sent anywhere.
const packed = state => btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(state))));
const unpacked = text => JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(text), sign => sign.charCodeAt(0))));

class Playground {
  constructor(place, first) {
    this.session = new Session(text => this.state(text));
    this.picture = drawn("svg", { viewBox: "16 16 268 268", role: "img", "aria-label": "the wiring; its text is below" });
    this.picture.addEventListener("pointerdown", event => this.grab(event));
    this.wiring = make("textarea", { value: first.wiring, rows: 4, spellcheck: false, oninput: () => (this.draw(), this.stale()) });
    this.wiring.setAttribute("aria-label", "the wiring, a wire a line");
    this.preset = make("select", { onchange: () => this.take(this.preset.value) }, make("option", { textContent: "choose a wiring …", value: "" }));
    this.preset.append(...Object.keys(PRESETS).map(name => make("option", { textContent: name })));
    this.preset.setAttribute("aria-label", "choose a wiring");
    this.code = editor(first.code, "the schedule, in Python", () => this.look(), () => this.stale());
    this.said = make("span", { textContent: "Python is loaded when you ask for it: 34 MB, once." });
    this.said.setAttribute("role", "status");
    this.stopper = button("■ Stop", () => this.session.stop());
    this.stopper.disabled = true;
    this.stopper.className = "tab-stop";
    this.back = button("My code again", () => this.restore());
    this.back.hidden = true;
    this.verdict = make("div", { className: "tab-verdict" });
    this.output = make("div", { className: "tab-output" });
    const left = make("div", {}, this.picture, make("p", {}, "Drag from device to device to add a wire. Click a wire to change its GB/s, and at last to remove it."),
      make("div", { className: "tab-bar" }, this.preset, button("+ device", () => this.add()), button("− device", () => this.remove())),
      make("details", {}, make("summary", {}, "the wiring as text"), this.wiring));
    const main = button("▶ Prove and play", () => this.look());
    main.className = "tab-main";
    const right = make("div", {}, this.code,
      make("div", { className: "tab-bar" }, main, button("Train LeNet with it", () => this.run("train")), button("Invent one", () => this.invent()),
        this.back, this.stopper, button("Copy link", () => this.link())), make("div", { className: "tab-bar" }, this.said), help());
    place.replaceChildren(make("div", { className: "tab-two" }, left, right), this.verdict, this.output);
    this.draw();
    if (!this.fromLink()) {
      const output = new Output(this.output);
      for (const told of first.told) this.show(output, told);
    }
    addEventListener("hashchange", () => this.fromLink());
  }

  state(text) {
    this.said.textContent = text;
    this.stopper.disabled = !this.running;
  }

  // What came with a link is shown, and not run before the reader asks for it.
  fromLink() {
    const [, text] = location.hash.split("#play=");
    if (!text) return false;
    try {
      const { wiring, code } = unpacked(text);
      if (typeof wiring !== "string" || typeof code !== "string") throw Error();
      this.wiring.value = wiring;
      this.code.set(code);
      this.verdict.replaceChildren(make("p", {}, "This wiring and this code came with the link. Read the code; then run it."));
      this.output.replaceChildren();
    } catch {
      this.state("the link is damaged; nothing of it was taken");
      return false;
    }
    this.draw();
    return true;
  }

  async link() {
    location.hash = `play=${packed({ wiring: this.wiring.value, code: this.code.field.value })}`;
    const copied = navigator.clipboard?.writeText(location.href) ?? Promise.reject();
    this.state(await copied.then(() => "link copied", () => "copy this page's address: it has the wiring and the code"));
  }

  take(name) {
    if (PRESETS[name]) this.change(textOf(PRESETS[name]));
    this.preset.value = "";
  }

  get devices() {
    return Math.max(1, ...wiresOf(this.wiring.value).flatMap(({ a, b }) => [a + 1, b + 1]));
  }

  add() {
    const k = this.devices;
    if (k < 16) this.change(`${this.wiring.value.trimEnd()}\n${k - 1}-${k}: 25 GB/s\n`);
  }

  remove() {
    const last = this.devices - 1, lines = this.wiring.value.split("\n");
    const gone = new Set(wiresOf(this.wiring.value).filter(({ a, b }) => a === last || b === last).map(({ line }) => line));
    if (last > 1) this.change(lines.filter((_, i) => !gone.has(i)).join("\n"));
  }

  change(text) {
    this.wiring.value = text;
    this.draw();
    this.stale();
  }

  // What is shown belongs to what was there before.
  stale() {
    this.verdict.classList.add("tab-stale");
  }

  place(i, k) {
    const angle = (2 * Math.PI * i) / k - Math.PI / 2 - (k === 4 ? Math.PI / 4 : 0);
    return [150 + 112 * Math.cos(angle), 150 + 112 * Math.sin(angle)];
  }

  draw() {
    const k = this.devices, wires = wiresOf(this.wiring.value);
    this.wiring.rows = Math.min(8, this.wiring.value.split("\n").length);
    const parts = [];
    for (const { line, a, b, speed } of wires) {
      const [[x1, y1], [x2, y2]] = [this.place(a, k), this.place(b, k)];
      const group = drawn("g", { class: "tab-wire", "data-line": line });
      const width = 2 + Math.min(6, Math.log2(1 + speed / 4));
      group.append(drawn("line", { x1, y1, x2, y2, "stroke-width": 18, class: "tab-near" }), drawn("line", { x1, y1, x2, y2, "stroke-width": width }),
        drawn("text", { x: (3 * x1 + 2 * x2) / 5, y: (3 * y1 + 2 * y2) / 5 + 4 }, `${speed} GB/s`), drawn("title", {}, `${a}-${b}: ${speed} GB/s`));
      parts.push(group);
    }
    for (let i = 0; i < k; i++) {
      const [cx, cy] = this.place(i, k), group = drawn("g", { class: "tab-device", "data-device": i });
      group.append(drawn("circle", { cx, cy, r: 19 }), drawn("text", { x: cx, y: cy + 5, class: "in-box" }, `${i}`));
      parts.push(group);
    }
    this.picture.replaceChildren(...parts);
  }

  // Drag from a device to another: a wire. Click a wire: its next speed, or gone.
  grab(event) {
    const device = event.target.closest("[data-device]"), wire = event.target.closest("[data-line]");
    if (wire && !device) return this.turn(+wire.dataset.line);
    if (!device) return;
    event.preventDefault();
    const k = this.devices, from = +device.dataset.device, [x1, y1] = this.place(from, k);
    const line = drawn("line", { x1, y1, x2: x1, y2: y1, class: "tab-new" });
    this.picture.prepend(line);
    const move = ({ clientX, clientY }) => {
      const at = new DOMPoint(clientX, clientY).matrixTransform(this.picture.getScreenCTM().inverse());
      line.setAttribute("x2", at.x);
      line.setAttribute("y2", at.y);
    };
    const drop = ({ clientX, clientY, type }) => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", drop);
      removeEventListener("pointercancel", drop);
      line.remove();
      const to = document.elementFromPoint(clientX, clientY)?.closest?.("[data-device]")?.dataset.device;
      const same = ({ a, b }) => (a === from && b === +to) || (a === +to && b === from);
      if (type !== "pointerup" || to === undefined || +to === from || wiresOf(this.wiring.value).some(same)) return;
      this.change(`${this.wiring.value.trimEnd()}\n${from}-${to}: 25 GB/s\n`);
    };
    device.releasePointerCapture?.(event.pointerId);
    addEventListener("pointermove", move);
    addEventListener("pointerup", drop);
    addEventListener("pointercancel", drop);
  }

  turn(number) {
    const lines = this.wiring.value.split("\n"), { a, b, speed } = wiresOf(this.wiring.value).find(({ line }) => line === number);
    const next = SPEEDS[SPEEDS.indexOf(speed) + 1];
    if (next) lines[number] = `${a}-${b}: ${next} GB/s`;
    else lines.splice(number, 1);
    this.change(lines.join("\n"));
  }

  look() {
    return this.run("look");
  }

  invent() {
    if (this.running) return this.state(BUSY);
    if (this.code.field.value !== INVENT) this.before = this.code.field.value;
    this.back.hidden = !this.before;
    this.code.set(INVENT);
    return this.run("look");
  }

  restore() {
    this.code.set(this.before);
    this.back.hidden = true;
    this.stale();
  }

  async run(what) {
    if (this.running) return this.state(BUSY);
    const given = [this.wiring.value, this.code.field.value].map(text => JSON.stringify(text)).join(", ");
    const name = what === "look" ? "your schedule" : "the training", [said] = this.verdict.children;
    this.stale();
    this.running = true;
    this.output.style.minHeight = `${this.output.offsetHeight}px`; // the page below stays where it is
    const output = new Output(this.output);
    await this.session.run(`import tab_playground\ntab_playground.${what}(${given})`, name, told => this.show(output, told)).catch(() => false);
    this.running = false;
    this.stopper.disabled = true;
    this.output.style.minHeight = "";
    if (what === "look" && this.verdict.children[0] === said) this.verdict.replaceChildren();
  }

  show(output, told) {
    if (!told.verdict) return output.show(told);
    const { proved, says, rows } = told.verdict, most = Math.max(...rows.map(([, seconds]) => seconds));
    const said = make("p", { className: proved ? "tab-proved" : "tab-refuted" }, `${proved ? "✓" : "✗"} ${says}`);
    const bars = rows.map(([name, seconds]) => {
      const bar = make("div", { className: "tab-time" }, make("span", {}, name), make("i"), make("b", {}, `${(1e6 * seconds).toPrecision(3)} µs`));
      bar.children[1].style.width = `${(50 * seconds) / most}%`;
      return bar;
    });
    const title = make("p", {}, "Simulated on the wiring, for LeNet's gradients:");
    this.verdict.classList.remove("tab-stale");
    this.verdict.replaceChildren(said, title, ...bars);
    if (this.session.count) this.verdict.scrollIntoView({ block: "nearest" });
  }
}

function help() {
  const link = make("a", { href: "notebooks/06_better_allreduce.html", textContent: "Notebook 6" });
  return make("p", {}, "A schedule for k devices, each with n numbers, is a list of steps, done in turn. A step is a list of ",
    make("code", {}, "Transfer(source, destination, start, stop, op)"), ", done at the same time: numbers start to stop go from one device to another, ",
    'where they are added ("add") or replace what is there ("copy"). ', link, " explains it.");
}

function button(textContent, onclick) {
  return make("button", { textContent, onclick, type: "button" });
}

const place = document.getElementById("playground");
if (place) globalThis.playground = new Playground(place, JSON.parse(document.getElementById("playground-first").textContent));

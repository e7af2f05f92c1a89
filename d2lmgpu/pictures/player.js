// Plays a film (see player.py for what that is) in an element: playFilm(film, element).
"use strict";

const LINES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8B5A2B", "#999999"];
const SECONDS_TO_PLAY = 20; // of the whole film, at speed 1
const MAX_LABELS = 3000;
const MAX_ROWS_TOLD = 2000; // of the table of all events

function playFilm(film, root) {
  const player = { film, time: 0, playing: false, speed: 1, whole: false, last: 0 };
  root.classList.add("film");
  root.replaceChildren();
  player.moments = momentsOf(film);
  add(root, "h1", {}, film.title);
  add(root, "p", { class: "facts" }, film.facts.map(([name, value]) => `${name}: ${value}`).join(" · "));
  addControls(player, root);
  player.picture = add(root, "div", { class: "picture", role: "img" });
  player.picture.setAttribute("aria-label", summaryOf(film));
  addLegend(film, root);
  addNow(player, root);
  addTable(film, root);
  player.draw = () => { drawPicture(player); show(player); };
  player.draw();
  const fit = () => { if (root.clientWidth !== player.width) player.draw(); };
  new ResizeObserver(() => requestAnimationFrame(fit)).observe(root);
  document.addEventListener("keydown", (event) => pressed(player, event));
  root.player = player;
  return player;
}

// Time

function momentsOf(film) {
  const moments = new Set([0, film.end]);
  for (const event of film.events) if (event[1] in film.kinds) moments.add(event[4]).add(event[5]);
  for (const message of film.messages) moments.add(message[5]).add(message[6]);
  return [...moments].sort((a, b) => a - b);
}

function timeText(film, time) {
  if (film.unit !== "s") return String(Number(time.toPrecision(4)));
  const [scale, unit] = film.end >= 1 ? [1, "s"] : film.end >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  return `${(time * scale).toFixed(2)} ${unit}`;
}

function bytesText(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (bytes >= 1000 && i < units.length - 1) { bytes /= 1000; i += 1; }
  return `${i ? bytes.toPrecision(3) : Math.round(bytes)} ${units[i]}`;
}

function go(player, time) {
  player.time = Math.min(Math.max(time, 0), player.film.end);
  show(player);
}

function step(player, direction) {
  pause(player);
  const { moments, time } = player;
  if (direction > 0) go(player, moments.find((moment) => moment > time) ?? player.film.end);
  else go(player, moments.findLast((moment) => moment < time) ?? 0);
  player.said.textContent = sentenceOf(player);
}

function pause(player) {
  player.playing = false;
  player.button.textContent = "▶ Play";
}

function playOrPause(player) {
  if (player.playing) { pause(player); player.said.textContent = sentenceOf(player); return; }
  if (player.time >= player.film.end) player.time = 0;
  player.playing = true;
  player.button.textContent = "❚❚ Pause";
  player.last = performance.now();
  const frame = (now) => {
    if (!player.playing) return;
    const passed = (Math.max(0, now - player.last) / 1000) * player.speed * (player.film.end / SECONDS_TO_PLAY);
    player.last = now;
    go(player, player.time + passed);
    if (player.time >= player.film.end) pause(player); else requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}

function pressed(player, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  const what = {
    " ": () => playOrPause(player),
    ArrowRight: () => step(player, 1),
    ArrowLeft: () => step(player, -1),
    Home: () => { pause(player); go(player, 0); },
    End: () => { pause(player); go(player, player.film.end); },
  }[event.key];
  if (!what || (event.key === " " && ["BUTTON", "SUMMARY"].includes(event.target.tagName))) return;
  event.preventDefault();
  what();
}

// What is on the page

function add(parent, name, attributes = {}, text) {
  const svg = parent.namespaceURI === "http://www.w3.org/2000/svg" || name === "svg";
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

function addControls(player, root) {
  const row = add(root, "div", { class: "controls", role: "group", "aria-label": "playing" });
  const button = (text, label, act) => {
    const made = add(row, "button", { type: "button", "aria-label": label, title: label }, text);
    made.addEventListener("click", act);
    return made;
  };
  button("← Step", "one step back (left arrow)", () => step(player, -1));
  player.button = button("▶ Play", "play or pause (space)", () => playOrPause(player));
  button("Step →", "one step on (right arrow)", () => step(player, 1));
  player.slider = add(row, "input", { type: "range", min: 0, max: player.film.end, step: "any", value: 0, "aria-label": "time" });
  player.slider.addEventListener("input", () => { pause(player); go(player, Number(player.slider.value)); });
  player.clock = add(row, "span", { class: "time" });
  const speed = add(row, "select", { "aria-label": "speed" });
  for (const times of [0.25, 0.5, 1, 2, 4]) add(speed, "option", { value: times }, `${times}×`);
  speed.value = 1;
  speed.addEventListener("change", () => { player.speed = Number(speed.value); });
  const whole = button("Fit", "the whole picture at once, or boxes wide enough to be read", () => {
    player.whole = !player.whole;
    whole.setAttribute("aria-pressed", player.whole);
    player.draw();
  });
  whole.setAttribute("aria-pressed", false);
}

function addLegend(film, root) {
  const legend = add(root, "div", { class: "legend" });
  for (const [names, type] of [[film.kinds, "box"], [film.ways, "way"]]) {
    for (const [name, colour] of Object.values(names)) {
      const item = add(legend, "span");
      add(item, "i", { class: type, style: `background:${colour}` });
      item.append(name);
    }
  }
}

function addNow(player, root) {
  const { film } = player;
  player.said = add(root, "p", { class: "said", "aria-live": "polite" });
  add(root, "h2", {}, "Now");
  const table = add(add(root, "div", { class: "sheet" }), "table", { class: "now-table" });
  const head = add(table, "tr");
  const computes = Object.keys(film.kinds).length > 0;
  for (const name of ["device", ...(computes ? ["does"] : []), film.chart.name, "sends"]) add(head, "th", { scope: "col" }, name);
  player.now = film.devices.map((name, i) => {
    const row = add(table, "tr");
    add(row, "th", { scope: "row" }, name);
    const does = computes ? add(row, "td", { class: "does" }) : null;
    const cell = add(row, "td", { class: "level" });
    const bar = add(add(cell, "span", { class: "bar" }), "i");
    return { does, bar, bytes: add(cell, "span"), messages: add(row, "td", { class: "sends" }) };
  });
  if (!film.holds) return;
  add(root, "h2", {}, "Which shares of which elements each device holds");
  const holds = add(add(root, "div", { class: "sheet" }), "table", { class: "holds" });
  const columns = add(holds, "tr");
  for (const name of ["", ...film.holds.columns]) add(columns, "th", { scope: "col" }, name);
  player.holds = film.devices.map((name) => {
    const row = add(holds, "tr");
    add(row, "th", { scope: "row" }, name);
    return film.holds.columns.map(() => add(row, "td"));
  });
}

function addTable(film, root) {
  const details = add(root, "details");
  add(details, "summary", {}, "All of it as a table, and the keys");
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    const keys = add(details, "p");
    for (const [key, what] of [["space", "play or pause"], ["←", "one step back"], ["→", "one step on"], ["Home", "to the start"], ["End", "to the end"]]) {
      add(keys, "kbd", {}, key);
      keys.append(` ${what}   `);
    }
    const rows = film.events.map(([devices, , , text, start, end]) => [start, end, devices.map((i) => film.devices[i]).join(", "), text]);
    for (const [source, , , text, , start, end] of film.messages) rows.push([start, end, film.devices[source], text]);
    rows.sort((a, b) => a[0] - b[0]);
    if (rows.length > MAX_ROWS_TOLD) add(details, "p", {}, `The first ${MAX_ROWS_TOLD} of ${rows.length} lines.`);
    const table = add(add(details, "div", { class: "sheet" }), "table");
    const head = add(table, "tr");
    for (const name of ["from", "to", "device", "does"]) add(head, "th", { scope: "col" }, name);
    for (const [start, end, who, what] of rows.slice(0, MAX_ROWS_TOLD)) {
      const row = add(table, "tr");
      for (const text of [timeText(film, start), timeText(film, end), who, what]) add(row, "td", {}, text);
    }
  });
}

// The picture

function drawPicture(player) {
  const { film, picture } = player;
  const k = film.devices.length;
  const high = k <= 16 ? 32 : 14, pitch = k <= 16 ? 50 : 20, top = 20, chartTop = top + k * pitch + 24, chart = 120;
  const names = Math.min(100, 14 + 7 * Math.max(...[...film.devices, film.chart.name].map((name) => name.length)));
  player.width = picture.parentElement.clientWidth;
  const room = Math.max(200, picture.clientWidth - names - 2);
  const width = player.whole ? room : Math.max(room, readableWidth(film));
  const x = (time) => 8 + (film.end ? (time / film.end) * (width - 24) : 0);
  const y = (device) => top + device * pitch;
  const height = chartTop + chart + 26;
  Object.assign(player, { x, y, high, pitch });
  picture.replaceChildren();

  const left = add(picture, "svg", { width: names, height, "aria-hidden": "true" });
  film.devices.forEach((name, i) => { if (k <= 32 || i % 8 === 0) add(left, "text", { x: 8, y: y(i) + high / 2 + 4 }, name); });
  const most = Math.max(1, ...film.chart.lines.flatMap((line) => line.map(([, bytes]) => bytes)));
  add(left, "text", { x: 8, y: chartTop + 2 }, film.chart.name);
  add(left, "text", { x: 8, y: chartTop + 18, class: "quiet" }, bytesText(most));
  add(left, "text", { x: 8, y: chartTop + chart, class: "quiet" }, "0 B");

  player.scroll = add(picture, "div", { class: "scroll", tabindex: 0, "aria-label": "the picture, which scrolls" });
  const svg = add(player.scroll, "svg", { width, height, "aria-hidden": "true" });
  drawAxis(film, svg, x, width, top, chartTop, chart);
  film.devices.forEach((_, i) => add(svg, "line", { class: "row", x1: 0, x2: width, y1: y(i) + high / 2, y2: y(i) + high / 2 }));
  player.boxes = drawBoxes(player, svg);
  const ways = add(svg, "g", { class: "ways" });
  for (const message of film.messages) drawMessage(player, ways, message);
  const lines = add(svg, "g", { class: "lines" });
  film.chart.lines.forEach((line, i) => {
    const level = (bytes) => chartTop + chart - (bytes / most) * (chart - 14);
    let path = "";
    for (const [time, bytes] of line) path += path ? `H${x(time)}V${level(bytes)}` : `M${x(time)} ${level(bytes)}`;
    if (path) add(lines, "path", { d: `${path}H${x(film.end)}`, stroke: LINES[i % LINES.length] });
    if (path && k <= LINES.length && k > 1) {
      const [time, bytes] = line.reduce((a, b) => (b[1] > a[1] ? b : a));
      add(svg, "text", { x: Math.min(x(time) + 3 + 9 * i, width - 12), y: level(bytes) - 3, class: "quiet" }, i);
    }
  });
  player.flying = add(svg, "g", { class: "flying" });
  player.cursor = add(svg, "line", { class: "cursor", y1: 4, y2: chartTop + chart });
  svg.addEventListener("click", (event) => {
    pause(player);
    go(player, ((event.clientX - svg.getBoundingClientRect().left - 8) / (width - 24)) * film.end);
  });
}

// So that labels of boxes and marks fit, unless that is very wide.
function readableWidth(film) {
  let width = 60;
  const boxes = film.devices.map(() => 0);
  for (const [devices, , label, , start, end] of film.events) {
    if (!label || end === start) continue;
    width = Math.max(width, ((7 * label.length + 6) * film.end) / (end - start));
    for (const device of devices) boxes[device] += 1;
  }
  const marked = 50 * film.marks.length;
  return Math.min(16000, Math.max(Math.min(width, 90 * Math.max(...boxes)), marked));
}

function drawAxis(film, svg, x, width, top, chartTop, chart) {
  const rough = film.end / Math.max(2, width / 110);
  const ten = 10 ** Math.floor(Math.log10(rough || 1));
  const tick = ten * ([1, 2, 5, 10].find((n) => n * ten >= rough) ?? 10);
  for (let i = 0; film.end && i * tick <= film.end * 1.0001; i += 1) {
    const at = x(i * tick);
    add(svg, "line", { class: "row", x1: at, x2: at, y1: chartTop, y2: chartTop + chart });
    add(svg, "text", { class: "quiet", x: at + 2, y: chartTop + chart + 16 }, timeText(film, i * tick));
  }
  for (const [time, text] of film.marks) {
    add(svg, "line", { class: "mark", x1: x(time), x2: x(time), y1: 2, y2: chartTop });
    add(svg, "text", { class: "quiet", x: x(time) + 3, y: 12 }, text);
  }
}

function drawBoxes(player, svg) {
  const { film, x, y, high } = player;
  const drawn = [];
  const shown = film.events.filter((event) => event[1] in film.kinds);
  for (const event of shown) {
    const [devices, kind, label, text, start, end] = event;
    for (const device of devices) {
      const width = Math.max(x(end) - x(start), 2.5);
      const box = add(svg, "rect", { class: "box", x: x(start), y: y(device), width, height: high, fill: film.kinds[kind][1] });
      add(box, "title", {}, `${film.devices[device]}: ${text}, ${timeText(film, start)} to ${timeText(film, end)}`);
      if (label && high > 20 && shown.length <= MAX_LABELS && width > 7 * label.length + 2) {
        add(svg, "text", { class: "in-box", x: x(start) + width / 2, y: y(device) + high / 2 + 4 }, label);
      }
      drawn.push({ box, start, end });
    }
  }
  return drawn;
}

function ends(player, [source, destination, , , , start, end]) {
  const { film, x, y, high } = player;
  const edges = Object.keys(film.kinds).length ? (destination > source ? [high, 0] : [0, high]) : [high / 2, high / 2];
  return [x(start), y(source) + edges[0], x(end), y(destination) + edges[1]];
}

function drawMessage(player, group, message) {
  const colour = player.film.ways[message[2]][1];
  const [x1, y1, x2, y2] = ends(player, message);
  const way = add(group, "line", { class: "way", x1, y1, x2, y2, stroke: colour });
  add(way, "title", {}, message[3]);
  const long = Math.hypot(x2 - x1, y2 - y1) || 1, ux = (x2 - x1) / long, uy = (y2 - y1) / long;
  const corner = (side) => `${x2 - 7 * ux - side * 3 * uy},${y2 - 7 * uy + side * 3 * ux}`;
  add(group, "polygon", { class: "head", points: `${x2},${y2} ${corner(1)} ${corner(-1)}`, fill: colour });
}

// What is shown at a time

function show(player) {
  const { film, time, x } = player;
  player.slider.value = time;
  player.slider.setAttribute("aria-valuetext", timeText(film, time));
  player.clock.textContent = `${timeText(film, time)} of ${timeText(film, film.end)}`;
  player.cursor.setAttribute("x1", x(time));
  player.cursor.setAttribute("x2", x(time));
  for (const { box, start, end } of player.boxes) box.classList.toggle("now", isNow(start, end, time));
  const { scroll } = player, at = x(time);
  if (at < scroll.scrollLeft + 20 || at > scroll.scrollLeft + scroll.clientWidth - 60) scroll.scrollLeft = at - scroll.clientWidth / 3;
  const flying = film.messages.filter((message) => isNow(message[5], message[6], time));
  drawFlying(player, flying);
  tell(player, flying);
}

function isNow(start, end, time) {
  return start <= time && time < end;
}

function drawFlying(player, flying) {
  player.flying.replaceChildren();
  for (const message of flying) {
    const [x1, y1, x2, y2] = ends(player, message);
    const part = (player.time - message[5]) / (message[6] - message[5]);
    const dot = { cx: x1 + (x2 - x1) * part, cy: y1 + (y2 - y1) * part, r: 5, fill: player.film.ways[message[2]][1] };
    add(player.flying, "circle", dot);
  }
}

function doing(film, time) {
  const found = film.devices.map(() => []);
  for (const [devices, kind, , text, start, end] of film.events) {
    if (kind in film.kinds && isNow(start, end, time)) for (const device of devices) found[device].push(text);
  }
  return found;
}

function levelAt(line, time) {
  let low = 0, high = line.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (line[middle][0] <= time) low = middle + 1; else high = middle;
  }
  return low ? line[low - 1][1] : 0;
}

function tell(player, flying) {
  const { film, time } = player;
  const does = doing(film, time);
  const most = Math.max(1, ...film.chart.lines.flatMap((line) => line.map(([, bytes]) => bytes)));
  const over = time >= film.end;
  player.now.forEach((cells, i) => {
    if (cells.does) cells.does.textContent = does[i].join("; ") || (over ? "has finished" : "waits");
    const bytes = levelAt(film.chart.lines[i] ?? [], time);
    cells.bar.style.width = `${(100 * bytes) / most}%`;
    cells.bytes.textContent = bytesText(bytes);
    cells.messages.textContent = flying.filter((message) => message[0] === i).map((message) => `${message[3]} (${bytesText(message[4])})`).join("; ");
  });
  if (!film.holds) return;
  const [, state] = film.holds.states.findLast(([since]) => since <= time);
  state.forEach((cells, i) => cells.forEach(([text, count], j) => {
    const cell = player.holds[i][j], part = Math.round((70 * count) / film.holds.most);
    cell.textContent = text;
    cell.style.background = `color-mix(in srgb, #2e9e5b ${part}%, var(--paper))`;
  }));
}

// In words

function sentenceOf(player) {
  const { film, time } = player;
  const does = doing(film, time).map((texts, i) => `${film.devices[i]}: ${texts.join(", ") || "nothing"}`);
  const flying = film.messages.filter((message) => isNow(message[5], message[6], time));
  const told = Object.keys(film.kinds).length ? does.slice(0, 8) : [];
  told.push(...flying.slice(0, 8).map((message) => `${film.devices[message[0]]}: ${message[3]}`));
  return `Time ${timeText(film, time)} of ${timeText(film, film.end)}. ${told.join(". ")}`;
}

function summaryOf(film) {
  const facts = film.facts.map(([name, value]) => `${name} ${value}`).join(", ");
  return `${film.title}. A row for each of ${film.devices.length} devices, time to the right; below it ${film.chart.name}. ${facts}. All of it is in the table at the end of the page.`;
}

// A small editor for Python: a text field that is seen through, over the same text in colours.

const TOKEN = new RegExp(
  [
    /(?<c1>#.*)/,
    /(?<s1>(?:\b[rbfRBF]{1,2})?(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))/,
    /(?<k>\b(?:and|as|assert|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)\b)/,
    /(?<kc>\b(?:None|True|False)\b)/,
    /(?<mi>\b\d[\w.]*)/,
  ].map(part => part.source).join("|"),
  "g",
);

// The text as HTML with the classes of Pygments, whose colours the site has.
function coloured(text) {
  const safe = part => part.replace(/[&<>]/g, sign => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);
  let html = "", at = 0;
  for (const found of text.matchAll(TOKEN)) {
    const [kind] = Object.entries(found.groups).find(([, value]) => value !== undefined);
    html += `${safe(text.slice(at, found.index))}<span class="${kind}">${safe(found[0])}</span>`;
    at = found.index + found[0].length;
  }
  return html + safe(text.slice(at)) + "\n";
}

// Returns an element with the text field as .field. onRun: Shift+Enter. Tab indents; after Escape it leaves.
export function editor(text, label, onRun, onChange = () => {}) {
  const box = document.createElement("div"), behind = document.createElement("pre"), field = document.createElement("textarea");
  box.className = "tab-editor highlight";
  Object.assign(field, { value: text, spellcheck: false, autocapitalize: "off", autocomplete: "off", wrap: "off" });
  field.setAttribute("aria-label", label);
  field.title = "Shift+Enter runs it. Tab indents; press Escape first to leave by Tab.";
  const draw = () => {
    behind.innerHTML = coloured(field.value);
    field.rows = field.value.split("\n").length;
  };
  let leaves = false;
  const insert = put => {
    field.setRangeText(put, field.selectionStart, field.selectionEnd, "end");
    field.dispatchEvent(new Event("input"));
  };
  field.addEventListener("keydown", event => {
    if (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      onRun();
    } else if (event.key === "Enter") {
      event.preventDefault();
      const line = field.value.slice(0, field.selectionStart).split("\n").pop();
      insert("\n" + line.match(/^ */)[0] + (line.trimEnd().endsWith(":") ? "    " : ""));
    } else if (event.key === "Tab" && !leaves && !event.shiftKey) {
      event.preventDefault();
      insert("    ");
    }
    leaves = event.key === "Escape";
  });
  field.addEventListener("input", () => (draw(), onChange(field.value)));
  field.addEventListener("scroll", () => (behind.scrollLeft = field.scrollLeft));
  box.append(behind, field);
  box.field = field;
  box.set = value => {
    field.value = value;
    draw();
  };
  draw();
  return box;
}

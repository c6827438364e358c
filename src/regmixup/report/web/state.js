// What the reader has chosen, and which figures have to be drawn again when a choice changes.
const data = JSON.parse(document.getElementById("data").textContent);
const state = { setting: 0, score: "", metric: 0, family: 0, quantity: 0, severity: 0, curve: "loss", pair: 0, lam: 0.5, exhibit: 0 };
const drawings = [];

const setting = () => data.settings[state.setting];
const hidden = data.settings.map((one) => new Set(one.methods.slice(data.shown)));

/** Positions of the methods that figures show. */
const shownMethods = () => setting().methods.flatMap((name, index) => (hidden[state.setting].has(name) ? [] : [index]));

/** A method's colour and dashes; those shown first differ in colour. */
const lookOf = (method) => style(method);

/** The score of a method: the one chosen, or the paper's own choice for the method, or the page's. */
const scoreOf = (method) => state.score || setting().detection.paper?.[method] || setting().detection.first;

function choose(changes) {
  Object.assign(state, changes);
  for (const { depends, draw } of drawings) if (depends.some((name) => name in changes)) draw();
}

function toggleMethod(name) {
  const own = hidden[state.setting];
  if (!own.delete(name)) own.add(name);
  choose({ methods: true });
}

function whenever(depends, draw) {
  drawings.push({ depends: ["setting", ...depends], draw });
  draw();
}

// Text and numbers. Everything that comes from data passes through `safe` before it is markup.
const safe = (text) => String(text).replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
const SPELT = { dempster_shafer: "Dempster-Shafer", gen: "GEN", odin: "ODIN", knn: "kNN", vim: "ViM", react: "ReAct", ash: "ASH", scale: "SCALE", fdbd: "fDBD", nnguide: "NNGuide", max_logit_pnorm: "max logit p-norm", duq: "DUQ", mahalanobis: "Mahalanobis" };
const worded = (name) => SPELT[name] ?? String(name).replaceAll("_", " ").replace(/\/test$/, "");
const fixed = (digits) => (value) => (value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−"));
const short = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(3))).replace("-", "−"));
const breakable = (name) => safe(name).replaceAll("+", "+<wbr>").replaceAll("(", "<wbr>(");
const style = (index) => `s${index % 8} d${Math.floor(index / 8) % 4}`;
/** Colours are for methods. Sets and versions of one method differ in dashes; a legend shows these without a colour. */
const colourOf = (method) => `s${method % 8}`;
const dashes = (index) => `d${index % 4}`;

/** An element from markup. */
function element(markup) {
  const holder = document.createElement("template");
  holder.innerHTML = markup.trim();
  return holder.content.firstElementChild;
}

/** Round numbers from low to high, about `count` of them. */
function ticks(low, high, count = 5) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

const EXHIBITS = { errors: "the most confident errors", rejected: "unsure test images", accepted: "accepted images of" };
/** The kinds of examples that some method has. */
const exhibits = () => {
  const found = new Map();
  for (const one of setting().examples) for (const { kind, set } of one?.sets ?? []) found.set(`${kind} ${set}`, { kind, set, title: EXHIBITS[kind] + (kind === "accepted" ? ` ${worded(set)}` : "") });
  return [...found.values()];
};

// The page's controls. They come before the figures, so that a choice is a possible one whenever a figure is drawn.
for (const control of document.querySelectorAll("[data-choose]")) {
  const name = control.dataset.choose;
  const numeric = control.dataset.number !== undefined;
  control.addEventListener("change", (event) => choose({ [name]: numeric ? Number(event.target.value) : event.target.value }));
}

/** Options that depend on other choices, such as a setting's scores; a choice is kept where it still exists. */
function offer(name, depends, entries) {
  const list = document.getElementById(name);
  if (!list) return;
  whenever(depends, () => {
    const found = entries();
    const kept = found.some(([value]) => value === state[name]) ? state[name] : found[0]?.[0];
    if (list.tagName === "SELECT") {
      list.replaceChildren(...found.map(([value, text]) => element(`<option value="${safe(value)}">${safe(text)}</option>`)));
      list.value = kept;
    } else {
      list.replaceChildren(...found.map(([value, text]) =>
        element(`<label><input type="radio" name="${name}" value="${value}"${value === kept ? " checked" : ""}>${safe(text)}</label>`)));
    }
    if (kept !== undefined && kept !== state[name]) choose({ [name]: kept });
  });
}

offer("pair", [], () => setting().images.map((pair, index) => [index, `${index + 1}: ${pair.classes[1]} → ${pair.classes[0]}`]));
offer("score", [], () => [...(setting().detection.paper ? [["", "each method's own"]] : []), ...setting().detection.scores.map((name) => [name, worded(name)])]);
offer("metric", [], () => setting().detection.metrics.map((one, index) => [index, one.title]));
offer("exhibit", [], () => exhibits().map((one, index) => [index, one.title]));
offer("family", [], () => setting().shift.map((one, index) => [index, one.family]));
offer("quantity", ["family"], () => (setting().shift[state.family]?.metrics ?? []).map((one, index) => [index, one.title]));
offer("severity", ["family"], () => [0, ...(setting().shift[state.family]?.severities ?? [])].map((severity) => [severity, severity || "mean"]));
offer("curve", [], () => [...new Set(setting().curves.flatMap(Object.keys))].map((name) => [name, worded(name)]));

const facts = document.getElementById("facts");
facts?.addEventListener("change", () => document.body.classList.toggle("compact", !facts.checked));
if (window.matchMedia("(max-width: 68rem)").matches) document.querySelector(".contents").open = false;

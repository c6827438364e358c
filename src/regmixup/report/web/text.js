// Text and numbers. Everything that comes from data passes through `safe` before it is markup.
const safe = (text) => String(text).replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
const SPELT = { dempster_shafer: "Dempster-Shafer", gen: "GEN", odin: "ODIN", knn: "kNN", vim: "ViM", react: "ReAct", ash: "ASH", duq: "DUQ", mahalanobis: "Mahalanobis" };
const worded = (name) => SPELT[name] ?? String(name).replaceAll("_", " ").replace(/\/test$/, "");
const fixed = (digits) => (value) => (value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−"));
const short = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(3))).replace("-", "−"));
const breakable = (name) => safe(name).replaceAll("+", "+<wbr>").replaceAll("(", "<wbr>(");
const style = (index) => `s${index % 8} d${Math.floor(index / 8) % 4}`;

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

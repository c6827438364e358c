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
offer("score", [], () => [["", "the paper's, for each method"], ...setting().detection.scores.map((name) => [name, worded(name)])]);
offer("metric", [], () => setting().detection.metrics.map((one, index) => [index, one.title]));
offer("family", [], () => setting().shift.map((one, index) => [index, one.family]));
offer("quantity", ["family"], () => (setting().shift[state.family]?.metrics ?? []).map((one, index) => [index, one.title]));
offer("severity", ["family"], () => [0, ...(setting().shift[state.family]?.severities ?? [])].map((severity) => [severity, severity || "mean"]));
offer("curve", [], () => [...new Set(setting().training.curves.flatMap(Object.keys))].map((name) => [name, worded(name)]));

const facts = document.getElementById("facts");
facts.addEventListener("change", () => document.body.classList.toggle("compact", !facts.checked));
if (window.matchMedia("(max-width: 68rem)").matches) document.querySelector(".contents").open = false;

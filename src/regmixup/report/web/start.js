// Connect the page's controls to the reader's choices.
for (const control of document.querySelectorAll("[data-choose]")) {
  const name = control.dataset.choose;
  const numeric = control.dataset.number !== undefined;
  control.addEventListener("change", (event) => choose({ [name]: numeric ? Number(event.target.value) : event.target.value }));
}

/** A list of options that depends on the setting, such as its scores; the choice is kept where it still exists. */
function offer(id, name, entries) {
  const list = document.getElementById(id);
  if (!list) return;
  whenever([], () => {
    const found = entries();
    list.replaceChildren(...found.map(([value, text]) => element(`<option value="${safe(value)}">${safe(text)}</option>`)));
    const kept = found.some(([value]) => String(value) === String(state[name])) ? state[name] : found[0]?.[0];
    list.value = kept;
    if (kept !== state[name]) choose({ [name]: kept });
  });
}

offer("score", "score", () => [["", "the paper's, for each method"], ...setting().detection.scores.map((name) => [name, worded(name)])]);
offer("family", "family", () => setting().shift.map((one, index) => [index, one.family]));
offer("quantity", "quantity", () => (setting().shift[state.family]?.metrics ?? []).map((one, index) => [index, one.title]));
offer("metric", "metric", () => setting().detection.metrics.map((one, index) => [index, one.title]));
offer("curve", "curve", () => [...new Set(setting().training.curves.flatMap(Object.keys))].map((name) => [name, worded(name)]));

const severities = document.getElementById("severity");
if (severities) {
  whenever(["family"], () => severities.replaceChildren(...[0, ...(setting().shift[state.family]?.severities ?? [])].map((severity) =>
    element(`<label><input type="radio" name="severity" value="${severity}"${severity === state.severity ? " checked" : ""}>${severity || "mean"}</label>`))));
}
const facts = document.getElementById("facts");
facts.addEventListener("change", () => document.body.classList.toggle("compact", !facts.checked));
if (window.matchMedia("(max-width: 68rem)").matches) document.querySelector(".contents").open = false;
startExplorer();
startMixing();

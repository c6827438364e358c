// A figure is panels with one legend. Legends of methods are switches, and all figures share them.
const swatch = (look) => `<svg viewBox="0 0 24 10" aria-hidden="true" class="${look}"><path class="curve ${look}" d="M1 5H23"/></svg>`;

/** name: the value of data-figure. specs: called for the panels.
 * legend: where every method has a panel of its own, what the colours in it mean: entries (name, style). */
function figure(name, depends, specs, { legend } = {}) {
  const holder = document.querySelector(`[data-figure="${name}"]`);
  if (!holder) return;
  const keys = element('<div class="keys" role="group" aria-label="Methods shown"></div>');
  const place = element('<div class="panels"></div>');
  const values = element('<details class="values"><summary>Values as tables</summary><div class="scroll"></div></details>');
  holder.prepend(keys, place);
  holder.append(values);
  let drawn = [];
  const fill = () => { values.lastElementChild.innerHTML = values.open ? drawn.map(tableOf).join("") : ""; };
  values.addEventListener("toggle", fill);
  whenever(["methods", ...depends], () => {
    drawn = specs();
    place.replaceChildren(...(drawn.length ? drawn.map(panel) : [element("<p>Nothing to show for this choice.</p>")]));
    const focused = keys.contains(document.activeElement) ? [...keys.children].indexOf(document.activeElement) : -1;
    keys.replaceChildren(...methodKeys(!legend), ...(legend ? legend() : []).map((one) => element(`<span class="key">${swatch(one.style)}${safe(one.name)}</span>`)));
    if (focused >= 0) keys.children[focused].focus();
    fill();
  });
}

function methodKeys(coloured) {
  return setting().methods.map((name, index) => {
    const key = element(`<button type="button" class="key" aria-pressed="${!hidden[state.setting].has(name)}">${coloured ? swatch(lookOf(index)) : ""}${safe(name)}</button>`);
    key.addEventListener("click", () => toggleMethod(name));
    return key;
  });
}

/** One series per method that is shown; `points` is called with the method's position and may return nothing. */
const byMethod = (points, more = () => ({})) => shownMethods().flatMap((index) => {
  const found = points(index);
  return found ? [{ name: setting().methods[index], style: lookOf(index), points: found, ...more(index) }] : [];
});

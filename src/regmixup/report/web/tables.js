// Tables that the reader sorts, and those whose cells depend on a choice.
document.addEventListener("click", (event) => {
  const button = event.target.closest(".sort");
  if (button) sortBy(button.closest("th"));
});

function sortBy(head) {
  const wanted = head.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
  order(head.closest("table"), [...head.parentElement.children].indexOf(head), wanted);
}

/** Rows in the order of a column; those without a value come last either way. */
function order(table, column, direction) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  heads.forEach((head, index) => (index === column ? head.setAttribute("aria-sort", direction) : head.removeAttribute("aria-sort")));
  const sign = direction === "ascending" ? 1 : -1;
  const body = table.tBodies[0];
  const valueOf = (row) => row.cells[column].dataset.value;
  const rows = [...body.rows].sort((a, b) => {
    const [left, right] = [valueOf(a), valueOf(b)];
    if (!left || !right) return (left ? 0 : 1) - (right ? 0 : 1);
    return sign * (isNaN(left) || isNaN(right) ? left.localeCompare(right) : left - right);
  });
  body.append(...rows);
}

const p = (value) => (value === null ? "" : value < data.leastP ? `p < ${data.leastP}` : `p ${value}`);

/** A cell of [mean, std, n, p, verdict, marks, paper's number], as script_data.py describes it; or with facts of its own. */
function cellOf(cell) {
  if (!cell) return "<td>–</td>";
  const [mean, std, n, chance, verdict, marks, paper, told] = cell;
  const words = verdict > 0 ? ["good", "▲", "better"] : ["bad", "▼", "worse"];
  const against = chance === null ? "" : verdict ? ` <span class="${words[0]}">${words[1]} <span class="hidden">${words[2]}</span> ${p(chance)}</span>` : ` <span>${p(chance)}</span>`;
  const theirs = paper === undefined || paper === null ? "" : `<span class="fact">paper ${fixed(2)(paper)}, ${mean >= paper ? "+" : ""}${fixed(2)(mean - paper)}</span>`;
  const classes = `mean${marks & 1 ? " bold" : ""}${marks & 2 ? " underline" : ""}`;
  return `<td data-value="${mean}"><span class="${classes}">${fixed(2)(mean)}</span>${std === null ? "" : ` <span class="std">± ${fixed(2)(std)}</span>`}` +
    (told ? told.map((text, place) => `<span class="fact${verdict && place === told.length - 1 ? ` ${words[0]}` : ""}">${safe(text)}</span>`).join("") + "</td>" : `<span class="fact">${n === 1 ? '<span class="single">n 1</span>' : `<span>n ${n}</span>`}${against}</span>${theirs}</td>`);
}

/** lines[method][column] are cells. */
function cellTable(caption, columns, lines) {
  const head = columns.map((name) => `<th scope="col"><button type="button" class="sort">${safe(worded(name))}</button></th>`);
  const body = setting().methods.map((name, index) => `<tr><th scope="row" data-value="${safe(name)}"><i class="${colourOf(index)}"></i>${breakable(name)}</th>${lines[index].map(cellOf).join("")}</tr>`);
  return `<table><caption class="legend-text">${safe(caption)}</caption><thead><tr><th scope="col"><button type="button" class="sort">method</button></th>${head.join("")}</tr></thead><tbody>${body.join("")}</tbody></table>`;
}

/** A table that is made anew when a choice changes, and keeps the reader's order. */
function switchedTable(id, depends, make) {
  const holder = document.getElementById(id);
  if (!holder) return;
  whenever(depends, () => {
    const sorted = holder.querySelector("[aria-sort]");
    const kept = sorted && [[...sorted.parentElement.children].indexOf(sorted), sorted.getAttribute("aria-sort")];
    holder.innerHTML = make() ?? "<p>Nothing to show for this choice.</p>";
    const table = holder.querySelector("table");
    if (kept && table && kept[0] < table.tHead.rows[0].cells.length) order(table, ...kept);
    fit(holder);
  });
}

/** A table that is wider than its box becomes a list of cards, one for each row, whose cells carry their headings. */
function fit(box) {
  const table = box.querySelector(":scope > table");
  if (!table || !box.offsetWidth) return;
  box.classList.remove("cards");
  if (box.scrollWidth <= box.clientWidth) return;
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells].map((head) => head.textContent);
  for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, place) => (cell.dataset.head = heads[place]));
  // As grids the parts of a table lose their roles.
  const roles = { table: "table", thead: "rowgroup", tbody: "rowgroup", tr: "row", "thead th": "columnheader", "tbody th": "rowheader", td: "cell" };
  for (const [name, role] of Object.entries(roles)) for (const one of name === "table" ? [table] : table.querySelectorAll(name)) one.setAttribute("role", role);
  box.classList.add("cards");
}

const fitAll = () => document.querySelectorAll(".scroll").forEach(fit);
let widths = 0;
window.addEventListener("resize", () => { cancelAnimationFrame(widths); widths = requestAnimationFrame(fitAll); });
document.addEventListener("toggle", (event) => event.target.querySelectorAll?.(".scroll").forEach(fit), true);
facts?.addEventListener("change", fitAll);
fitAll();

// The colour that figures give a method stands beside its name in the tables that do not change.
for (const head of document.querySelectorAll("tbody th[data-value]")) {
  const place = setting().methods.indexOf(head.dataset.value);
  if (place >= 0 && head.closest("[data-methods]")) head.insertAdjacentHTML("afterbegin", `<i class="${colourOf(place)}"></i>`);
}

switchedTable("detection-table", ["score", "metric"], () => {
  const { metrics, cells, named } = setting().detection, sets = setting().ood;
  if (!sets.length) return null;
  const { name, title } = metrics[state.metric];
  const lines = setting().methods.map((_, index) => sets.map((_, set) => cells[name][state.score]?.[set][index]));
  return cellTable(`${title} (%) ${state.score ? `by ${worded(state.score)}` : `${named}: each method's own score`}`, sets, lines);
});

switchedTable("shift-table", ["family", "quantity", "severity"], () => {
  const family = setting().shift[state.family];
  if (!family) return null;
  const { title, note, cells } = family.metrics[state.quantity];
  const place = state.severity ? family.severities.indexOf(state.severity) + 1 : 0;
  const lines = cells.map((own) => [own[own.length - 1], ...own.slice(0, -1)].map((line) => line[place]));
  return cellTable(`${title} (%) on ${family.family}, ${state.severity ? `severity ${state.severity}` : "mean over severities"}${note && `. ${note}`}`, ["all corruptions", ...family.corruptions], lines);
});

// A panel is one small chart: axes, lines with bands, dots, or a map of counts; and the values under the pointer.
const FRAME = { width: 340, height: 232, left: 56, right: 12, top: 26, bottom: 42 };
const STRIP = 46; // the height of a strip of counts below a chart
const tip = document.getElementById("tip");
let panels = 0;

function scale(axis, from, to) {
  const of = axis.log ? Math.log10 : (value) => value;
  const low = of(axis.min), span = of(axis.max) - low || 1;
  return (value) => from + ((of(Math.max(value, axis.log ? axis.min : value)) - low) / span) * (to - from);
}

function axisTicks(axis) {
  if (axis.ticks) return axis.ticks;
  if (!axis.log) return ticks(axis.min, axis.max, 4);
  const powers = [];
  for (let power = Math.ceil(Math.log10(axis.min)); power <= Math.log10(axis.max); power += 1) powers.push(10 ** power);
  return powers;
}

/** The smallest axis that holds all values, a little wider. */
function axisOf(values, more = {}) {
  const known = values.filter((value) => value !== null && Number.isFinite(value));
  let min = Math.min(...known), max = Math.max(...known);
  if (!known.length) [min, max] = [0, 1];
  const room = (max - min || Math.abs(max) || 1) * 0.06;
  return { min: min - room, max: max + room, format: short, ...more };
}

function pathOf(points, x, y, step) {
  let drawn = "", open = false;
  for (const [at, value] of points) {
    if (value === null || value === undefined) { open = false; continue; }
    const [px, py] = [x(at).toFixed(1), y(value).toFixed(1)];
    drawn += open ? (step ? `H${px}V${py}` : `L${px} ${py}`) : `M${px} ${py}`;
    open = true;
  }
  return drawn;
}

function drawSeries(one, x, y, floor) {
  const parts = [];
  if (one.band) {
    const known = one.points.filter(([, value], index) => value !== null && one.band[index] !== null);
    const edge = (sign) => one.points.flatMap(([at, value], i) => (value === null || one.band[i] === null ? [] : [[at, value + sign * one.band[i]]]));
    if (known.length > 1) parts.push(`<path class="band" d="${pathOf(edge(1), x, y)}${pathOf(edge(-1).reverse(), x, y).replace("M", "L")}Z"/>`);
  }
  const line = pathOf(one.points, x, y, one.step);
  if (one.area && one.points.length) {
    const first = one.points[0][0], last = one.points[one.points.length - 1][0];
    parts.push(`<path class="area" d="${line}L${x(last).toFixed(1)} ${floor}L${x(first).toFixed(1)} ${floor}Z"/>`);
  }
  if (!one.loose) parts.push(`<path class="curve ${one.style}" d="${line}"/>`);
  if (one.dots) one.points.forEach(([at, value], i) => { if (value !== null) parts.push(`<circle class="dot${one.hollow ? " hollow" : ""}" cx="${x(at).toFixed(1)}" cy="${y(value).toFixed(1)}" r="${one.dots[i] ?? one.dots}"/>`); });
  if (one.bars) one.points.forEach(([at, value]) => {
    const [dx, dy] = one.bars;
    if (dx) parts.push(`<path class="bar" d="M${x(at - dx)} ${y(value)}H${x(at + dx)}"/>`);
    if (dy) parts.push(`<path class="bar" d="M${x(at)} ${y(value - dy)}V${y(value + dy)}"/>`);
  });
  return `<g class="${one.style}">${parts.join("")}</g>`;
}

function drawHeat(heat, x, y, spec) {
  const width = (FRAME.width - FRAME.left - FRAME.right) / heat.counts.length;
  const height = (FRAME.height - FRAME.top - FRAME.bottom) / heat.counts[0].length;
  const cells = heat.counts.flatMap((column, i) => column.flatMap((count, j) => (count === 0 ? [] : [
    `<rect class="cell" x="${(FRAME.left + i * width).toFixed(1)}" y="${(FRAME.height - FRAME.bottom - (j + 1) * height).toFixed(1)}" ` +
    `width="${width.toFixed(2)}" height="${height.toFixed(2)}" fill-opacity="${Math.sqrt(count / heat.most).toFixed(2)}"/>`])));
  return `<g class="${heat.style}">${cells.join("")}</g><path class="mean-line" d="${pathOf(spec.series[0].points, x, y)}"/>`;
}

/** Bars of counts at places between 0 and 1 of the axis, on a square-root scale, between two heights. */
function drawCounts(counts, x, top, bottom) {
  const most = Math.max(1, ...counts.bars.map(([, , count]) => count));
  const bars = counts.bars.map(([from, to, count]) => {
    const high = (bottom - top) * Math.sqrt(count / most);
    return `<rect class="count" x="${(x(from) + 0.75).toFixed(1)}" y="${(bottom - high).toFixed(1)}" width="${Math.max(0.5, x(to) - x(from) - 1.5).toFixed(1)}" height="${high.toFixed(1)}"/>`;
  });
  return `<g class="${counts.style}">${bars.join("")}</g><path class="axis" d="M${FRAME.left} ${bottom}H${FRAME.width - FRAME.right}"/>` +
    `<text x="${FRAME.left - 6}" y="${top + 8}" text-anchor="end">${most.toLocaleString("en")}</text><text x="${FRAME.left - 6}" y="${bottom}" text-anchor="end">0</text>`;
}

function spoken(spec) {
  const each = spec.series.map((one) => {
    const known = one.points.filter(([, value]) => value !== null && value !== undefined);
    if (!known.length) return `${one.name}: no values`;
    const [first, last] = [known[0], known[known.length - 1]];
    return known.length === 1
      ? `${one.name}: ${spec.x.format(first[0])}, ${spec.y.format(first[1])}`
      : `${one.name}: from ${spec.y.format(first[1])} at ${spec.x.format(first[0])} to ${spec.y.format(last[1])} at ${spec.x.format(last[0])}`;
  });
  return `${spec.y.label} against ${spec.x.label}. ${each.join("; ")}.`;
}

/** spec: title, x and y (label, min, max, format, ticks, log), series (name, style, points, ...), guide, heat, here. */
function panel(spec) {
  const { width, left, right, top } = FRAME;
  const height = spec.height ?? FRAME.height, bottom = FRAME.bottom + (spec.counts ? STRIP + 8 : 0);
  const x = scale(spec.x, left, width - right), y = scale(spec.y, height - bottom, top);
  const id = `panel-${(panels += 1)}`;
  const grid = axisTicks(spec.y).map((value) => `<path class="grid" d="M${left} ${y(value).toFixed(1)}H${width - right}"/><text x="${left - 6}" y="${(y(value) + 3.5).toFixed(1)}" text-anchor="end">${safe(spec.y.format(value))}</text>`);
  const along = axisTicks(spec.x).map((value) => `<text x="${x(value).toFixed(1)}" y="${height - FRAME.bottom + 15}" text-anchor="middle">${safe(spec.x.format(value))}</text>`);
  const body = spec.heat ? drawHeat(spec.heat, x, y, spec) : spec.series.map((one) => drawSeries(one, x, y, height - bottom)).join("");
  const guide = spec.guide ? `<path class="guide" d="${pathOf(spec.guide, x, y)}"/>` : "";
  const strip = spec.counts ? drawCounts(spec.counts, x, height - FRAME.bottom - STRIP, height - FRAME.bottom) : "";
  const here = spec.here === undefined ? "" : `<path class="here" d="M${x(spec.here).toFixed(1)} ${top}V${height - bottom}"/>`;
  const made = element(`<div class="panel"><svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${safe(spec.title)}" aria-describedby="${id}">
<desc id="${id}">${safe(spoken(spec))}</desc>
<text class="title" x="${left}" y="15">${safe(spec.title)}</text>
<g aria-hidden="true">${grid.join("")}${along.join("")}<path class="axis" d="M${left} ${height - bottom}H${width - right}"/>
<text x="${(left + width - right) / 2}" y="${height - 8}" text-anchor="middle">${safe(spec.x.label)}</text>
<text transform="translate(9 ${(top + height - bottom) / 2}) rotate(-90)" text-anchor="middle">${safe(spec.y.label)}</text>
${guide}<svg x="${left - 6}" y="${top - 6}" width="${width - left - right + 12}" height="${height - top - bottom + 12}" viewBox="${left - 6} ${top - 6} ${width - left - right + 12} ${height - top - bottom + 12}">${body}</svg>${strip}${here}<path class="cross" d="M0 ${top}V${height - bottom}"/></g></svg></div>`);
  follow(made.querySelector("svg"), spec, x);
  return made;
}

/** Show the values nearest to the pointer. */
function follow(svg, spec, x) {
  const cross = svg.querySelector(".cross");
  const places = [...new Set(spec.series.flatMap((one) => one.points.map(([at]) => at)))];
  const leave = () => { tip.hidden = true; cross.style.visibility = "hidden"; };
  const move = (event) => {
    const box = svg.getBoundingClientRect();
    const pointer = ((event.clientX - box.left) / box.width) * FRAME.width;
    const at = places.reduce((best, place) => (Math.abs(x(place) - pointer) < Math.abs(x(best) - pointer) ? place : best), places[0]);
    if (at === undefined) return;
    const lines = spec.series.flatMap((one) => one.points.filter(([place, value]) => place === at && value !== null && value !== undefined)
      .map(([, value, note]) => `<div class="${one.style}"><i></i>${safe(one.name)}<span>${safe(spec.y.format(value))}${note ? ` · ${safe(note)}` : ""}</span></div>`));
    tip.innerHTML = `<b>${safe(spec.x.label)} ${safe(spec.x.format(at))}</b>${lines.join("")}`;
    tip.hidden = false;
    const beside = event.pageX + 14 + tip.offsetWidth > document.documentElement.clientWidth;
    tip.style.left = `${Math.max(4, beside ? event.pageX - 14 - tip.offsetWidth : event.pageX + 14)}px`;
    tip.style.top = `${event.pageY + 14}px`;
    cross.setAttribute("d", cross.getAttribute("d").replace(/^M[\d.-]+/, `M${x(at).toFixed(1)}`));
    cross.style.visibility = "visible";
  };
  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerdown", move);
  svg.addEventListener("pointerleave", leave);
}

/** The same values as a table, for those who cannot or do not want to see the chart. */
function tableOf(spec) {
  const places = [...new Set(spec.series.flatMap((one) => one.points.map(([at]) => at)))].sort((a, b) => a - b);
  const lines = places.map((at) => `<tr><th scope="row">${safe(spec.x.format(at))}</th>${spec.series.map((one) => {
    const found = one.points.find(([place]) => place === at);
    return `<td>${safe(found ? spec.y.format(found[1]) : "–")}${found?.[2] ? ` <span class="std">${safe(found[2])}</span>` : ""}</td>`;
  }).join("")}</tr>`);
  return `<table><caption>${safe(spec.title)}: ${safe(spec.y.label)}</caption><thead><tr><th scope="col">${safe(spec.x.label)}</th>` +
    `${spec.series.map((one) => `<th scope="col">${safe(one.name)}</th>`).join("")}</tr></thead><tbody>${lines.join("")}</tbody></table>`;
}

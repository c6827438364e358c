// A figure is panels with one legend. Legends of methods are switches, and all figures share them.
const swatch = (look, filled) => `<svg viewBox="0 0 24 10" aria-hidden="true" class="${look}">${filled ? '<path class="area" d="M1 1H23V9H1Z"/>' : `<path class="curve ${look}" d="M1 5H23"/>`}</svg>`;

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
    place.classList.toggle("wide", drawn.some((one) => one.wide));
    place.replaceChildren(...(drawn.length ? drawn.map(panel) : [element("<p>Nothing to show for this choice.</p>")]));
    const focused = keys.contains(document.activeElement) ? [...keys.children].indexOf(document.activeElement) : -1;
    keys.replaceChildren(...methodKeys(), ...(legend ? legend() : []).map((one) => element(`<span class="key">${swatch(one.style, one.filled)}${safe(one.name)}</span>`)));
    if (focused >= 0) keys.children[focused].focus();
    fill();
  });
}

function methodKeys() {
  if (setting().methods.length === 1) return []; // nothing to choose from
  return setting().methods.map((name, index) => {
    const key = element(`<button type="button" class="key" aria-pressed="${!hidden[state.setting].has(name)}">${swatch(lookOf(index))}${safe(name)}</button>`);
    key.addEventListener("click", () => toggleMethod(name));
    return key;
  });
}

/** One series per method that is shown; `points` is called with the method's position and may return nothing. */
const byMethod = (points, more = () => ({})) => shownMethods().flatMap((index) => {
  const found = points(index);
  return found ? [{ name: setting().methods[index], style: lookOf(index), points: found, ...more(index) }] : [];
});

// Every figure of the page: which numbers it shows, on which axes.
const share = { min: 0, max: 1, format: short };
const known = (series) => series.flatMap((one) => one.points.map(([, value]) => value));
const spread = (series) => series.flatMap((one) => one.points.flatMap(([, value], i) => (value === null ? [] : [value - (one.band?.[i] ?? 0), value + (one.band?.[i] ?? 0)])));

const reach = (series, side) => series.flatMap((one) => [-1, 1].map((sign) => one.points[0][side] + sign * (one.bars[side] ?? 0)));

/** One panel per corruption: a line per method over severities; values(method, corruption, place) -> [mean, std]. */
function overSeverities(family, values, y) {
  const drawn = family.corruptions.map((corruption, position) => byMethod(
    (method) => family.severities.map((severity, place) => [severity, values(method, position, place)?.[0] ?? null]),
    (method) => ({ dots: 2.4, band: family.severities.map((_, place) => values(method, position, place)?.[1] ?? null) }),
  ));
  const common = y.shared ? axisOf(drawn.flatMap(spread), y) : null;
  return drawn.map((series, position) => ({
    title: worded(family.corruptions[position]),
    x: { label: "severity", min: 0.8, max: Math.max(...family.severities) + 0.2, ticks: family.severities, format: String },
    y: common ?? axisOf(spread(series), y),
    series,
  }));
}

figure("shift", ["family", "quantity"], () => {
  const family = setting().shift[state.family], chosen = family?.metrics[state.quantity];
  if (!chosen) return [];
  const label = `${chosen.title} (%)`;
  return overSeverities(family, (method, corruption, place) => chosen.cells[method][corruption][place + 1], { label, shared: true, format: short });
});

figure("fisher", ["family"], () => {
  const family = setting().fisher[state.family] ?? setting().fisher[0];
  return family ? overSeverities(family, (method, corruption, place) => family.values[method][corruption][place], { label: "Fisher criterion", format: short }) : [];
});

const VERSIONS = { none: { name: "as trained", dash: dashes(0) }, temperature: { name: "with T", dash: dashes(1) } };
const NEUTRAL = "neutral";

figure("reliability", [], () => shownMethods().flatMap((index) => {
  const versions = setting().reliability[index];
  if (!versions) return [];
  const first = Object.values(versions)[0], width = 100 / 15;
  return [{
    title: setting().methods.length > 1 ? setting().methods[index] : "Reliability", height: data.equalMass ? 260 : 330, wide: true,
    x: { label: data.equalMass ? "confidence (%)" : "confidence (%), and images per bin", min: 0, max: 102, format: short },
    y: { label: "accuracy (%)", min: 0, max: 102, format: short },
    guide: [[0, 0], [100, 100]],
    counts: data.equalMass ? undefined : { style: colourOf(index), bars: first.map(([confidence, , , count]) => {
      const bin = Math.min(14, Math.max(0, Math.ceil(confidence / width - 1e-6) - 1));
      return [bin * width, (bin + 1) * width, count];
    }) },
    series: Object.entries(versions).map(([version, bins]) => ({
      name: VERSIONS[version].name, style: `${colourOf(index)} ${VERSIONS[version].dash}`, hollow: version !== "none",
      points: bins.map(([confidence, accuracy, , count]) => [confidence, accuracy, `n ${count.toLocaleString("en")}`]), dots: 3,
    })),
  }];
}), { legend: () => Object.keys(setting().reliability.find(Boolean) ?? {}).map((version) => ({ name: VERSIONS[version].name, style: `${NEUTRAL} ${VERSIONS[version].dash}` })) });

const detectionSets = () => Object.keys(setting().scores.find(Boolean)?.[scoreOf(0)]?.histogram.counts ?? {});

figure("histograms", ["score"], () => shownMethods().flatMap((index) => {
  const found = setting().scores[index]?.[scoreOf(index)]?.histogram;
  if (!found) return [];
  const [low, high] = found.range, sets = Object.entries(found.counts);
  const width = (high - low) / sets[0][1].length;
  return [{
    title: setting().methods[index],
    x: { label: worded(scoreOf(index)), min: low, max: high, format: short },
    y: { label: "share of samples", min: 1e-4, max: 1, log: true, format: (value) => `${Number((100 * value).toPrecision(2))} %` },
    series: sets.map(([name, counts], position) => ({
      name: worded(name), style: `${colourOf(index)} ${position ? dashes(position - 1) : ""}`, step: true, area: position === 0, loose: position === 0,
      points: counts.map((count, bin) => [low + (bin + 0.5) * width, count / 1e4]),
    })),
  }];
}), { legend: () => detectionSets().map((name, position) => ({ name: worded(name), style: `${NEUTRAL} ${position ? dashes(position - 1) : ""}`, filled: position === 0 })) });

figure("roc", ["score"], () => detectionSets().slice(1).flatMap((name) => {
  const series = byMethod((index) => setting().scores[index]?.[scoreOf(index)]?.roc[name]?.map((tpr, place) => [data.fpr[place], tpr / 1000]));
  return series.length ? [{
    title: worded(name), x: { label: "false-positive rate", ...share }, y: { label: "true-positive rate", ...share }, guide: [[0, 0], [1, 1]], series,
  }] : [];
}));

figure("risk", ["score"], () => {
  const series = byMethod((index) => setting().scores[index]?.[scoreOf(index)]?.risk.map((risk, place) => [data.coverage[place], risk / 10]));
  return series.length ? [{ title: "Risk against coverage", height: data.equalMass ? 260 : undefined, x: { label: "coverage", ...share }, y: axisOf([0, ...known(series)], { label: "risk (% wrong)", min: 0 }), series }] : [];
});

figure("tradeoff", ["score"], () => setting().ood.flatMap((name, position) => Object.entries(setting().calibration).map(([version, errors]) => {
  const pairOf = (index) => [errors[index], setting().detection.cells.auroc[state.score]?.[position][index]];
  const series = byMethod(
    (index) => (pairOf(index).every(Boolean) ? [pairOf(index).map((cell) => cell[0])] : null),
    (index) => ({ dots: 4, loose: true, bars: pairOf(index).map((cell) => cell?.[1]) }),
  );
  return {
    title: `${worded(name)}, ${VERSIONS[version].name}`,
    x: axisOf(reach(series, 0), { label: "ECE (%)" }), y: axisOf(reach(series, 1), { label: "AUROC (%)" }), series,
  };
})));

figure("profiles", [], () => {
  const shown = shownMethods().filter((index) => setting().path[index]);
  const most = Math.max(1, ...shown.flatMap((index) => setting().path[index].counts.flat()));
  return shown.map((index) => {
    const { counts, mean, top } = setting().path[index];
    return {
      title: setting().methods[index], heat: { counts, most, style: colourOf(index) },
      x: { label: "λ", ...share }, y: { label: "entropy (nats)", min: 0, max: top, format: short },
      series: [{ name: "mean", style: "", points: mean.map((value, place) => [place / (mean.length - 1), value]) }],
    };
  });
}, { legend: () => [] });

figure("training", ["curve"], () => {
  const series = byMethod((index) => {
    const found = setting().curves[index][state.curve];
    return found?.[0].map((epoch, place) => [epoch, found[1][place]]);
  });
  if (!series.length) return [];
  const last = Math.max(...series.flatMap((one) => one.points.map(([epoch]) => epoch)));
  return [{ title: worded(state.curve), x: { label: "epoch", min: 1, max: Math.max(2, last), format: short }, y: axisOf(known(series), { label: worded(state.curve) }), series }];
});

/** Loss and accuracy of one training, on train images and, where they were predicted, on validation images. */
const EPOCHS = { loss: [1, "loss", "val_nll"], "accuracy (%)": [100, "train_accuracy", "val_accuracy"] };
figure("epochs", [], () => Object.entries(EPOCHS).flatMap(([label, [factor, ...names]]) => {
  const series = names.flatMap((name, place) => {
    const [epochs, values] = setting().curves[0][name] ?? [[], []];
    return epochs.length ? [{ name: place ? "validation" : "train", style: `s${place}`, dots: 2.4, points: epochs.map((epoch, at) => [epoch, factor * values[at]]) }] : [];
  });
  if (!series.length) return [];
  const last = Math.max(...series.flatMap((one) => one.points.map(([epoch]) => epoch)));
  const ticks = last <= 10 ? series[0].points.map(([epoch]) => epoch) : undefined;
  return [{ title: label, x: { label: "epoch", min: 1, max: Math.max(2, last), format: short, ticks }, y: axisOf(known(series), { label }), series }];
}), { legend: () => [{ name: "train", style: "s0" }, { name: "validation", style: "s1" }].slice(0, "val_nll" in setting().curves[0] ? 2 : 1) });

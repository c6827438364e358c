// Two images, lambda between them, and what every model makes of the mixture.
const pixelsOf = new Map();

/** The pixels of a PNG in base64, decoded once. */
function decoded(png) {
  if (!pixelsOf.has(png)) {
    pixelsOf.set(png, new Promise((resolve, reject) => {
      const image = new Image();
      image.onload = () => {
        const canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [image.width, image.height];
        const context = canvas.getContext("2d", { willReadFrequently: true });
        context.drawImage(image, 0, 0);
        resolve(context.getImageData(0, 0, image.width, image.height));
      };
      image.onerror = () => reject(new Error("an image of the page cannot be read"));
      image.src = `data:image/png;base64,${png}`;
    }));
  }
  return pixelsOf.get(png);
}

/** Draw lam * first + (1 - lam) * second. */
async function drawMixed(canvas, pair, lam) {
  canvas.dataset.lam = lam;
  const [first, second] = await Promise.all(pair.png.map(decoded));
  if (Number(canvas.dataset.lam) !== lam) return;
  const mixed = new ImageData(first.width, first.height);
  for (let i = 0; i < mixed.data.length; i += 1) mixed.data[i] = Math.round(lam * first.data[i] + (1 - lam) * second.data[i]);
  [canvas.width, canvas.height] = [first.width, first.height];
  canvas.getContext("2d").putImageData(mixed, 0, 0);
}

const pairNow = () => setting().images[state.pair];
const entropies = (index) => setting().path[index]?.pairs[state.pair];

/** The value of a curve sampled at equal steps from 0 to 1. */
function valueAt(curve, lam) {
  const place = lam * (curve.length - 1), below = Math.min(Math.floor(place), curve.length - 2);
  return curve[below] + (place - below) * (curve[below + 1] - curve[below]);
}

const lamSlider = document.getElementById("lam");
if (lamSlider) {
  const [left, middle, right] = document.querySelectorAll(".ends canvas");
  const say = (canvas, text) => {
    canvas.setAttribute("aria-label", text);
    canvas.nextElementSibling.textContent = text;
  };
  lamSlider.addEventListener("input", () => choose({ lam: Number(lamSlider.value) / 100 }));
  whenever(["pair"], () => {
    const pair = pairNow();
    if (!pair) return;
    drawMixed(left, pair, 0);
    drawMixed(right, pair, 1);
    say(left, `λ = 0: ${pair.classes[1]}`);
    say(right, `λ = 1: ${pair.classes[0]}`);
  });
  whenever(["pair", "lam"], () => {
    const pair = pairNow();
    if (!pair) return;
    const part = Math.round(100 * state.lam);
    const text = `λ = ${state.lam.toFixed(2)}: ${part} % ${pair.classes[0]}, ${100 - part} % ${pair.classes[1]}`;
    drawMixed(middle, pair, state.lam);
    say(middle, text);
    lamSlider.setAttribute("aria-valuetext", text);
  });
}

switchedTable("explorer-table", ["pair", "lam"], () => {
  const lines = setting().methods.flatMap((name, index) => {
    const curve = entropies(index);
    if (!curve) return [];
    const top = Math.max(...curve), where = curve.indexOf(top) / (curve.length - 1);
    const cells = [valueAt(curve, state.lam), curve[0], top, curve[curve.length - 1]];
    return [`<tr><th scope="row" data-value="${safe(name)}">${breakable(name)}</th>${cells.map((value, place) =>
      `<td data-value="${value}">${value.toFixed(2)}${place === 2 ? ` <span class="std">at λ ${where.toFixed(2)}</span>` : ""}</td>`).join("")}</tr>`];
  });
  const heads = ["method", `at λ ${state.lam.toFixed(2)}`, "at λ = 0", "highest", "at λ = 1"];
  return `<table class="explorer-table"><caption class="legend-text">Entropy along this path, in nats</caption><thead><tr>${heads.map((name) =>
    `<th scope="col"><button type="button" class="sort">${name}</button></th>`).join("")}</tr></thead><tbody>${lines.join("")}</tbody></table>`;
});

figure("explorer", ["pair", "lam"], () => {
  const series = byMethod((index) => entropies(index)?.map((value, place, all) => [place / (all.length - 1), value]));
  const top = Math.max(...setting().path.map((one) => one?.top ?? 0));
  return series.length ? [{ title: "Entropy along the path", x: { label: "λ", ...share }, y: { label: "entropy (nats)", min: 0, max: top, format: short }, series, here: state.lam }] : [];
});

const strengths = document.getElementById("strengths");
if (strengths) whenever(["pair"], () => strengths.replaceChildren(...setting().mixing.map(strengthOf)));

/** One method's density of lambda, and the chosen pair mixed at some of its quantiles. */
function strengthOf({ method, alpha, lam, density, densest, quantiles }) {
  const look = lookOf(setting().methods.indexOf(method));
  const points = lam.map((at, place) => [at, density[place]]);
  const card = element('<div><div class="strip"></div></div>');
  card.prepend(panel({
    title: `${method}: Beta(${alpha}, ${alpha})`,
    x: { label: "λ", ...share },
    y: { label: "density", min: 0, max: Math.min(6, Math.max(...density)) * 1.08, format: short },
    series: [
      { name: "density", style: look, points },
      ...densest.map(([low, high]) => ({ name: "densest 80 %", style: look, area: true, loose: true, points: points.filter(([at]) => at >= low && at <= high) })),
    ],
  }));
  if (pairNow()) quantiles.forEach((at, place) => {
    const item = element(`<div title="${100 * data.quantiles[place]} % quantile of λ"><canvas role="img" aria-label="mixed with λ = ${at}"></canvas><span>λ ${at.toFixed(2)}</span></div>`);
    drawMixed(item.firstElementChild, pairNow(), at);
    card.lastElementChild.append(item);
  });
  return card;
}

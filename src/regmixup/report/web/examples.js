// Images on which a model fails, with what it said of them.
const exhibitList = document.getElementById("examples-list");

function exhibitOf(index, { kind, set }) {
  const found = setting().examples[index]?.sets.find((one) => one.kind === kind && one.set === set);
  const name = setting().methods[index];
  if (!found) return [];
  const count = `${found.count.toLocaleString("en")} ${kind} of ${found.total.toLocaleString("en")}`;
  const images = found.images.map(({ image, said, truth, sure, file }) => {
    const words = `${said}, ${(100 * sure).toFixed(sure > 0.9995 ? 0 : 1)} %`;
    const text = `${words}${truth ? `; true class ${truth}` : ""}`;
    return `<li><img src="${safe(image)}" alt="${safe(`The model says ${text}`)}"><span>${safe(words)}</span>${truth ? `<span class="${truth === said ? "" : "bad"}">is ${safe(truth)}</span>` : ""}${file ? `<span class="fact">${safe(file)}</span>` : ""}</li>`;
  });
  return [element(`<div class="exhibit"><h3><i class="${colourOf(index)}"></i>${safe(name)} <span class="std">${count}</span></h3>${
    images.length ? `<ul class="thumbnails">${images.join("")}</ul>` : "<p>None.</p>"}</div>`)];
}

if (exhibitList) whenever(["exhibit", "methods"], () => {
  const chosen = exhibits()[state.exhibit];
  exhibitList.replaceChildren(...(chosen ? shownMethods().flatMap((index) => exhibitOf(index, chosen)) : []));
});

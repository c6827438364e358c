// What the reader has chosen, and which figures have to be drawn again when a choice changes.
const data = JSON.parse(document.getElementById("data").textContent);
const state = { setting: 0, score: "", metric: 0, family: 0, quantity: 0, severity: 0, curve: "loss", pair: 0, lam: 0.5 };
const drawings = [];

const setting = () => data.settings[state.setting];
const hidden = data.settings.map((one) => new Set(one.methods.filter((name) => !one.shown.includes(name))));

/** Positions of the methods that figures show. */
const shownMethods = () => setting().methods.flatMap((name, index) => (hidden[state.setting].has(name) ? [] : [index]));

/** A method's colour and dashes; those shown first differ in colour. */
const lookOf = (method) => style(setting().looks[method]);

/** The score of a method: the one chosen, or the paper's own choice for the method. */
const scoreOf = (method) => state.score || setting().detection.paper[method];

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

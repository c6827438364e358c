// The smallest contrast of any visible text with the background behind it (WCAG 2), and where that is.
(() => {
  const parse = (text) => text.match(/[\d.]+/g).map(Number);
  const linear = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const luminance = ([red, green, blue]) => 0.2126 * linear(red / 255) + 0.7152 * linear(green / 255) + 0.0722 * linear(blue / 255);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour[3] !== 0) return colour;
    }
    throw new Error("a page without a background");
  };
  let worst = [99, ""];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    const hidden = ["SCRIPT", "STYLE", "OPTION", "desc"].includes(node.tagName) || !node.getClientRects().length;
    if (hidden || !texts.currentNode.data.trim()) continue;
    const look = getComputedStyle(node);
    const pair = [luminance(parse(node.ownerSVGElement ? look.fill : look.color)), luminance(behind(node))];
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (ratio < worst[0]) worst = [ratio, node.outerHTML.slice(0, 120)];
  }
  return worst;
})()

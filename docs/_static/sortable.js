// A click on a heading sorts the table by that column, by its first number; a second click turns the order.
document.addEventListener("DOMContentLoaded", () => {
  const number = (cell) => {
    const found = cell.textContent.replace("−", "-").match(/-?\d+(\.\d+)?/);
    return found ? Number(found[0]) : -Infinity;
  };
  document.querySelectorAll(".bd-article table").forEach((table) => {
    table.querySelectorAll("th").forEach((heading, column) => {
      heading.style.cursor = "pointer";
      heading.title = "sort";
      let direction = -1;
      heading.addEventListener("click", () => {
        const body = table.tBodies[0];
        const rows = [...body.rows].sort((a, b) => direction * (number(a.cells[column]) - number(b.cells[column])));
        rows.forEach((row) => body.appendChild(row));
        direction = -direction;
      });
    });
  });
});

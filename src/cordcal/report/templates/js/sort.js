// Sorting: numbers by value, words by name; a second click turns the order round.
{
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort ?? cell.textContent.replaceAll(",", "").replace("−", "-");
  };
  const sort = (table, column, down) => {
    const body = table.tBodies[0];
    const rows = [...body.rows].filter((row) => !row.matches(".base, .pinned"));
    const numeric = rows.every((row) => value(row, column) !== "" && !Number.isNaN(Number(value(row, column))));
    const order = numeric
      ? (a, b) => Number(value(a, column)) - Number(value(b, column))
      : (a, b) => value(a, column).localeCompare(value(b, column));
    rows.sort((a, b) => (down ? order(b, a) : order(a, b)));
    body.append(...rows);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sort(table, column, down);
    }));
  }
}

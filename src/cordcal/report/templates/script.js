"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  // Theme: follows the system until the reader chooses.
  const theme = document.getElementById("theme");
  const dark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const label = () => {
    theme.textContent = dark() ? "Light" : "Dark";
    theme.setAttribute("aria-pressed", String(dark()));
  };
  theme.hidden = false;
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
  label();

  // Sorting: numbers by value, words by name; a second click turns the order round.
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort ?? cell.textContent.replaceAll(",", "").replace("−", "-");
  };
  const sort = (table, column, down) => {
    const body = table.tBodies[0];
    const rows = [...body.rows].filter((row) => !row.classList.contains("base"));
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

  // Which calibrator is looked at closely.
  const picker = document.getElementById("picker");
  if (picker) {
    picker.addEventListener("change", () => {
      for (const article of document.querySelectorAll(".detail")) {
        article.toggleAttribute("data-closed", article.dataset.entry !== picker.value);
      }
    });
  }

  // Filtering the changed rows.
  for (const article of document.querySelectorAll(".detail")) {
    const find = article.querySelector(".find");
    if (!find) continue;
    const kind = article.querySelector("select.kind");
    const shown = article.querySelector(".shown");
    const rows = [...article.querySelector("table.rows").tBodies[0].rows];
    const filter = () => {
      const wanted = find.value.trim().toLowerCase();
      let count = 0;
      for (const row of rows) {
        const matches = (!kind || !kind.value || row.dataset.kind === kind.value)
          && (!wanted || [...row.cells].some((cell) => !cell.classList.contains("num")
            ? cell.textContent.toLowerCase().includes(wanted) : cell === row.cells[0] && cell.textContent === wanted));
        row.hidden = !matches;
        count += matches ? 1 : 0;
      }
      shown.textContent = `${count} of ${rows.length} rows`;
    };
    find.addEventListener("input", filter);
    if (kind) kind.addEventListener("change", filter);
  }

  // Hover texts: by pointer, and by arrow keys inside a focused picture.
  const tip = document.getElementById("tip");
  let marked = null;
  const hide = () => { tip.hidden = true; if (marked) marked.classList.remove("on"); marked = null; };
  const show = (mark) => {
    hide();
    marked = mark;
    mark.classList.add("on");
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const box = mark.getBoundingClientRect();
    const own = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
    const above = box.top - own.height - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above < 8 ? box.bottom + 8 : above}px`;
  };
  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest("[data-tip]");
    if (mark) show(mark); else hide();
  });
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  for (const picture of document.querySelectorAll("svg[tabindex]")) {
    const marks = [...picture.querySelectorAll("[data-tip]")];
    let at = -1;
    picture.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step || !marks.length) return;
      event.preventDefault();
      at = (at + step + marks.length) % marks.length;
      show(marks[at]);
    });
    picture.addEventListener("blur", hide);
  }
})();

// Filtering the changed rows: by words, by kind, and by the move that was chosen.
for (const article of document.querySelectorAll(".detail")) {
  const table = article.querySelector("table.rows");
  if (!table) continue;
  const find = article.querySelector(".find");
  const kind = article.querySelector("select.kind");
  const shown = article.querySelector(".shown");
  const chip = article.querySelector(".move-chosen");
  const heads = [...table.tHead.rows[0].cells];
  const words = heads.flatMap((head, column) => (head.classList.contains("num") ? [] : [column]));
  const [from, to] = ["from", "to"].map((role) => heads.findIndex((head) => head.dataset.role === role));
  const rows = [...table.tBodies[0].rows];
  let move = null;
  const matches = (row, query) => {
    const text = (column) => row.cells[column].textContent;
    if (kind && kind.value && row.dataset.kind !== kind.value) return false;
    if (move && (text(from) !== move.from || text(to) !== move.to)) return false;
    return !query || text(0) === query || words.some((column) => text(column).toLowerCase().includes(query));
  };
  const filter = () => {
    const query = find.value.trim().toLowerCase();
    let count = 0;
    for (const row of rows) {
      row.hidden = !matches(row, query);
      count += row.hidden ? 0 : 1;
    }
    shown.textContent = `${count} of ${rows.length} rows`;
  };
  const choose = (mark) => {
    move = mark ? mark.dataset : null;
    for (const each of article.querySelectorAll("[data-from]")) {
      each.classList.toggle("chosen", Boolean(move) && each.dataset.from === move.from && each.dataset.to === move.to);
    }
    chip.hidden = !move;
    if (move) chip.textContent = `${move.from} → ${move.to} ✕`;
    filter();
    if (move) article.querySelector(".rows-title").scrollIntoView({ block: "start" });
  };
  find.addEventListener("input", filter);
  if (kind) kind.addEventListener("change", filter);
  chip.addEventListener("click", () => { choose(null); find.focus({ preventScroll: true }); });
  article.addEventListener("click", (event) => {
    const mark = event.target.closest("[data-from]");
    if (mark) choose(mark);
  });
}

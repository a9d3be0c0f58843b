// One of many classes: found by its name, and drawn when it is chosen.
for (const list of document.querySelectorAll(".class-list")) {
  const rows = [...list.querySelector("tbody").rows];
  const find = list.querySelector(".find-class");
  const shown = list.querySelector(".classes-shown");
  if (find) {
    find.addEventListener("input", () => {
      const wanted = find.value.trim().toLowerCase();
      for (const row of rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
      shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} classes`;
    });
  }
  const figure = list.querySelector(".class-chosen");
  if (!figure) continue;
  const svg = figure.querySelector("svg");
  const lines = svg.querySelector(".lines");
  const size = Number(svg.dataset.size);
  const add = (name, attributes) => {
    const shape = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value);
    lines.append(shape);
  };
  const draw = (row) => {
    for (const other of rows) other.classList.toggle("looked", other === row);
    const name = row.cells[0].textContent.trim();
    figure.querySelector(".class-name").textContent = name;
    svg.setAttribute("aria-label", `Reliability diagram of the class ${name}`);
    lines.replaceChildren();
    for (const part of row.dataset.bins.split(" ")) {
      const [report, ...bins] = part.split(";");
      const points = bins.map((bin) => bin.split(",").map(Number));
      const at = ([x, y]) => [(x * size).toFixed(1), ((1 - y) * size).toFixed(1)];
      add("path", { class: `line ${report}`, d: `M${points.map((point) => at(point).join(" ")).join(" L")}` });
      for (const point of points) {
        const [cx, cy] = at(point);
        add("circle", { class: `mark ${report}`, cx, cy, r: 1.6, "data-tip":
          `${report}: probability ${point[0].toFixed(3)}, frequency ${point[1].toFixed(3)}, ${point[2].toLocaleString("en")} rows` });
      }
    }
  };
  list.querySelector("tbody").addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row) draw(row);
  });
  figure.hidden = false;
  draw(rows[0]);
}

// Of all calibrators but the first, the classes come as bare numbers: rows are made of them here, with
// the names, the counts and the original output of the first one's.
{
  const first = document.querySelector(".class-list[data-first] tbody");
  const firstRows = first ? [...first.rows] : [];
  const cell = (text) => { const made = document.createElement("td"); made.textContent = text; return made; };
  const rowOf = (outputs, text, source) => {
    const [numbers, ...bins] = text.split(" ");
    const [left, joined, ...gaps] = numbers.split(",");
    const [name, rows, decided, , , original] = [...source.cells].map((each) => each.cloneNode(true));
    const row = document.createElement("tr");
    row.append(name, rows, decided, cell(left), cell(joined), original, ...gaps.map((gap) => cell((gap / 1000).toFixed(3))));
    row.dataset.bins = [source.dataset.bins.split(" ")[0], ...outputs.map((output, at) => `${output};${bins[at]}`)].join(" ");
    return row;
  };
  const count = (row, at) => Number(row.cells[at].textContent.replaceAll(",", ""));
  const moved = (row) => count(row, 3) + count(row, 4);
  for (const list of document.querySelectorAll(".class-list[data-classes]")) {
    const { outputs, classes } = list.dataset;
    const rows = classes.split("|").map((text, at) => rowOf(outputs.split(" "), text, firstRows[at]));
    rows.sort((one, other) => moved(other) - moved(one) || count(other, 2) - count(one, 2));
    list.querySelector("tbody").replaceChildren(...rows);
  }
}
// One of many classes: found by its name, and drawn when it is chosen.
for (const list of document.querySelectorAll(".class-list")) {
  const rows = [...list.querySelector("tbody").rows];
  const find = list.querySelector(".find-class");
  const shown = list.querySelector(".classes-shown");
  if (find) {
    const filter = () => {
      const query = find.value.trim().toLowerCase();
      for (const row of rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(query);
      shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} classes`;
    };
    find.addEventListener("input", filter);
    filter();
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
      const [output, ...bins] = part.split(";");
      const points = bins.map((bin) => bin.split(",").map(Number)).map(([p, share, count]) => [p / 1000, share / 1000, count]);
      const at = ([x, y]) => [(x * size).toFixed(1), ((1 - y) * size).toFixed(1)];
      add("path", { class: `line ${output}`, d: `M${points.map((point) => at(point).join(" ")).join(" L")}` });
      for (const point of points) {
        const [cx, cy] = at(point);
        add("circle", { class: `mark ${output}`, cx, cy, r: 1.6, "data-tip":
          `${output}: probability ${point[0].toFixed(3)}, frequency ${point[1].toFixed(3)}, ${point[2].toLocaleString("en")} rows` });
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

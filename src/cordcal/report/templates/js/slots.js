// Hover texts at even steps of a picture: what its lines are there.
for (const slots of document.querySelectorAll(".slots")) {
  const [left, top, width, height] = slots.dataset.box.split(" ").map(Number);
  const lines = slots.dataset.values.split(";").map((line) => line.split(":"));
  const values = lines.map(([name, list]) => [name, list.split(",")]);
  const count = values[0][1].length;
  for (let at = 0; at < count; at += 1) {
    const ends = [at, at + 1].map((step) => (step / count).toFixed(2));
    const words = slots.dataset.words.replace("{1}", ends[1]).replace("{}", ends[0]).replace("{}", ends[1]);
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const shape = { class: "mark hover", x: left + width * at / count, y: top, width: width / count, height };
    for (const [key, value] of Object.entries(shape)) bar.setAttribute(key, value);
    bar.dataset.tip = `${words}: ${values.map(([name, list]) => `${name} ${list[at]}`).join(", ")}`;
    slots.append(bar);
  }
}

// Hover texts: by pointer, and by arrow keys inside a focused picture.
{
  const tip = document.getElementById("tip");
  let marked = [];
  const hide = () => { tip.hidden = true; for (const mark of marked) mark.classList.remove("on"); marked = []; };
  const plural = (count) => `${count} row${count === "1" ? "" : "s"}`;
  const text = (mark) => {
    if (mark.dataset.tip !== undefined) return mark.dataset.tip;
    if (mark.dataset.from === undefined) return undefined;
    const { from, to, n, gained, lost } = mark.dataset;
    return `${from} → ${to}: ${plural(n)}${gained === undefined ? "" : `, ${gained} become right, ${lost} wrong`}`;
  };
  const show = (marks) => {
    hide();
    marked = marks;
    for (const mark of marks) mark.classList.add("on");
    tip.textContent = marks.map(text).join("\n");
    tip.hidden = false;
    const box = marks[0].getBoundingClientRect();
    const own = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
    const above = box.top - own.height - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above < 8 ? box.bottom + 8 : above}px`;
  };
  // The numbers of a picture that has a table stand there: a mark's text is its row.
  for (const figure of document.querySelectorAll("figure[data-tips-from-table]")) {
    const heads = [...figure.querySelectorAll("thead th")].map((head) => head.textContent.toLowerCase());
    const rows = figure.querySelectorAll("tbody tr");
    figure.querySelectorAll("svg .mark").forEach((mark, index) => {
      const [first, ...others] = [...rows[index].cells].map((cell) => cell.textContent);
      mark.dataset.tip = `${first}: ${others.map((cell, at) => `${heads[at + 1]} ${cell}`).join(", ")}`;
    });
  }
  document.addEventListener("pointerover", (event) => {
    // Marks that lie on each other are shown together.
    const under = document.elementsFromPoint(event.clientX, event.clientY).filter((each) => text(each) !== undefined);
    const mark = event.target.closest("[data-tip], [data-from]");
    if (under.length) show(under.slice(0, 8)); else if (mark) show([mark]); else hide();
  });
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  for (const picture of document.querySelectorAll("svg[tabindex]")) {
    let at = -1;
    picture.addEventListener("keydown", (event) => {
      const marks = [...picture.querySelectorAll("[data-tip], [data-from]")];
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!marks.length) return;
      if (step) {
        event.preventDefault();
        at = (at + step + marks.length) % marks.length;
        show([marks[at]]);
      } else if (event.key === "Enter" && at >= 0) {
        marks[at].dispatchEvent(new MouseEvent("click", { bubbles: true }));
      }
    });
    picture.addEventListener("focus", () => { if (picture.dataset.tip !== undefined) show([picture]); });
    picture.addEventListener("blur", hide);
  }
}

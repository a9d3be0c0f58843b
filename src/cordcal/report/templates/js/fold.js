// Long tables show their first rows until the others are asked for.
for (const button of document.querySelectorAll("button.unfold")) {
  const table = document.getElementById(button.dataset.table);
  const label = () => {
    const folded = table.classList.contains("folded");
    button.textContent = folded ? button.dataset.all : button.dataset.fewer;
    button.setAttribute("aria-expanded", String(!folded));
  };
  table.classList.add("folded");
  button.hidden = false;
  button.addEventListener("click", () => { table.classList.toggle("folded"); label(); });
  label();
}

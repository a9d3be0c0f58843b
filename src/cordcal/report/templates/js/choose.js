// Which calibrator is looked at closely: chosen in the list above it, or by its name in the table.
{
  const picker = document.getElementById("picker");
  const links = [...document.querySelectorAll("a.look")];
  const look = (entry) => {
    for (const article of document.querySelectorAll(".detail")) {
      article.toggleAttribute("data-closed", article.dataset.entry !== entry);
    }
    for (const link of links) {
      const chosen = link.dataset.entry === entry;
      link.closest("tr").classList.toggle("looked", chosen);
      if (chosen) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    }
  };
  if (picker) {
    picker.addEventListener("change", () => look(picker.value));
    for (const link of links) {
      link.addEventListener("click", (event) => {
        event.preventDefault();
        picker.value = link.dataset.entry;
        look(link.dataset.entry);
        document.getElementById("detail-title").scrollIntoView({ block: "start" });
        picker.focus({ preventScroll: true });
      });
    }
    look(picker.value);
  }
}

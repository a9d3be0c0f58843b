// Copying the lines of a figure; where the clipboard is closed they are selected instead.
for (const button of document.querySelectorAll("button.copy")) {
  const code = button.closest("figure").querySelector("code");
  const name = button.textContent;
  const say = (text) => { button.textContent = text; setTimeout(() => { button.textContent = name; }, 2000); };
  button.hidden = false;
  button.addEventListener("click", () => {
    const selected = () => { getSelection().selectAllChildren(code); say("Press Ctrl+C"); };
    if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(() => say("Copied"), selected);
    else selected();
  });
}

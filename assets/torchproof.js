// A wide output that scrolls inside itself must be reachable by keyboard.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll(".bd-article pre, .bd-article table")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
});

// Filter as you type, on pages that list entries. Without JavaScript the whole list stays.
document.addEventListener("DOMContentLoaded", () => {
  const place = document.querySelector(".bd-article .filter");
  if (!place) return;
  const entries = [...document.querySelectorAll(".bd-article .entry")];
  const levels = [...new Set(entries.map((entry) => entry.dataset.level).filter(Boolean))];
  const field = Object.assign(document.createElement("input"), { type: "text", placeholder: "Filter as you type" });
  field.setAttribute("aria-label", "Filter the list");
  const level = document.createElement("select");
  level.setAttribute("aria-label", "Level");
  for (const name of ["all levels", ...levels]) level.append(new Option(name, name === "all levels" ? "" : name));
  const count = document.createElement("output");
  place.append(field, ...(levels.length ? [level] : []), count);
  const texts = entries.map((entry) => entry.textContent.toLowerCase());
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    entries.forEach((entry, number) => {
      const fits = words.every((word) => texts[number].includes(word)) && (!level.value || entry.dataset.level === level.value);
      entry.hidden = !fits;
      shown += fits;
    });
    for (const section of document.querySelectorAll(".bd-article section section")) {
      section.hidden = !section.querySelector(".entry:not([hidden])");
    }
    count.textContent = `${shown} of ${entries.length}`;
  };
  field.addEventListener("input", filter);
  level.addEventListener("change", filter);
  filter();
});

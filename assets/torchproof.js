// A wide output that scrolls inside itself must be reachable by keyboard.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll(".bd-article pre, .bd-article table")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
});

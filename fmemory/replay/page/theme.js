// Runs before anything is drawn, so that a dark page does not flash up in white.

const darkness = matchMedia("(prefers-color-scheme: dark)");

function chosenTheme() {
  try {
    return localStorage.getItem("fmemory-theme");
  } catch {
    return null; // a page without storage, as some browsers treat local files
  }
}

function setTheme(name) {
  document.documentElement.dataset.theme = name || (darkness.matches ? "dark" : "light");
}

setTheme(chosenTheme());
darkness.addEventListener("change", () => setTheme(chosenTheme()));

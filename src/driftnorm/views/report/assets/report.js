"use strict";
// Sorting, values on hover and focus, hiding of methods, the theme. Without it the page still reads.

const tip = document.getElementById("tip");
let shown = null;

function hideTip() {
  if (shown) shown.classList.remove("active");
  shown = null;
  tip.hidden = true;
}

function showTip(mark) {
  hideTip();
  shown = mark;
  mark.classList.add("active");
  tip.textContent = mark.getAttribute("aria-label");
  tip.hidden = false;
  const at = mark.getBoundingClientRect();
  const middle = at.left + at.width / 2 - tip.offsetWidth / 2;
  const widest = document.documentElement.clientWidth - tip.offsetWidth - 4;
  tip.style.left = `${Math.max(4, Math.min(middle, widest))}px`;
  const above = at.top - tip.offsetHeight - 8;
  tip.style.top = `${above > 0 ? above : at.bottom + 8}px`;
}

// The browser's own tooltip is slow and unreachable by keyboard: the title becomes a label.
for (const mark of document.querySelectorAll("svg .mark")) {
  const title = mark.querySelector("title");
  mark.setAttribute("aria-label", title.textContent);
  title.remove();
}

document.addEventListener("pointerover", (event) => {
  const mark = event.target.closest(".mark");
  if (mark) showTip(mark);
  else if (shown && !shown.closest("svg").matches(":focus")) hideTip();
});
document.addEventListener("scroll", hideTip, { passive: true });

function move(chart, step) {
  const marks = [...chart.querySelectorAll(".mark:not(.off)")];
  if (!marks.length) return;
  const now = marks.indexOf(shown);
  const next = now < 0 ? (step > 0 ? 0 : marks.length - 1) : now + step;
  showTip(marks[(next + marks.length) % marks.length]);
}

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
for (const chart of document.querySelectorAll("svg[tabindex]")) {
  chart.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideTip();
    if (!(event.key in STEPS)) return;
    event.preventDefault();
    move(chart, STEPS[event.key]);
  });
  chart.addEventListener("focus", () => {
    if (chart.matches(":focus-visible")) move(chart, 1);
  });
  chart.addEventListener("blur", hideTip);
}

function compare(one, other) {
  const [a, b] = [Number(one), Number(other)];
  return Number.isNaN(a) || Number.isNaN(b) ? one.localeCompare(other) : a - b;
}

function isMissing(value) {
  return value === "" || value === "nan";
}

function sortBy(head) {
  const table = head.closest("table");
  const column = [...head.parentNode.children].indexOf(head);
  const ascending = head.getAttribute("aria-sort") !== "ascending";
  for (const each of head.parentNode.children) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const body = table.tBodies[0];
  const value = (row) => row.cells[column].dataset.value;
  const rows = [...body.rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (isMissing(a) || isMissing(b)) return isMissing(a) - isMissing(b); // last, either way
    return ascending ? compare(a, b) : compare(b, a);
  });
  body.append(...rows);
}

for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}

for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const visible = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(visible));
    const marks = button.closest("section").querySelectorAll(
      `svg [data-slot="${button.dataset.slot}"]`,
    );
    for (const mark of marks) mark.classList.toggle("off", !visible);
  });
}

// Where a table is wider than the page, say so: many browsers hide the scroll bar.
function tellOfMore() {
  for (const box of document.querySelectorAll(".scroll")) {
    box.parentNode.toggleAttribute("data-more", box.scrollWidth > box.clientWidth);
  }
}
addEventListener("resize", tellOfMore);
tellOfMore();

const THEMES = { "": "as the system", light: "light", dark: "dark" };
const toggle = document.getElementById("theme");
let theme = "";

function setTheme(name) {
  theme = name in THEMES ? name : "";
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  toggle.textContent = `Theme: ${THEMES[theme]}`;
}

toggle.addEventListener("click", () => {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(theme) + 1) % names.length]);
  try {
    localStorage.setItem("driftnorm-theme", theme);
  } catch {
    // A browser that keeps nothing for pages from disk; the choice lasts as long as the page.
  }
});
try {
  setTheme(localStorage.getItem("driftnorm-theme") ?? "");
} catch {
  setTheme("");
}

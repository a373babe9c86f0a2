// Sorting, filtering and choosing. Without this script every table and heat map can still be read.
"use strict";

function make(tag, text, attributes) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  return element;
}

// The number that a cell shows, or null: "1,234.5", "−3", "1.2e−9", "3 of 8".
function number(text) {
  const plain = text.trim().replace(/,/g, "").replace(/−/g, "-");
  const start = /^-?[0-9.]+(e-?[0-9]+)?/.exec(plain);
  return start ? Number(start[0]) : null;
}

function compare(a, b) {
  const [x, y] = [number(a), number(b)];
  if (x !== null && y !== null) return x - y;
  if (x !== null || y !== null) return x !== null ? -1 : 1;
  return a.localeCompare(b, undefined, { numeric: true });
}

// Rows are sorted inside their group: a heading stays with its rows.
function sortBy(table, column, falling) {
  for (const body of table.tBodies) {
    const heading = body.querySelector("tr.group");
    const rows = [...body.rows].filter((row) => row !== heading);
    rows.sort((a, b) => {
      const order = compare(a.cells[column].textContent, b.cells[column].textContent);
      return falling ? -order : order;
    });
    body.append(...rows);
  }
}

function sortable(table) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = make("button", "", { type: "button", title: "sort by this column" });
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const falling = heading.getAttribute("aria-sort") === "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
      sortBy(table, column, falling);
    });
  });
}

function filterable(box, table) {
  const label = make("label", "Show rows that contain ", { class: "filter" });
  const input = make("input", "", { type: "search" });
  label.append(input);
  box.before(label);
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase().split(/\s+/);
    for (const body of table.tBodies) {
      let shown = 0;
      for (const row of body.rows) {
        if (row.classList.contains("group")) continue;
        const text = row.textContent.toLowerCase();
        row.hidden = !wanted.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      body.hidden = shown === 0;
    }
  });
}

for (const box of document.querySelectorAll(".box")) {
  const table = box.querySelector("table.data");
  if (!table) continue;
  const rows = table.querySelectorAll("tbody tr:not(.group)").length;
  if (rows > 2) sortable(table);
  if (rows > 12) filterable(box, table);
}

// One heat map at a time, chosen by its kernel; all of them stay in the list below.
for (const all of document.querySelectorAll(".heat-maps")) {
  const label = make("label", "Kernel ", { class: "filter" });
  const select = document.createElement("select");
  const stage = make("div", "", { class: "box stage" });
  const maps = [];
  for (const family of all.querySelectorAll("details")) {
    const group = document.createElement("optgroup");
    group.label = family.querySelector("summary").firstChild.textContent.trim();
    for (const table of family.querySelectorAll("table")) {
      group.append(new Option(table.querySelector(".kernel").textContent, String(maps.length)));
      maps.push(table);
    }
    select.append(group);
  }
  const show = () => stage.replaceChildren(maps[Number(select.value)].cloneNode(true));
  select.addEventListener("change", show);
  label.append(select);
  all.parentElement.before(label, stage);
  show();
}

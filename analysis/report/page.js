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
  const there = table.querySelectorAll("tbody tr:not(.group)").length;
  const count = make("span", ` ${there} rows`, { class: "count" });
  label.append(input, count);
  box.before(label);
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase().split(/\s+/);
    let all = 0;
    for (const body of table.tBodies) {
      let shown = 0;
      for (const row of body.rows) {
        if (row.classList.contains("group")) continue;
        const text = row.textContent.toLowerCase();
        row.hidden = !wanted.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      body.hidden = shown === 0;
      all += shown;
    }
    count.textContent = all < there ? ` ${all} of ${there} rows` : ` ${there} rows`;
    box.dispatchEvent(new Event("scroll"));
  });
}

// A table as CSV: the words of its cells, numbers without thousands marks, groups as a column.
function csv(table) {
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  const plain = (cell) => {
    const text = cell.textContent.trim().replace(/\s+/g, " ");
    if (!cell.classList.contains("n")) return text;
    return /^[−-]?[\d,]+(\.\d+)?(e[−-]?\d+)?$/.test(text)
      ? text.replace(/,/g, "").replace(/−/g, "-") : text.replace("–", "");
  };
  const grouped = table.querySelector("tr.group") !== null;
  const lines = [[...(grouped ? ["group"] : []), ...[...table.tHead.rows[0].cells].map(
    (cell) => cell.textContent.trim().replace(/\s+/g, " "))]];
  for (const body of table.tBodies) {
    const heading = body.querySelector("tr.group");
    for (const row of body.rows) {
      if (row === heading) continue;
      const first = grouped ? [heading ? heading.textContent.trim() : ""] : [];
      lines.push([...first, ...[...row.cells].map(plain)]);
    }
  }
  return lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n";
}

// The link is made when it is used, so that the page does not hold every table twice.
function downloadable(table) {
  const name = table.caption.firstChild.textContent.trim();
  const link = make("a", "CSV", { class: "csv", download: `${name}.csv`, href: "#", title: "download as CSV" });
  link.addEventListener("click", () => {
    link.href = `data:text/csv;charset=utf-8,${encodeURIComponent(csv(table))}`;
  });
  table.caption.append(" ", link);
}

// Marks the edges of a box beyond which there is more, above its content.
function marked(box) {
  const frame = make("div", "", { class: "frame" });
  box.replaceWith(frame);
  frame.append(box);
  const mark = () => {
    frame.style.setProperty("--bar-right", `${box.offsetWidth - box.clientWidth}px`);
    frame.style.setProperty("--bar-below", `${box.offsetHeight - box.clientHeight}px`);
    const right = box.scrollWidth - box.clientWidth - box.scrollLeft;
    const below = box.scrollHeight - box.clientHeight - box.scrollTop;
    frame.classList.toggle("more-left", box.scrollLeft > 1);
    frame.classList.toggle("more-right", right > 1);
    frame.classList.toggle("more-below", below > 1);
  };
  box.addEventListener("scroll", mark, { passive: true });
  new ResizeObserver(mark).observe(box);
}

for (const box of document.querySelectorAll(".box")) {
  const table = box.querySelector("table.data");
  if (!table) continue;
  const rows = table.querySelectorAll("tbody tr:not(.group)").length;
  downloadable(table);
  if (rows > 2) sortable(table);
  if (rows > 12) filterable(box, table);
}

// One heat map at a time, chosen by its kernel; all of them stay in the list below.
for (const all of document.querySelectorAll(".heat-maps")) {
  all.querySelectorAll("table").forEach(downloadable);
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
  const show = () => {
    const map = maps[Number(select.value)].cloneNode(true);
    map.querySelector(".csv").remove();
    downloadable(map);
    stage.replaceChildren(map);
    stage.dispatchEvent(new Event("scroll"));
  };
  select.addEventListener("change", show);
  label.append(select);
  all.parentElement.before(label, stage);
  show();
}

document.querySelectorAll(".box, .panels.wide").forEach(marked);

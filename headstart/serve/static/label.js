// One row at a time. A label is shown as given only after the server has it on its disk.
import { $, ask, complain, part, shown } from "/static/studio.js";

const page = $("label");
const place = `/api/labellings/${page.dataset.id}`;
const AHEAD = 3; // rows that are here before they are needed
const REFIT = 10; // labels between two fits

// The name of this tab, which a reload keeps: undo takes back what this tab said.
const store = `headstart-label-${page.dataset.id}`;
const kept = JSON.parse(sessionStorage.getItem(store) || "null") || { by: `tab-${[...crypto.getRandomValues(new Uint8Array(6))].map((b) => b.toString(16).padStart(2, "0")).join("")}`, done: [] };
const keep = () => sessionStorage.setItem(store, JSON.stringify(kept));
keep();

let queue = []; // rows to label; the first is shown
let busy = false;
let over = false; // nothing is left to label

function show() {
  const row = queue[0];
  $("text").textContent = row ? shown(row.text) : over ? "Every row is labelled or skipped." : "…";
  for (const button of document.querySelectorAll("button.choice")) button.disabled = !row;
  $("skip").disabled = !row;
  $("undo").disabled = !kept.done.length;
  page.dataset.row = row ? row.row : "";
}

let filling = false; // apart from answers, which never wait for it while there is a row to show
async function fill() {
  if (filling || queue.length >= AHEAD) return;
  filling = true;
  try {
    const { rows } = await ask("POST", `${place}/next`, { by: kept.by, count: AHEAD, holding: queue.map((row) => row.row) });
    queue.push(...rows.filter((row) => !queue.some((other) => other.row === row.row)));
    over = !queue.length;
  } catch (error) { complain(error); } finally { filling = false; }
  show();
}

async function answer(event, row, label) {
  const counts = await ask("POST", `${place}/answers`, { by: kept.by, row: row.row, event, ...(label === undefined ? {} : { label }) });
  $("count").textContent = counts.labelled.toLocaleString("en");
  $("skipped").textContent = counts.skipped;
  return counts;
}

async function guarded(work) {
  if (busy) return;
  busy = true;
  try { complain(null); await work(); } catch (error) { complain(error); } finally { busy = false; show(); }
}

const give = (label) => guarded(async () => {
  const row = queue[0];
  if (!row) return;
  const counts = await answer(label === undefined ? "skip" : "label", row, label);
  queue.shift();
  kept.done.push(row);
  kept.done.splice(0, kept.done.length - 200);
  keep();
  $("said").textContent = label === undefined ? "Skipped." : `${shown(label)}.`;
  if (label !== undefined && counts.labelled % REFIT === 0) { queue = queue.slice(0, 1); status(); } // the rest was chosen by the classifier before
  fill();
});

const undo = () => guarded(async () => {
  const row = kept.done[kept.done.length - 1];
  if (!row) return;
  await answer("undo", row);
  kept.done.pop();
  keep();
  queue = [row, ...queue.filter((other) => other.row !== row.row)];
  $("said").textContent = "Taken back.";
});

async function status() {
  try {
    const found = await ask("GET", place);
    $("advice").textContent = shown(found.advice);
    $("advice").dataset.stop = found.stop;
    $("plot").hidden = !found.curve.length;
    if (found.curve.length) draw(found);
  } catch (error) { complain(error); }
}

function draw({ curve, expected, advice }) {
  const svg = $("curve"), last = curve[curve.length - 1];
  while (svg.lastChild && svg.lastChild.nodeName !== "title") svg.removeChild(svg.lastChild);
  const ahead = [{ labels: last.labels, points: 0, low: 0, high: 0 }, ...expected];
  const most = ahead[ahead.length - 1].labels + (ahead.length > 1 ? last.labels : 0);
  const low = Math.max(0, Math.floor(Math.min(...curve.map((p) => p.low)) * 10) / 10);
  const x = (labels) => 44 + (580 * labels) / most;
  const y = (accuracy) => 228 - (210 * (Math.min(1, accuracy) - low)) / (1 - low);
  const line = (points) => points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ");
  svg.append(part("line", { x1: 44, y1: 228, x2: 630, y2: 228, class: "axis-line" }), part("line", { x1: 44, y1: 12, x2: 44, y2: 228, class: "axis-line" }));
  for (const value of [low, (low + 1) / 2, 1]) svg.append(part("text", { x: 40, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(2)));
  for (const value of [0, last.labels, most]) svg.append(part("text", { x: x(value), y: 246, "text-anchor": value === most ? "end" : "middle" }, `${value}`));
  svg.append(part("polygon", { points: `${line(curve.map((p) => [p.labels, p.high]))} ${line([...curve].reverse().map((p) => [p.labels, p.low]))}`, class: "interval" }));
  svg.append(part("polyline", { points: line(curve.map((p) => [p.labels, p.accuracy])), class: "valid" }));
  for (const p of curve) svg.append(part("circle", { cx: x(p.labels).toFixed(1), cy: y(p.accuracy).toFixed(1), r: 2.5, fill: "#0072b2" }));
  const reached = (p, key) => [p.labels + (p.points || p.high ? last.labels : 0), last.accuracy + p[key] / 100];
  if (expected.length) {
    svg.append(part("polyline", { points: line(ahead.map((p, i) => (i ? reached(p, "points") : [last.labels, last.accuracy]))), class: "expected" }));
    for (const p of expected) svg.append(part("line", { x1: x(p.labels + last.labels), x2: x(p.labels + last.labels), y1: y(last.accuracy + p.low / 100), y2: y(last.accuracy + p.high / 100), class: "whisker" }));
  }
  svg.querySelector("title").textContent = `Accuracy ${last.accuracy.toFixed(3)} (${last.low.toFixed(3)} to ${last.high.toFixed(3)}) with ${last.labels} labels. ${shown(advice)}`;
}

if (!("readOnly" in page.dataset)) {
  for (const button of document.querySelectorAll("button.choice")) button.addEventListener("click", () => give(button.dataset.label));
  $("skip").addEventListener("click", () => give(undefined));
  $("undo").addEventListener("click", undo);
  document.addEventListener("keydown", (event) => {
    if (!$("keys").checked || event.ctrlKey || event.altKey || event.metaKey || event.repeat || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox") return;
    const button = [...document.querySelectorAll("button[data-key]")].find((b) => b.dataset.key === event.key.toLowerCase());
    if (button && !button.disabled) { event.preventDefault(); button.click(); }
  });
  $("study").addEventListener("click", () => guarded(async () => {
    const name = document.querySelector("h1").textContent.replace(/[^A-Za-z0-9]+/g, "-");
    const tables = [];
    for (const part of ["chosen", "random"]) tables.push([part, await ask("GET", `${place}/table?part=${part}`)]);  // both, before either is kept
    const [data, test] = await Promise.all(tables.map(([part, table]) => ask("PUT", `/api/files?name=${name}-${part}.csv`, table)));
    location.assign(`/new#${new URLSearchParams({ data: data.id, test: test.id })}`);
  }));
  fill();
}
status();

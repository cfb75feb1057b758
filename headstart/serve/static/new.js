import { $, ask, complain, make, shown, time, uploaded } from "/static/studio.js";

let atHand = Promise.resolve([]);  // the bases
let file = null;
let task = null;  // as the labels look
let suggested = null;  // the base that was ticked here, and not by a person

function options(select, names, chosen, none) {
  select.replaceChildren(...(none ? [make("option", none, { value: "" })] : []), ...names.map((name) => make("option", shown(name), { value: name })));
  if (chosen) select.value = chosen;
}

// What the command line calls by a flag is a box on this page.
function named(text) {
  for (const [flag, box] of [["--skip-blank", "skip-blank"], ["--clean-labels", "clean-labels"]]) text = text.replace(flag, `“${$(box).closest("label").textContent.trim()}” below`);
  return text;
}

async function known() {
  const files = await ask("GET", "/api/files");
  $("known-part").hidden = !files.length;
  $("known").replaceChildren(make("option", "choose", { value: "" }), ...files.map((f) => make("option", shown(f.name), { value: f.id })));
  $("known").value = file || "";
  $("remove").disabled = !file;
  for (const [name, none] of [["corpus", "no"], ["test", "a part of the file"]]) {
    const chosen = $(name).value;
    $(name).replaceChildren(make("option", none, { value: "" }), ...files.map((f) => make("option", shown(f.name), { value: f.id })));
    $(name).value = chosen;
  }
}

async function bases() {
  const found = await ask("GET", "/api/bases");
  $("bases").replaceChildren(...found.map((base) => {
    const label = make("label");
    const box = make("input", "", { type: "checkbox", name: "base", value: base.id });
    label.append(box, ` ${shown(base.name)} (${base.kind}) `);
    return label;
  }));
  return found;
}

// A base to begin with, where no other is chosen: a pretrained one if there is any, or a shape to train from scratch. And no arm that has nothing to start from.
function suggest(found) {
  const box = (base) => document.querySelector(`input[name=base][value="${base.id}"]`);
  const chosen = () => found.filter((base) => box(base).checked);
  const best = found.find((base) => base.name === "minilm") || found.find((base) => base.kind === "pack") || found.find((base) => base.kind === "run");
  if (chosen().every((base) => base === suggested)) {
    if (suggested) box(suggested).checked = false;
    suggested = best || found.find((base) => base.name === $("task").selectedOptions[0].dataset.preset);
    box(suggested).checked = true;
  }
  $("none-at-hand").hidden = Boolean(best);
  if ($("corpus").value || chosen().some((base) => base.kind !== "preset")) return;
  for (const arm of document.querySelectorAll("input[name=arm][data-pretrained]")) arm.checked = false;
}

// Where no column has a usual name, a person chooses; what does not rest on the columns waits.
async function choose(error, columns) {
  const names = error.code === "DATA_COLUMNS" && !columns.text_column ? await ask("GET", `/api/files/${file}/columns`) : [];
  if (names.length < 2) throw error;
  options($("text-column"), names, "", "choose");
  options($("label-column"), names, columns.label_column || "", "found by its name");
  $("counts").textContent = "";
  $("warnings").hidden = $("preview").hidden = $("task-part").hidden = true;
  $("check-part").hidden = false;
  $("plan-part").hidden = true;
  $("text-column").focus();
  throw new Error("Which column has the texts? None has a usual name, such as text, sentence or review. Choose it below.");
}

async function check(columns = {}) {
  const query = new URLSearchParams(columns).toString();
  let found;
  try { found = await ask("GET", `/api/files/${file}/check${query ? `?${query}` : ""}`); } catch (error) { return await choose(error, columns); }
  $("preview").hidden = $("task-part").hidden = false;
  options($("text-column"), found.columns, found.text_column);
  options($("label-column"), found.columns, found.label_column, found.label_column ? "" : "none");
  const part = found.check.splits.train;
  const labels = Object.entries(part.labels).slice(0, 12).map(([name, count]) => `${shown(name) || "(none)"} ${count}`);
  $("counts").textContent = `${part.rows} rows${labels.length ? "; " : ""}${labels.join(", ")}.`;
  $("warnings").replaceChildren(...[...found.notes, ...found.check.warnings].map((text) => make("li", shown(named(text)))));
  $("warnings").hidden = !$("warnings").children.length;
  task = columns.task ? task : found.task;
  $("task").value = found.task;
  for (const box of document.querySelectorAll("input[name=arm]")) {
    box.checked = found.arms.includes(box.value);
    (box.checked ? $("arms") : $("other-arms")).append(box.closest("label"));
  }
  $("rows").replaceChildren(...found.rows.map((row) => {
    const line = make("tr");
    line.append(make("td", shown(row.text), { class: "text", dir: "auto" }), make("td", shown(row.label), { "data-name": "label" }));
    return line;
  }));
  suggest(await atHand);
  $("check-part").hidden = $("plan-part").hidden = false;
}

async function guarded(work) {
  try { complain(null); await work(); } catch (error) { error.message = named(error.message); complain(error); }
}

function body() {
  const all = (name) => [...document.querySelectorAll(`input[name=${name}]:checked`)].map((box) => box.value);
  const job = { verb: "compare", data: file, seeds: Number($("seeds").value), arms: all("arm"), bases: all("base") };
  const labels = $("labels").value.split(",").map((word) => word.trim()).filter(Boolean);
  job.labels = labels.map((word) => (word === "all" ? word : Number(word)));
  for (const [name, place] of [["text_column", "text-column"], ["label_column", "label-column"], ["name", "name"]]) if ($(place).value) job[name] = $(place).value;
  for (const [name, place] of [["epochs", "epochs"], ["least_steps", "least-steps"]]) if ($(place).value) job[name] = Number($(place).value);
  if ($("task").value !== task) job.task = $("task").value;
  if ($("test").value) job.test = $("test").value;
  if ($("corpus").value) job.corpus = [$("corpus").value];
  for (const [name, place] of [["skip_blank", "skip-blank"], ["clean_labels", "clean-labels"]]) if ($(place).checked) job[name] = true;
  return job;
}

if ($("new")) {
  atHand = bases();
  $("file").addEventListener("change", () => guarded(async () => {
    const made = await uploaded($("file"), $("upload"));
    if (!made) return;
    file = made.id;
    await known();
    await check();
  }));
  if ($("file").files.length) $("file").dispatchEvent(new Event("change"));  // chosen before this script was there
  $("known").addEventListener("change", () => guarded(async () => { file = $("known").value || null; $("remove").disabled = !file; if (file) await check(); }));
  $("remove").addEventListener("click", () => guarded(async () => {
    if (!confirm(`Remove ${$("known").selectedOptions[0].textContent} from this server?`)) return;
    await ask("DELETE", `/api/files/${file}`);
    file = null;
    $("check-part").hidden = $("plan-part").hidden = true;
    $("file").value = $("upload").textContent = "";
    await known();
  }));
  for (const name of ["text-column", "label-column", "task"]) $(name).addEventListener("change", () => guarded(() => {
    const columns = $("text-column").value ? { text_column: $("text-column").value } : {};
    if (name === "task") columns.task = $("task").value;
    if ($("label-column").value) columns.label_column = $("label-column").value;
    return check(columns);
  }));
  $("estimate").addEventListener("click", () => guarded(async () => {
    $("estimate").disabled = true;
    $("cost").textContent = "Timing a few steps ...";
    try {
      const { cost, command } = await ask("POST", "/api/plans", body());
      $("cost").textContent = `${cost.cells} cells, about ${time(cost.seconds)}, ${(cost.memory_bytes / 1e9).toFixed(1)} GB of memory.`;
      $("command").textContent = command;
      $("command").hidden = false;
    } catch (error) { $("cost").textContent = ""; throw error; } finally { $("estimate").disabled = false; }
  }));
  $("new").addEventListener("submit", (event) => { event.preventDefault(); guarded(async () => {
    $("start").disabled = true;
    try { location.assign(`/jobs/${(await ask("POST", "/api/jobs", body())).id}`); } finally { $("start").disabled = false; }
  }); });
  guarded(async () => {
    await known();
    await atHand;
    const given = new URLSearchParams(location.hash.slice(1));  // files that another page has brought
    if (!given.get("data") || file) return;
    file = $("known").value = given.get("data");
    $("remove").disabled = !file;
    $("test").value = given.get("test") || "";
    await check();
  });
}

import { $, ask, complain, make, shown, uploaded } from "/static/studio.js";

let file = null;

function chosen(id) { file = id || null; $("start").disabled = !file; }

async function guarded(work) {
  try { complain(null); await work(); } catch (error) { complain(error); }
}

async function known() {
  const files = await ask("GET", "/api/files");
  $("known-part").hidden = !files.length;
  $("known").replaceChildren(make("option", "choose", { value: "" }), ...files.map((f) => make("option", shown(f.name), { value: f.id })));
}

async function bases() {
  const found = (await ask("GET", "/api/bases")).filter((base) => base.kind !== "preset");
  $("base").append(...found.map((base) => make("option", shown(base.name), { value: base.id })));
}

if ($("start-form")) {
  $("file").addEventListener("change", () => guarded(async () => {
    const made = await uploaded($("file"), $("upload"));
    if (made) chosen(made.id);
  }));
  $("known").addEventListener("change", () => chosen($("known").value));
  $("start-form").addEventListener("submit", (event) => { event.preventDefault(); guarded(async () => {
    const body = { data: file, base: $("base").value, labels: $("labels").value.split(",").map((name) => name.trim()).filter(Boolean) };
    for (const [name, place] of [["text_column", "text-column"], ["label_column", "label-column"], ["name", "name"]]) if ($(place).value) body[name] = $(place).value;
    $("start").disabled = true;
    try { location.assign(`/jobs/${(await ask("POST", "/api/labellings", body)).id}`); } finally { $("start").disabled = false; }
  }); });
  if ($("file").files.length) $("file").dispatchEvent(new Event("change"));  // chosen before this script was there
  guarded(async () => { await known(); await bases(); });
}

import { $, ask, complain, draw, make, shown, take, time } from "/static/studio.js";

const page = $("job");
const id = page.dataset.id;
const svg = $("curve");
const MARKS = { waiting: "○", running: "◐", finished: "●", failed: "✕" };
let lines = { train: [], valid: [] };
let of = null;
let due = false;

function cells(progress) {
  $("cells-part").hidden = !progress || !progress.total;
  if (!progress || !progress.total) return;
  const columns = [...new Set(progress.cells.map((c) => (c.trial ? "rate" : `${c.labels === null ? "none" : c.labels || "all"}`)))];
  const arms = [...new Set(progress.cells.map((c) => c.arm))];
  const head = make("tr");
  head.append(make("th", "arm", { scope: "col" }), ...columns.map((c) => make("th", c === "rate" ? "choosing rates" : `${c} labels`, { scope: "col" })));
  $("cells").tHead.replaceChildren(head);
  $("cells").tBodies[0].replaceChildren(...arms.map((arm) => {
    const row = make("tr");
    row.append(make("th", shown(arm), { scope: "row" }));
    for (const column of columns) {
      const place = make("td");
      for (const cell of progress.cells.filter((c) => c.arm === arm && (c.trial ? "rate" : `${c.labels === null ? "none" : c.labels || "all"}`) === column)) {
        const mark = make("span", MARKS[cell.state], { class: cell.state, role: "img", "aria-label": `seed ${cell.seed}: ${cell.state}`, title: `${cell.name}: ${cell.state}` });
        place.append(mark, " ");
      }
      row.append(place);
    }
    return row;
  }));
}

function show(job) {
  const running = job.state === "running" || job.state === "starting";
  const progress = job.progress;
  $("state").textContent = progress && running ? `${job.state}: ${progress.stage}` : job.state;
  $("left").textContent = "";
  if (progress && progress.total) {
    $("bar").value = progress.finished / progress.total;
    $("left").textContent = `, ${progress.finished} of ${progress.total} cells` + (running && progress.seconds_left !== null ? `, about ${time(progress.seconds_left)} left` : "");
  }
  else if (running) $("bar").removeAttribute("value");  // at work, and nobody knows how far
  else $("bar").value = 0;
  if (job.state === "finished") $("bar").value = 1;
  if ($("stop")) $("stop").hidden = !running;
  if ($("resume")) $("resume").hidden = running || job.state === "finished";
  $("result").hidden = job.state !== "finished";
  complain(job.error);
  cells(progress);
  $("notes-part").hidden = !job.notes.length;
  $("notes").replaceChildren(...job.notes.map((note) => make("li", note)));
}

function record(event) {
  const found = JSON.parse(event.data);
  const name = event.lastEventId.includes(":") ? event.lastEventId.split(":")[0] : "";
  if (name !== of) { of = name; lines = { train: [], valid: [] }; $("curve-of").textContent = shown(name); }
  take(lines, found);
  $("curve-part").hidden = !lines.train.length && !lines.valid.length;
  if (found.split === "sample") {
    $("samples-part").hidden = false;
    $("samples").prepend(make("li", `step ${found.step}: ${shown(String(found.text ?? found.sample ?? ""))}`));
    while ($("samples").children.length > 10) $("samples").lastChild.remove();
  }
  if (!due) { due = true; requestAnimationFrame(() => { due = false; draw(svg, lines); }); }
}

let events;
function follow() {
  events = new EventSource(`/api/jobs/${id}/events`);
  lines = { train: [], valid: [] };
  events.addEventListener("record", record);
  events.addEventListener("job", (event) => show(JSON.parse(event.data)));
  events.addEventListener("end", () => events.close());
}
for (const what of ["stop", "resume"]) {
  const button = $(what);
  if (button) button.addEventListener("click", async () => {
    button.disabled = true;
    try { show(await ask("POST", `/api/jobs/${id}/${what}`, {})); if (what === "resume") { events.close(); follow(); } } catch (error) { complain(error); }
    button.disabled = false;
  });
}
follow();

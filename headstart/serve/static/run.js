import { $, draw, take } from "/static/studio.js";

const svg = $("curve");
const lines = { train: [], valid: [] };
const events = new EventSource(`/api/jobs/${svg.dataset.id}/events`);
events.addEventListener("record", (event) => take(lines, JSON.parse(event.data)));
events.addEventListener("job", () => draw(svg, lines));
events.addEventListener("end", () => { draw(svg, lines); events.close(); });

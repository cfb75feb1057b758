// What the pages share. Text of others is only ever set as text.
export const $ = (id) => document.getElementById(id);

export function make(tag, text = "", attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

export function shown(text) { // control and direction characters, visible
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff]/g,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

export async function ask(method, path, body, more = {}) {
  const options = { method, credentials: "same-origin", headers: {}, ...more };
  if (body !== undefined) {
    options.headers["Content-Type"] = body instanceof Blob ? "application/octet-stream" : "application/json";
    options.body = body instanceof Blob ? body : JSON.stringify(body);
  }
  const answer = await fetch(path, options);
  const json = (answer.headers.get("content-type") || "").startsWith("application/json");
  const named = /filename="([^"]*)"/.exec(answer.headers.get("content-disposition") || "");
  const found = answer.status === 204 ? null : json ? await answer.json() : new File([await answer.blob()], named ? named[1] : "file");
  if (!answer.ok) throw Object.assign(new Error(found && found.error ? found.error.message : `The server answered ${answer.status}.`), { code: found && found.error ? found.error.code : "" });
  return found;
}

export async function uploaded(input, place) {  // the file that was chosen, kept by the server; null: none was
  const given = input.files[0];
  if (!given) return null;
  place.textContent = `Uploading ${shown(given.name)} ...`;
  try {
    const made = await ask("PUT", `/api/files?name=${encodeURIComponent(given.name)}`, given);
    place.textContent = `${shown(made.name)}: ${made.bytes} bytes.`;
    return made;
  } catch (error) { place.textContent = ""; throw error; }
}

export function complain(error) {
  const place = $("error");
  place.textContent = error ? shown(error.message) : "";
  place.hidden = !error;
  if (error) place.scrollIntoView({ block: "nearest" });  // whoever pressed a button far below would not see it
}

export function time(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

const SVG = "http://www.w3.org/2000/svg";
export function part(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// The loss by step; `lines` has the points [step, loss] of train and valid.
export function draw(svg, lines) {
  const all = [...lines.train, ...lines.valid];
  while (svg.lastChild && svg.lastChild.nodeName !== "title") svg.removeChild(svg.lastChild);
  if (!all.length) return;
  const steps = Math.max(...all.map((p) => p[0]), 1);
  const low = Math.min(...all.map((p) => p[1]));
  const high = Math.max(...all.map((p) => p[1]), low + 1e-6);
  const x = (step) => 44 + (580 * step) / steps;
  const y = (loss) => 228 - (210 * (loss - low)) / (high - low);
  svg.append(part("line", { x1: 44, y1: 228, x2: 630, y2: 228, class: "axis-line" }), part("line", { x1: 44, y1: 12, x2: 44, y2: 228, class: "axis-line" }));
  for (const value of [low, (low + high) / 2, high]) svg.append(part("text", { x: 40, y: y(value) + 4, "text-anchor": "end" }, value.toPrecision(3)));
  for (const value of [0, steps]) svg.append(part("text", { x: x(value), y: 246, "text-anchor": value ? "end" : "start" }, `${value}`));
  svg.append(part("text", { x: 337, y: 246, "text-anchor": "middle" }, "step"));
  for (const name of ["train", "valid"]) {
    const points = lines[name].map(([step, loss]) => `${x(step).toFixed(1)},${y(loss).toFixed(1)}`).join(" ");
    svg.append(part("polyline", { points, class: name }));
    if (name === "valid") for (const [step, loss] of lines.valid) svg.append(part("circle", { cx: x(step).toFixed(1), cy: y(loss).toFixed(1), r: 2.5, fill: "#0072b2" }));
  }
  const last = (points) => (points.length ? points[points.length - 1][1].toPrecision(4) : "none");
  svg.querySelector("title").textContent = `Loss by step, up to step ${steps}: training ${last(lines.train)}, validation ${last(lines.valid)}.`;
}

export function take(lines, record) {
  if ((record.split === "train" || record.split === "valid") && typeof record.loss === "number") lines[record.split].push([record.step, record.loss]);
}

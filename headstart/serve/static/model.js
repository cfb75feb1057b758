import { $, ask, complain, make, shown, uploaded } from "/static/studio.js";

const page = $("model");
const id = page.dataset.id;

function tagged(scores) {  // words, each with the tag it was given
  const words = make("p", "", { class: "tagged" });
  for (const { label: tag, score, word } of scores) {
    const one = make("span", "", { class: tag === "O" ? "word" : "word named", title: `${(100 * score).toFixed(1)} %` });
    one.append(make("bdi", shown(word)), make("small", shown(tag)));
    words.append(one, " ");
  }
  return words;
}

async function label(model, place, texts) {
  if (!model || !texts.every((text) => text.trim())) { place.replaceChildren(); return; }
  const [scores] = await ask("POST", "/predict", { inputs: [texts], model });
  if (scores.length && "word" in scores[0]) { place.replaceChildren(tagged(scores)); return; }
  const bars = make("div", "", { class: "bars" });
  for (const { label: name, score } of scores) {
    const named = make("bdi", shown(name));
    if (scores.length === 1 && name === "value") { bars.append(named, make("span", score.toPrecision(4))); continue; }
    bars.append(named, make("meter", "", { min: 0, max: 1, value: score, "aria-label": shown(name) }), make("span", `${(100 * score).toFixed(1)} %`));
  }
  place.replaceChildren(bars);
}

if (page.dataset.job === "finetune") {
  let timer;
  const other = $("other");
  const boxes = [...document.querySelectorAll("section.first textarea")];  // one for each text of a row
  const refresh = async () => {
    const texts = boxes.map((box) => box.value);
    try { complain(null); await label(id, $("labels"), texts); await label(other && other.value, $("labels-other"), texts); } catch (error) { complain(error); }
  };
  for (const box of boxes) box.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(refresh, 250); });
  if (other) other.addEventListener("change", refresh);
  if (boxes.every((box) => box.value.trim())) refresh();  // typed before this script was there
}

function table(logprobs) {
  const head = make("tr");
  head.append(make("th", "token", { scope: "col" }), make("th", "probability", { scope: "col", class: "n" }), make("th", "most probable", { scope: "col" }));
  $("token-table").tHead.replaceChildren(head);
  $("token-table").tBodies[0].replaceChildren(...logprobs.tokens.map((token, i) => {
    const row = make("tr");
    const top = Object.entries(logprobs.top_logprobs[i] || {}).map(([word, value]) => `${shown(word).trim() || "␣"} ${Math.exp(value).toFixed(2)}`);
    row.append(make("th", shown(token).trim() || "␣", { scope: "row" }), make("td", Math.exp(logprobs.token_logprobs[i]).toFixed(4), { class: "n" }), make("td", top.join("   ")));
    return row;
  }));
  $("token-table").hidden = !logprobs.tokens.length;
}

function submitted(form, work) {
  $(form).addEventListener("submit", async (event) => {
    event.preventDefault();
    try { complain(null); await work(); } catch (error) { complain(error); }
  });
}

if ($("whole")) {
  submitted("whole", async () => {
    $("labelled").hidden = $("label-file").disabled = true;
    try {
      const made = await uploaded($("file"), $("upload"));
      if (!made) return;
      $("upload").textContent = `Labelling ${shown(made.name)} ...`;
      const body = { data: made.id, ...($("text-column").value ? { text_column: $("text-column").value } : {}) };
      const labelled = await ask("POST", `/api/models/${id}/table`, body);
      const link = make("a", "Download the labelled file", { href: URL.createObjectURL(labelled), download: labelled.name, class: "button" });
      $("upload").textContent = "Every row is labelled.";
      $("labelled").replaceChildren(link);
      $("labelled").hidden = false;
    } catch (error) { $("upload").textContent = ""; throw error; } finally { $("label-file").disabled = false; }
  });
}

if (page.dataset.job === "pretrain") {
  submitted("generate", async () => {
    const number = (name) => Number($(name).value);
    const body = { model: id, prompt: $("text").value, max_tokens: number("tokens"), temperature: number("temperature"), top_k: number("top-k"), seed: number("seed"), logprobs: 6 };
    const { choices } = await ask("POST", "/v1/completions", body);
    $("generated").textContent = shown($("text").value + choices[0].text);
    $("generated-notes").textContent = choices[0].finish_reason === "stop" ? "The model ended the text here." : "The text was cut off at this number of tokens.";
    table(choices[0].logprobs);
  });
}

if (page.dataset.job === "translate") {
  submitted("translate", async () => {
    const [found] = await ask("POST", "/translate", { model: id, inputs: $("text").value, beams: Number($("beams").value) });
    $("translated").textContent = shown(found.translation);
    const others = found.n_best.slice(1).map((other) => shown(other.translation));
    $("translated-notes").textContent = [
      `Log-probability per token ${found.score.toFixed(3)}.`,
      found.finished ? "" : "The translation was cut off.",
      found.unknown.length ? `Never seen in training: ${found.unknown.map(shown).join(", ")}.` : "",
      others.length ? `Next best: ${others.join("; ")}.` : "",
    ].filter(Boolean).join(" ");
  });
}

if (page.dataset.job === "match") {
  submitted("search", async () => {
    const found = await ask("POST", "/search", { model: id, query: $("text").value, top: 12 });
    $("searched").textContent = `The ${found.found.length} best of ${found.images} images.`;
    $("images").replaceChildren(...found.found.map((image) => {
      const one = make("li");
      one.append(make("img", "", { src: image.thumbnail, alt: shown(image.own_caption || image.file) }), make("bdi", shown(image.own_caption || image.file)), make("small", image.score.toFixed(3)));
      return one;
    }));
  });
}

// What the page shows: labels as one types, or text that goes on.

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const at = (id) => document.getElementById(id);
const made = (tag, text, attributes = {}) => {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};
const percent = (p) => `${(100 * p).toFixed(1)} %`;
const pause = () => new Promise((go) => setTimeout(go));

const described = read("model"), tokenizer = new Tokenizer(described.tokenizer);
const model = new Model(described.model, unpack(at("weights").textContent, described.tensors, described.bits));

// A text as the model reads it: a causal one stops at the last token, a bidirectional one sees the end.
function row(text) {
  const ids = [tokenizer.start, ...tokenizer.encode(text)];
  if (model.causal) return ids.slice(0, model.context);
  return ids.length < model.context ? [...ids, tokenizer.end] : [...ids.slice(0, model.context - 1), tokenizer.end];
}
const probabilities = (text) => [...model.probabilities(row(text))];

// The logits of the next token after all of `seen`, with a cache that begins again with the later half when the context is full.
function follower() {
  let cache = null, seen = [];
  return (ids) => {
    seen = [...seen, ...ids];
    if (!cache || cache.length + ids.length > model.context) {
      cache = model.empty();
      ids = seen.length > model.context ? seen.slice(-Math.floor(model.context / 2)) : seen;
    }
    return model.next(ids, cache);
  };
}

function drawn(logits, { temperature, topK, random }) {
  const allowed = logits.map((x, i) => (tokenizer.suppressed.includes(i) ? -Infinity : x));
  if (!temperature) return allowed.indexOf(allowed.reduce((a, b) => Math.max(a, b), -Infinity));
  let scaled = allowed.map((x) => x / temperature);
  if (topK) {
    const least = [...scaled].sort((a, b) => b - a)[Math.min(topK, scaled.length) - 1];
    scaled = scaled.map((x) => (x < least ? -Infinity : x));
  }
  let left = random();
  const shares = softmax(scaled);
  return Math.max(0, shares.findIndex((p) => (left -= p) < 0));
}

function* generated(prompt, tokens, how) {
  const step = follower();
  let ids = [tokenizer.start, ...tokenizer.encode(prompt)];
  for (let i = 0; i < tokens; i++) {
    const logits = step(ids), shares = softmax(logits), id = drawn(logits, how);
    yield { id, probability: shares[id], shares };
    if (id === tokenizer.end) return;
    ids = [id];
  }
}

function seeded(seed) { // mulberry32
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

globalThis.headstart = { tokenizer, model, row, probabilities, generated, follower };

// The text with each word left out in turn: what its absence takes from the probability of the most probable label.
async function effects(text, best, whole, current) {
  const found = [];
  for (const word of text.matchAll(/\S+/gu)) {
    const without = (text.slice(0, word.index) + text.slice(word.index + word[0].length)).replace(/\s+/gu, " ").trim();
    found.push({ word: word[0], effect: whole - probabilities(without)[best] });
    await pause();
    if (!current()) return null;
  }
  return found;
}

function classifier() {
  let turn = 0;
  const bars = described.labels.map((label) => {
    const bar = made("span", "", { class: "bar" }), number = made("output", ""), name = made("span", label, { class: "name" });
    const line = made("div", "", { class: "line" });
    line.append(name, bar, number);
    at("labels").append(line);
    return { bar, number, line };
  });
  async function update() {
    const mine = ++turn, text = at("text").value, found = probabilities(text), best = found.indexOf(Math.max(...found));
    bars.forEach(({ bar, number, line }, i) => {
      bar.style.setProperty("--share", found[i]);
      number.textContent = percent(found[i]);
      line.classList.toggle("best", i === best);
    });
    const cut = tokenizer.encode(text).length + (model.causal ? 1 : 2) - model.context;
    at("note").textContent = cut > 0 ? `Only the first ${model.context} tokens are read.` : "";
    at("words").textContent = "";
    const told = text.trim() && (await effects(text, best, found[best], () => mine === turn));
    if (mine !== turn || !told) return;
    const most = Math.max(0.01, ...told.map(({ effect }) => Math.abs(effect)));
    at("words").append(...told.flatMap(({ word, effect }) => {
      const points = `${effect < 0 ? "\u2212" : "+"}${Math.abs(100 * effect).toFixed(1)}`;
      const span = made("span", word, { class: effect < 0 ? "against" : "for", title: `${points} points` });
      span.append(made("small", points));
      span.style.setProperty("--share", Math.abs(effect) / most);
      return [span, " "];
    }));
    at("for").textContent = described.labels[best];
  }
  let waiting;
  at("text").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(update, 60); });
  update();
}

function writer() {
  let turn = 0;
  at("go").addEventListener("click", async () => {
    const mine = ++turn, number = (id) => Number(at(id).value), prompt = at("text").value;
    const how = { temperature: number("temperature"), topK: number("top-k"), random: seeded(number("seed")) };
    const ids = [];
    at("written").replaceChildren(made("b", prompt));
    at("next").replaceChildren();
    for (const { id, probability, shares } of generated(prompt, number("tokens"), how)) {
      if (mine !== turn) return;
      ids.push(id);
      const span = made("span", id === tokenizer.end ? " \u25a0" : tokenizer.piece(id), { class: "for", title: percent(probability) });
      span.style.setProperty("--share", probability);
      at("written").append(span);
      const top = [...shares.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, 8);
      at("next").replaceChildren(...top.map((i) => {
        const line = made("div", "", { class: i === id ? "line best" : "line" }), bar = made("span", "", { class: "bar" });
        bar.style.setProperty("--share", shares[i]);
        line.append(made("span", tokenizer.piece(i).replaceAll("\n", "\u21b5"), { class: "name" }), bar, made("output", percent(shares[i])));
        return line;
      }));
      await pause();
    }
  });
  at("stop").addEventListener("click", () => turn++);
}

described.labels.length ? classifier() : writer();

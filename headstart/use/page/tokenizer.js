// Text to token ids and back, as the tokenizers library does it for the kinds that Headstart trains.
"use strict";

const WORDS = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;  // GPT-2
const SPACE = "\u2581"; // what a word carries for the space before it
const PUNCTUATION = /[!-\/:-@\[-`{-~\p{P}]/u;

const isolate = (text, stands) => {
  const parts = [];
  let open = "";
  for (const c of text) {
    if (!stands(c)) { open += c; continue; }
    if (open) parts.push(open);
    parts.push(c);
    open = "";
  }
  return open ? [...parts, open] : parts;
};

const withTheirSpace = (text) => isolate(text, (c) => c === "\n").flatMap((part, i) => {
  let marked = part.replaceAll(" ", SPACE);
  if (i === 0 && !marked.startsWith(SPACE)) marked = SPACE + marked;
  return marked.split(/(?=\u2581)/u);
});

const words = (text) => text.split(/\p{White_Space}+/u).filter(Boolean).flatMap((part) => isolate(part, (c) => PUNCTUATION.test(c)));

class Tokenizer {
  constructor(described) {
    Object.assign(this, described); // kind, lower, spaced, tokens, merges or scores, start, end, unk, suppressed
    this.ids = new Map(this.tokens.map((token, i) => [token, i]));
    this.known = new Map(); // pieces that were cut before
    if (this.kind === "bpe") {
      this.ranks = new Map(this.merges.map((pair, i) => [pair.join(" "), i]));
      const printable = [[33, 126], [161, 172], [174, 255]];
      this.letters = [];
      let next = 256;
      for (let b = 0; b < 256; b++) this.letters.push(String.fromCodePoint(printable.some(([a, z]) => a <= b && b <= z) ? b : next++));
      this.bytes = new Map(this.letters.map((letter, b) => [letter, b]));
    }
    if (this.kind === "unigram") {
      this.longest = Math.max(...this.tokens.map((token) => [...token].length));
      this.unknown = Math.min(...this.scores) - 10;
    }
  }

  encode(text) {
    if (this.lower) text = [...text].map((c) => c.toLowerCase()).join("");
    return this.pieces(text).flatMap((piece) => {
      if (!this.known.has(piece)) this.known.set(piece, this.cut(piece));
      return this.known.get(piece);
    });
  }

  pieces(text) {
    if (!text) return [];
    switch (this.kind) {
      case "char": return [...text];
      case "bpe": return text.match(WORDS) ?? [];
      case "unigram": return withTheirSpace(text).flatMap((part) => part.split(/(<)(?=(?:pad|unk|\/?s|mask)>)/u)).filter(Boolean);
      case "wordpiece": return words(text);
      default: return this.spaced ? withTheirSpace(text).flatMap((part) => isolate(part, (c) => PUNCTUATION.test(c))) : words(text);
    }
  }

  cut(piece) {
    if (this.kind === "bpe") return this.merged([...new TextEncoder().encode(piece)].map((b) => this.letters[b]));
    if (this.kind === "wordpiece") return this.greedy([...piece]);
    if (this.kind === "unigram") return this.best([...piece]);
    return [this.ids.get(piece) ?? this.unk];
  }

  merged(parts) {
    for (;;) {
      let rank = Infinity, place = -1;
      for (let i = 0; i + 1 < parts.length; i++) {
        const r = this.ranks.get(`${parts[i]} ${parts[i + 1]}`);
        if (r !== undefined && r < rank) [rank, place] = [r, i];
      }
      if (place < 0) return parts.map((part) => this.ids.get(part) ?? this.unk);
      parts.splice(place, 2, parts[place] + parts[place + 1]);
    }
  }

  greedy(letters) {
    const found = [];
    if (letters.length > 100) return [this.unk];
    for (let start = 0; start < letters.length;) {
      let end = letters.length, id;
      for (; end > start; end--) {
        id = this.ids.get((start ? "##" : "") + letters.slice(start, end).join(""));
        if (id !== undefined) break;
      }
      if (end === start) return [this.unk];
      found.push(id);
      start = end;
    }
    return found;
  }

  best(letters) { // Viterbi
    const ways = [{ score: 0 }];
    for (let end = 1; end <= letters.length; end++) {
      let best = null;
      for (let start = Math.max(0, end - this.longest); start < end; start++) {
        const id = this.ids.get(letters.slice(start, end).join(""));
        const score = id !== undefined ? this.scores[id] : start === end - 1 ? this.unknown : null;
        if (score === null) continue;
        const total = ways[start].score + score;
        if (!best || total > best.score) best = { score: total, id: id ?? this.unk, start };
      }
      ways.push(best);
    }
    const found = [];
    for (let end = letters.length; end > 0; end = ways[end].start) {
      if (ways[end].id !== this.unk || found[0] !== this.unk) found.unshift(ways[end].id); // unknown letters in a row are one
    }
    return found;
  }

  decode(ids) {
    const parts = ids.filter((i) => !this.special.includes(i)).map((i) => this.tokens[i]);
    if (this.kind === "bpe") return new TextDecoder().decode(new Uint8Array([...parts.join("")].map((c) => this.bytes.get(c) ?? 63)));
    if (this.kind === "char") return parts.join("");
    if (this.spaced) return parts.join("").replace(/^\u2581/u, "").replaceAll(SPACE, " ");
    return parts.map((p, i) => (p.startsWith("##") ? p.slice(2) : i ? ` ${p}` : p)).join("").replace(/ ([.,!?')])/gu, "$1");
  }

  piece(id) {
    if (this.special.includes(id)) return this.tokens[id];
    return this.kind === "bpe" ? this.decode([id]) : this.tokens[id].replaceAll(SPACE, " ");
  }
}

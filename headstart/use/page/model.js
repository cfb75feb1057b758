// The forward pass of Headstart's transformer, for one text. Shapes: T tokens, D width, H heads, K = D / H.

const halves = (() => { // every 16-bit float as a 32-bit one
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    table[bits] = sign * (exponent === 0 ? fraction * 2 ** -24 : exponent === 31 ? (fraction ? NaN : Infinity) : (1 + fraction / 1024) * 2 ** (exponent - 15));
  }
  return table;
})();

function unpack(text, tensors, bits) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const numbers = bits === 16 ? new Uint16Array(bytes.buffer) : new Float32Array(bytes.buffer);
  const found = {};
  let start = 0;
  for (const [name, size] of tensors) {
    const part = numbers.subarray(start, (start += size));
    found[name] = bits === 16 ? Float32Array.from(part, (b) => halves[b]) : part;
  }
  return found;
}

function linear(x, weight, bias, rows) { // (rows, in) times the transpose of (out, in)
  const inside = x.length / rows, out = weight.length / inside, y = new Float32Array(rows * out);
  for (let r = 0; r < rows; r++) {
    const from = r * inside;
    for (let o = 0; o < out; o++) {
      let sum = bias ? bias[o] : 0;
      for (let i = 0, w = o * inside; i < inside; i++) sum += x[from + i] * weight[w + i];
      y[r * out + o] = sum;
    }
  }
  return y;
}

function normed(x, weight, bias, eps) {
  const width = weight.length, y = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += width) {
    let mean = 0, spread = 0;
    for (let i = 0; i < width; i++) mean += x[start + i] / width;
    for (let i = 0; i < width; i++) spread += (x[start + i] - mean) ** 2 / width;
    const scale = 1 / Math.sqrt(spread + eps);
    for (let i = 0; i < width; i++) y[start + i] = (x[start + i] - mean) * scale * weight[i] + bias[i];
  }
  return y;
}

function erf(x) { // Abramowitz and Stegun, 7.1.26: within 1.5e-7
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return Math.sign(x) * (1 - tail * Math.exp(-x * x));
}

const ACTIVATIONS = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
};

function softmax(logits) {
  const top = logits.reduce((a, b) => Math.max(a, b), -Infinity), powers = Float64Array.from(logits, (x) => Math.exp(x - top));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((p) => p / sum);
}

class Model {
  constructor(described, weights) {
    Object.assign(this, described); // layers, heads, width, context, causal, norm, eps, activation, ...
    this.weights = weights;
  }

  of(name) {
    return [this.weights[`${name}.weight`], this.weights[`${name}.bias`]];
  }

  embedded(ids, first) {
    const { width, weights } = this, x = new Float32Array(ids.length * width);
    const tokens = weights["base.tokens.weight"], positions = weights["base.positions.weight"];
    ids.forEach((id, t) => {
      for (let i = 0; i < width; i++) {
        let code = 0;
        if (positions) code = positions[(first + t) * width + i];
        else if (this.positions === "sinusoidal") {
          const angle = (first + t) * Math.exp((i - (i % 2)) * (-Math.log(10000) / width));
          code = i % 2 ? Math.cos(angle) : Math.sin(angle);
        }
        x[t * width + i] = tokens[id * width + i] * this.scale + code;
      }
    });
    return this.embedding_norm ? normed(x, ...this.of("base.embedding_norm"), this.eps) : x;
  }

  // The states of `ids`, (T, D), which follow those that `cache` has read.
  states(ids, cache = this.empty()) {
    const { eps } = this, pre = this.norm === "pre", add = (a, b) => a.map((v, i) => v + b[i]);
    let x = this.embedded(ids, cache.length);
    for (let i = 0; i < this.layers; i++) {
      const layer = `base.layers.${i}`, norm = (v, which) => normed(v, ...this.of(`${layer}.${which}`), eps);
      const attend = (v) => this.attention(v, layer, cache.layers[i], cache.length);
      const feed = (v) => {
        const inner = linear(v, ...this.of(`${layer}.up`), ids.length).map(ACTIVATIONS[this.activation]);
        return linear(inner, ...this.of(`${layer}.down`), ids.length);
      };
      if (pre) {
        x = add(x, attend(norm(x, "attention_norm")));
        x = add(x, feed(norm(x, "ff_norm")));
      } else {
        x = norm(add(x, attend(x)), "attention_norm");
        x = norm(add(x, feed(x)), "ff_norm");
      }
    }
    cache.length += ids.length;
    return pre ? normed(x, ...this.of("base.norm"), eps) : x;
  }

  empty() {
    return { length: 0, layers: Array.from({ length: this.layers }, () => ({ keys: [], values: [] })) };
  }

  attention(x, layer, held, before) {
    const { width, heads } = this, k = width / heads, rows = x.length / width;
    const qkv = linear(x, ...this.of(`${layer}.attention.qkv`), rows), y = new Float32Array(x.length);
    for (let t = 0; t < rows; t++) {
      held.keys.push(qkv.subarray((3 * t + 1) * width, (3 * t + 2) * width));
      held.values.push(qkv.subarray((3 * t + 2) * width, (3 * t + 3) * width));
    }
    for (let t = 0; t < rows; t++) {
      const seen = this.causal ? before + t + 1 : held.keys.length, scores = new Float32Array(seen);
      for (let h = 0; h < heads; h++) {
        const from = h * k, query = 3 * t * width + from;
        for (let s = 0; s < seen; s++) {
          let sum = 0;
          for (let i = 0; i < k; i++) sum += qkv[query + i] * held.keys[s][from + i];
          scores[s] = sum / Math.sqrt(k);
        }
        softmax(scores).forEach((share, s) => {
          for (let i = 0; i < k; i++) y[t * width + from + i] += share * held.values[s][from + i];
        });
      }
    }
    return linear(y, ...this.of(`${layer}.attention.out`), rows);
  }

  // The probability of each label.
  probabilities(ids) {
    const states = this.states(ids), { width } = this, row = (t) => states.subarray(t * width, (t + 1) * width);
    let pooled = row(this.pool === "last" ? ids.length - 1 : 0);
    if (this.pool === "mean") pooled = pooled.map((_, i) => ids.reduce((sum, _, t) => sum + states[t * width + i], 0) / ids.length);
    return softmax(linear(pooled, ...this.of("head.linear"), 1));
  }

  // The logits of the token after `ids`.
  next(ids, cache) {
    const states = this.states(ids, cache), matrix = this.weights["head.weight"] ?? this.weights["base.tokens.weight"];
    return linear(states.subarray(-this.width), matrix, this.weights["head.bias"], 1);
  }
}

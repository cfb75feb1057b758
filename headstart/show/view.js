(() => {
  "use strict";
  // Text from a model is only ever set as text, and colour only ever as a number between 0 and 1.
  const shade = (element, weight) => element.style.setProperty("--w", String(weight));
  const number = (value, digits) => value === null ? "" : value.toFixed(digits);

  function probabilities(view, data) {
    const slider = view.querySelector("input"), output = view.querySelector("output"), told = view.querySelector(".hs-told");
    const at = (element) => data.places[Number(element.dataset.place)][Number(slider.value)];
    const surprise = (p) => -Math.log(Math.max(p, 1e-300));
    const strength = (p) => Math.min(1, surprise(p) / data.strongest);
    let chosen = null;
    const tell = () => {
      for (const element of view.querySelectorAll("[data-place]")) element.classList.toggle("hs-on", element.dataset.place === chosen && element.tagName !== "TD");
      const place = chosen === null ? undefined : data.places[Number(chosen)][Number(slider.value)];
      if (place === undefined) told.textContent = chosen === null ? "" : "nothing stands before this token";
      else told.textContent = (place.p === null ? "" : `probability ${number(place.p, 4)}, surprise ${number(surprise(place.p), 2)} nats, `) + `entropy ${number(place.entropy, 2)}`;
    };
    slider.addEventListener("input", () => {
      output.textContent = String(data.temperatures[Number(slider.value)]);
      for (const token of view.querySelectorAll(".hs-token")) {
        const place = at(token);
        if (place !== undefined && place.p !== null) shade(token, strength(place.p));
      }
      for (const head of view.querySelectorAll("thead [data-place]")) head.querySelector(".hs-n").textContent = number(at(head).p, 2);
      view.querySelectorAll("tbody tr").forEach((row, k) => {
        for (const cell of row.querySelectorAll("[data-place]")) {
          const place = at(cell), entropy = cell.classList.contains("hs-entropy");
          cell.querySelector(".hs-n").textContent = number(entropy ? place.entropy : place.top[k], 2);
          if (!entropy) shade(cell, place.top[k]);
        }
      });
      tell();
    });
    for (const kind of ["pointerover", "focusin"]) {
      view.addEventListener(kind, (event) => {
        const element = event.target.closest("[data-place]");
        if (element) { chosen = element.dataset.place; tell(); }
      });
    }
  }

  function attention(view, data) {
    const layer = view.querySelector(".hs-layer"), head = view.querySelector(".hs-head");
    const output = view.querySelector("output"), title = view.querySelector(".hs-title");
    const rows = [...view.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td")]);
    const map = () => head.value in data ? data[head.value][layer.value - 1] : data.heads[layer.value - 1][head.value - 1];
    const draw = () => {
      const weights = map();
      rows.forEach((cells, t) => cells.forEach((cell, s) => { if (!cell.classList.contains("hs-unseen")) shade(cell, weights[t][s] / 1000); }));
      title.textContent = `layer ${layer.value} of ${layer.options.length}, ` + (head.value in data ? head.value : `head ${head.value}`);
      output.textContent = "";
    };
    layer.addEventListener("change", draw);
    head.addEventListener("change", draw);
    view.addEventListener("pointerover", (event) => {
      const cell = event.target.closest("tbody td");
      if (!cell) return;
      const t = cell.parentElement.sectionRowIndex, s = cell.cellIndex - 1;
      output.textContent = `${data.targets[t]} → ${data.sources[s]}: ` + (cell.classList.contains("hs-unseen") ? "behind the mask" : number(map()[t][s] / 1000, 3));
    });
    const tell = (event) => {
      const name = event.target.closest("tbody th");
      if (!name) return;
      const t = name.parentElement.sectionRowIndex;
      const most = map()[t].map((weight, s) => [weight, s]).sort((a, b) => b[0] - a[0]).slice(0, 5);
      output.textContent = `${data.targets[t]} looks at ` + most.map(([weight, s]) => `${data.sources[s]} ${number(weight / 1000, 2)}`).join(", ");
    };
    view.addEventListener("focusin", tell);
    view.addEventListener("pointerover", tell);
  }

  function told(view) {
    const output = view.querySelector("output");
    for (const kind of ["pointerover", "focusin"]) {
      view.addEventListener(kind, (event) => {
        const element = event.target.closest("[data-told]");
        if (element) output.textContent = element.dataset.told;
      });
    }
  }

  const kinds = { probabilities, attention, attribution: told, parameters: told };
  for (const view of document.querySelectorAll(".headstart-seen [data-view]:not([data-live])")) {
    view.dataset.live = "";  // a notebook runs this script once for each output
    const data = view.querySelector("script"), make = kinds[view.dataset.view];
    if (!make) continue;
    make(view, data ? JSON.parse(data.textContent) : null);
    for (const control of view.querySelectorAll(".hs-control")) control.hidden = false;
  }
})();

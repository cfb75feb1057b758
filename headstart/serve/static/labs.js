import { ask, complain } from "/static/studio.js";

for (const button of document.querySelectorAll("button[data-lab]")) button.addEventListener("click", async () => {
  button.disabled = true;
  try { complain(null); location.assign(`/jobs/${(await ask("POST", "/api/jobs", { verb: "lab", lab: button.dataset.lab })).id}`); } catch (error) { complain(error); }
  button.disabled = false;
});

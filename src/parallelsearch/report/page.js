// Shows the episodes that fit the chosen arm, structure and verdict.
const form = document.getElementById("filter");
const episodes = [...document.querySelectorAll(".episode")];
function show() {
  const wanted = [...new FormData(form)].filter(([, value]) => value);
  let count = 0;
  for (const episode of episodes) {
    episode.hidden = !wanted.every(([name, value]) => episode.dataset[name] === value);
    count += episode.hidden ? 0 : 1;
  }
  document.getElementById("shown").textContent = `${count} of ${episodes.length} episodes`;
}
form.addEventListener("change", show);
form.addEventListener("submit", (event) => event.preventDefault());
show();

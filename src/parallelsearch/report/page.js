// The episode browser: filters all episodes, opens one, puts another arm's answer to the same question beside it.
// Text of models and corpora reaches the page as text nodes only.
const PAGE = 100; // episodes listed at once

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

async function unpacked() {
  const packed = atob(document.getElementById("episode-data").textContent.trim());
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

const counted = (number, word) => `${number} ${word}${number === 1 ? "" : word === "search" ? "es" : "s"}`;
const time = (turn) => turn.generate + turn.search;
const longest = (...shown) => Math.max(...shown.map((episode) => episode.turns.reduce((sum, turn) => sum + time(turn), 0))) || 1;
const verdict = (episode) =>
  element("span", { class: `verdict ${episode.verdict}` }, episode.verdict === "failed" ? `failed: ${episode.stop}` : episode.verdict);
const effort = (episode) =>
  `${counted(episode.calls, "turn")}, ${counted(episode.searches, "search")}, ${episode.seconds.toFixed(3)} s`;

function turnList(episode, full) {
  let start = 0;
  const percent = (seconds) => `${((100 * seconds) / full).toFixed(2)}%`;
  const items = episode.turns.map((turn, number) => {
    const spent = `${turn.generate.toFixed(3)} s generation${turn.search ? `, ${turn.search.toFixed(3)} s search` : ""}; ${turn.tokens} tokens`;
    const head = element("div", { class: "head" }, element("b", {}, `Turn ${number + 1}`), element("span", {}, turn.action), element("span", { class: "time" }, spent));
    const bar = element(
      "div",
      { class: "bar", "aria-hidden": "true" },
      element("i", { class: "generate", style: `margin-left:${percent(start)};width:${percent(turn.generate)}` }),
      element("i", { class: "search", style: `width:${percent(turn.search)}` }),
    );
    start += time(turn);
    const queries = turn.queries.map((query) => {
      const hits = query.titles.map((title) => element("span", { class: "hit" }, title));
      return element("li", {}, element("span", { class: "query" }, query.text), element("span", { class: "hits" }, ...(hits.length ? hits : ["no passage shown"])));
    });
    const label = turn.text ? (turn.observation ? "what the model wrote and was shown" : "what the model wrote") : "what the model was shown";
    return element(
      "li",
      { class: `turn ${turn.action}` },
      head,
      bar,
      queries.length ? element("ul", { class: "queries" }, ...queries) : null,
      turn.answer === null ? null : element("p", { class: "answer" }, "Answer: ", element("b", {}, turn.answer)),
      element(
        "details",
        { class: "text" },
        element("summary", {}, label),
        turn.text ? element("pre", {}, turn.text) : null,
        turn.observation ? element("pre", { class: "observation" }, turn.observation.trim()) : null,
      ),
    );
  });
  return element("ol", { class: "turns" }, ...(items.length ? items : [element("li", { class: "turn" }, `No generation. ${episode.error}`)]));
}

function outcome(episode) {
  const reward = episode.reward === null ? "" : `, reward ${episode.reward.toFixed(3)}`;
  return `Answer: ${episode.answer === null ? "none" : episode.answer}. ${effort(episode)}${reward}; ended by ${episode.stop}.`;
}

function side(episode, full, title) {
  const who = element("p", {}, element("b", {}, episode.arm), `, seed ${episode.seed}: `, verdict(episode));
  return element("article", { class: "side" }, ...(title ? [element("h3", {}, title)] : []), who, element("p", {}, outcome(episode)), turnList(episode, full));
}

function fill(details, episode, question, other, beside) {
  const answers = [element("p", {}, `${question.dataset}, ${question.type}. Golden answer: ${question.golden.join(" / ")}.`)];
  if (other) {
    const full = longest(episode, other);
    answers.push(element("div", { class: "sides" }, side(episode, full), side(other, full)));
  } else {
    if (beside && beside !== episode.arm) answers.push(element("p", {}, `${beside} has no episode of this question and seed.`));
    answers.push(element("p", {}, outcome(episode)), turnList(episode, longest(episode)));
  }
  details.replaceChildren(details.firstElementChild, ...answers);
}

function browse({ questions, episodes }) {
  const form = document.getElementById("filter");
  const list = document.getElementById("episode-list");
  const more = document.getElementById("more");
  const places = new Map(episodes.map((episode) => [`${episode.question}/${episode.seed}/${episode.arm}`, episode]));
  let found = [];
  let listed = 0;

  const fits = (wanted) => (episode) => {
    const question = questions[episode.question];
    const fields = { ...question, ...episode, seed: String(episode.seed) };
    return Object.entries(wanted).every(([name, value]) =>
      name === "words" ? question.text.toLowerCase().includes(value.toLowerCase()) : fields[name] === value,
    );
  };

  function entry(episode) {
    const question = questions[episode.question];
    const summary = element("summary", {});
    summary.append(element("span", { class: "tag" }, episode.arm), " ", element("span", { class: "tag" }, question.structure), " ", verdict(episode), ` ${question.text}`);
    const details = element("details", { class: "episode" }, summary);
    details.refresh = () => {
      const beside = form.elements.beside.value;
      const other = beside === episode.arm ? undefined : places.get(`${episode.question}/${episode.seed}/${beside}`);
      if (details.open) fill(details, episode, question, other, beside);
    };
    details.addEventListener("toggle", details.refresh);
    return details;
  }

  function listMore() {
    list.append(...found.slice(listed, listed + PAGE).map(entry));
    listed = Math.min(found.length, listed + PAGE);
    more.hidden = listed === found.length;
    more.textContent = `List ${Math.min(PAGE, found.length - listed)} more of ${found.length - listed}`;
  }

  function show() {
    const { beside, ...wanted } = Object.fromEntries([...new FormData(form)].filter(([, value]) => value));
    found = episodes.filter(fits(wanted));
    listed = 0;
    list.replaceChildren();
    listMore();
    document.getElementById("shown").textContent = `${found.length} of ${episodes.length} episodes`;
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.words.addEventListener("input", show);
  form.addEventListener("change", (event) => {
    if (event.target.name === "beside") list.querySelectorAll(".episode").forEach((details) => details.refresh());
    else show();
  });
  more.addEventListener("click", () => {
    const first = list.children.length;
    listMore();
    list.children[first]?.firstElementChild.focus();
  });
  show();
}

function contrast({ episodes }) {
  const places = [...document.querySelectorAll("#contrast .sides [data-episode]")];
  const shown = places.map((place) => episodes[Number(place.dataset.episode)]);
  places.forEach((place, number) => place.replaceWith(side(shown[number], longest(...shown), place.dataset.title)));
}

unpacked().then(
  (data) => {
    contrast(data);
    browse(data);
  },
  (error) => {
    document.getElementById("shown").textContent = `The episodes cannot be read in this browser (${error}); open the page in a newer one.`;
  },
);

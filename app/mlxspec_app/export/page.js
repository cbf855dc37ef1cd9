// The stepper: the number of rounds shown, and all parts of the page that depend on it.

const $ = (id) => document.getElementById(id);
const lines = $("trace").textContent.split("\n").filter((line) => line.trim());
const rounds = readRounds(lines);
const spans = new Map();
for (const span of document.querySelectorAll("[data-round]")) {
  spans.set(Number(span.dataset.round), span);
  rounds[Number(span.dataset.round)].reply = Number(span.closest("article").dataset.reply);
}
const tokens = [...document.querySelectorAll("[data-round] .token")];
const most = Math.max(1, ...rounds.map((round) => round.path.length));
const isRejection = (round) => round.nodes.some((node) => node.parent === lastKept(round));
let shown = rounds.length; // number of rounds shown; all of them when the page opens
let timer = 0; // not 0 while the page plays
let begun = { at: 0, clock: 0 };

function rootText(number) {
  const before = rounds[number - 1];
  if (!before || before.reply !== rounds[number].reply) return "start";
  return before.emit.length ? before.emit[before.emit.length - 1].text : "";
}

function outcome(round) {
  if (!round.nodes.length) return "nothing drafted";
  const own = round.emit.filter((token) => token.kind !== "accepted").length;
  return `${round.nodes.length} drafted · kept ${round.path.length}${own ? ` +${own}` : ""}`;
}

function showCard() {
  const number = Math.max(0, shown - 1), round = rounds[number];
  const draft = round.draftMs === null ? "" : `draft ${round.draftMs.toFixed(1)} ms · `;
  $("card-title").textContent = `Reply ${round.reply} · round ${round.r}`;
  $("card-outcome").textContent = outcome(round);
  $("card-times").textContent =
    `${draft}${round.nodes.length ? "verify" : "target"} ${round.ms.toFixed(1)} ms`
    + (round.rollback ? ` · ${round.rollback} rolled back` : "");
  const text = rootText(number);
  drawTree($("tree"), round, text === "start" ? "(start of the reply)" : text);
}

/** Show the first `count` rounds. */
function show(count, follow = true) {
  const before = shown;
  shown = Math.min(rounds.length, Math.max(0, count));
  for (let number = Math.min(before, shown); number < Math.max(before, shown); number++)
    spans.get(number)?.classList.toggle("later", number >= shown);
  spans.get(before - 1)?.classList.remove("now");
  const current = spans.get(shown - 1);
  if (shown < rounds.length || timer) current?.classList.add("now");
  for (const article of document.querySelectorAll("article"))
    article.classList.toggle("waiting", Number(article.dataset.reply) > replyOf(shown - 1));
  if (follow && current) keepInView(current);
  $("scrub").value = shown;
  $("scrub").setAttribute("aria-valuetext", `round ${shown} of ${rounds.length}`);
  $("veil").style.width = `${100 * (1 - shown / rounds.length)}%`;
  const at = shown ? rounds[shown - 1].at : 0;
  $("where").textContent = `${shown}/${rounds.length} · ${at.toFixed(2)} s`;
  $("inspector").hidden = true;
  showCard();
}

const replyOf = (number) => (rounds[number] || rounds[0]).reply;

/** Scroll only if the element is behind the bars, and then to the upper third of the view. */
function keepInView(element) {
  const box = element.getBoundingClientRect(), card = $("card");
  const covered = getComputedStyle(card).position === "fixed" ? card.offsetHeight : 0;
  const floor = window.innerHeight - $("dock").offsetHeight - covered - 30;
  if (box.top < 70 || box.bottom > floor) window.scrollBy(0, box.top - Math.max(80, floor / 3));
}

/** Go one round forwards or back, or to the next one that matches; stay if none does. */
function seek(step, wanted = null) {
  pause();
  let count = shown + step;
  while (wanted && count > 0 && count <= rounds.length && !wanted(rounds[count - 1])) count += step;
  if (count >= (wanted ? 1 : 0) && count <= rounds.length) show(count);
}

function play() {
  if (shown >= rounds.length) show(0);
  $("play").textContent = "❚❚";
  $("play").setAttribute("aria-label", "pause");
  keepTime();
  timer = -1;
  tick();
}

/** Play recorded time from here on; a slow machine skips rounds instead of getting late. */
function keepTime() {
  begun = { at: shown ? rounds[shown - 1].at : 0, clock: performance.now() };
}

function pause() {
  if (timer) clearTimeout(timer);
  timer = 0;
  $("play").textContent = "▶";
  $("play").setAttribute("aria-label", "play");
}

function tick() {
  const speed = Number($("speed").value) / 1000;
  const now = begun.at + (performance.now() - begun.clock) * speed;
  let count = shown;
  while (count < rounds.length && rounds[count].at <= now) count += 1;
  if (count !== shown) show(count);
  if (shown >= rounds.length) pause();
  else timer = setTimeout(tick, (rounds[shown].at - now) / speed);
}

function drawStrip() {
  const bars = rounds.map((round, number) => {
    const share = round.path.length / most, high = 8 + 92 * share;
    const kind = round.path.length ? "kept" : round.nodes.length ? "lost" : "none";
    const bar = drawn("rect", { x: number + 0.1, y: 100 - high, width: 0.8, height: high, class: kind });
    bar.style.setProperty("--share", share);
    return bar;
  });
  $("strip").setAttribute("viewBox", `0 0 ${rounds.length} 100`);
  $("strip").replaceChildren(...bars);
}

function pointAt(element) {
  const facts = element && factsOf(element, rounds);
  document.querySelector(".token.pointed")?.classList.remove("pointed");
  if (!facts) { $("inspector").hidden = true; return; }
  element.classList.add("pointed");
  inspect($("inspector"), element, facts);
}

function walk(step) {
  const place = tokens.indexOf(document.activeElement);
  const next = tokens[place + step];
  if (place >= 0 && next) {
    document.activeElement.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
  return place >= 0;
}

function listenToTokens(chat) {
  const token = (event) => event.target.closest?.("[data-round] .token");
  chat.addEventListener("mouseover", (event) => pointAt(token(event)));
  chat.addEventListener("mouseleave", () => pointAt(null));
  chat.addEventListener("focusin", (event) => pointAt(token(event)));
  chat.addEventListener("focusout", () => pointAt(null));
  chat.addEventListener("click", (event) => {
    const element = token(event);
    if (!element || !window.getSelection().isCollapsed) return;
    pause();
    show(factsOf(element, rounds).number + 1, false);
    pointAt(element);
  });
  tokens.forEach((element, place) => { element.tabIndex = place ? -1 : 0; });
  window.addEventListener("scroll", () => {
    const element = document.querySelector(".token.pointed");
    if (element) beside($("inspector"), element.getBoundingClientRect());
  }, { passive: true });
}

const KEYS = {
  " ": () => (timer ? pause() : play()),
  ArrowLeft: () => walk(-1) || seek(-1), ArrowRight: () => walk(1) || seek(1),
  "[": () => seek(-1), "]": () => seek(1),
  "{": () => seek(-1, isRejection), "}": () => seek(1, isRejection),
  Home: () => { pause(); show(0); }, End: () => { pause(); show(rounds.length); },
  Escape: () => { pause(); show(rounds.length, false); },
};

function onKey(event) {
  const busy = event.target.closest?.("input, select, button, summary");
  if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  if (busy && event.key !== "Escape" && !"[]{}".includes(event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
}

function saveTrace() {
  const blob = new Blob([`${lines.join("\n")}\n`], { type: "application/x-ndjson" });
  const link = make("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${document.title.replace(/ · mlxspec$/, "").replace(/[^\w-]+/g, "_")}.jsonl`;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Inks and themes are CSS rules; an attribute of the root element selects them. */
function listenToChoices() {
  const choose = (input) => { document.documentElement.dataset[input.name] = input.value; };
  for (const input of document.querySelectorAll(".pick input")) {
    if (input.checked) choose(input); // a browser may restore the choice of the last visit
    input.addEventListener("change", () => choose(input));
  }
}

function begin() {
  document.documentElement.classList.add("alive");
  listenToChoices();
  if (!rounds.length) return;
  for (const id of ["card", "dock", "save"]) $(id).hidden = false;
  $("scrub").max = rounds.length;
  $("scrub").addEventListener("input", () => { pause(); show(Number($("scrub").value)); });
  $("speed").addEventListener("change", () => {
    if (!timer) return;
    pause();
    play();
  });
  $("play").addEventListener("click", () => KEYS[" "]());
  $("previous").addEventListener("click", () => seek(-1));
  $("next").addEventListener("click", () => seek(1));
  $("previous-rejection").addEventListener("click", () => seek(-1, isRejection));
  $("next-rejection").addEventListener("click", () => seek(1, isRejection));
  $("save").addEventListener("click", saveTrace);
  $("fold").addEventListener("click", () => {
    const open = document.body.classList.toggle("card-open");
    $("fold").setAttribute("aria-expanded", String(open));
  });
  document.addEventListener("keydown", onKey);
  listenToTokens($("chat"));
  drawStrip();
  show(rounds.length, false);
}

begin();

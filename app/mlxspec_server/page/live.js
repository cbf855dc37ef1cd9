// The page: what is watched, what is asked, and when it is drawn.

const SEEN_MS = 2000;
const LIST_MS = 250; // the list is read, so it changes seldom
const replies = new LiveReplies();
const painter = new Painter(by("text"));
const server = new Server(askKey);
let asking = null; // stops the request of this page
let isDue = false, listedAt = 0;
const asked = new Set(); // models and prompts whose reply a drafter may have seen

// ---- drawing -------------------------------------------------------------------------------

function changed() {
  if (!isDue) requestAnimationFrame(draw);
  isDue = true;
}

function draw() {
  isDue = false;
  const reply = replies.shown;
  if (painter.reply !== reply) painter.show(reply);
  painter.paint();
  drawHead(reply);
  drawFigures(reply);
  drawTreeOf(reply);
  if (reply) drawLane(by("lane"), reply);
  const now = performance.now();
  if (now - listedAt < LIST_MS && replies.running.length) return void setTimeout(changed, LIST_MS);
  listedAt = now;
  drawList(replies, choose);
}

function choose(reply) {
  replies.shown = reply;
  listedAt = 0;
  changed();
}

function say(words, isWell) {
  by("state").textContent = words;
  by("state").className = isWell ? "well" : "ill";
}

// ---- the key -------------------------------------------------------------------------------

let keyAsked = null, useKey = null;

/** Ask the user for the key; several requests that need it share one question. */
function askKey(why) {
  say("the server needs a key", false);
  by("key-note").textContent = why;
  by("key-form").hidden = false;
  by("key").focus();
  keyAsked ||= new Promise((done) => { useKey = done; });
  return keyAsked;
}

function takeKey(event) {
  event.preventDefault();
  const key = by("key").value.trim();
  if (!/^[\x21-\x7e]+$/.test(key)) {
    by("key-note").textContent = "a key has letters, digits and signs of ASCII, and no spaces";
    return;
  }
  server.useKey(key);
  by("key").value = "";
  by("key-form").hidden = true;
  keyAsked = null;
  useKey?.();
}

// ---- asking --------------------------------------------------------------------------------

function fields() {
  return {
    prompt: by("prompt").value.trim(), model: by("model").value,
    max_tokens: Number(by("most").value), temperature: Number(by("temperature").value),
  };
}

const askedName = ({ model, prompt }) => JSON.stringify([model, prompt]);

/** Offer the models of the server; the one that was chosen stays chosen where it is still there. */
async function offerModels() {
  const { data } = await (await server.get("/v1/models")).json();
  const names = data.map((one) => one.id), chosen = by("model").value;
  by("model").replaceChildren(...names.map((name) => new Option(shownText(name), name)));
  if (names.includes(chosen)) by("model").value = chosen;
  by("model-box").hidden = names.length < 2;
}

function show(name) {
  const reply = replies.all.get(name);
  if (reply && replies.shown !== reply) choose(reply);
}

/** Do what a button begins, one at a time; Stop ends it. */
async function atWork(act) {
  if (asking || !by("ask").reportValidity()) return;
  if (!fields().prompt) {
    by("note").textContent = "type a prompt first";
    by("prompt").focus();
    return;
  }
  asking = new AbortController();
  by("note").textContent = "";
  const busy = (is) => {
    by("send").disabled = by("race").disabled = by("again").disabled = is;
    by("stop").hidden = !is;
  };
  busy(true);
  try {
    await act(asking.signal);
  } catch (error) {
    by("note").textContent = asking.signal.aborted ? "stopped" : error.message;
  }
  asking = null;
  busy(false);
}

async function sendPrompt(signal) {
  const what = fields();
  let isShown = false;
  by("note").textContent = "waiting for the reply …"; // its model may have to be loaded
  await ask(server, what, signal, (reply) => {
    by("note").textContent = "";
    if (!isShown && replies.all.has(reply.name)) [isShown] = [true, show(reply.name)];
  });
  asked.add(askedName(what));
}

// ---- the race ------------------------------------------------------------------------------

const lanes = RACED.map(([name]) => {
  const box = by(`lane-${name}`);
  return { box, painter: new Painter(box.querySelector(".text")), run: null };
});

async function race(signal) {
  const what = { ...fields(), temperature: 0, seed: 0 }; // greedy: both say the same
  const isKnown = asked.has(askedName(what));
  let others = false;
  by("race-box").hidden = false;
  by("again").hidden = true;
  for (const id of ["verdict", "race-note"]) by(id).textContent = "";
  lanes.forEach(clearLane);
  for (const [number, [name, own]] of RACED.entries()) {
    by("race-state").textContent = `run ${number + 1} of 2, ${SIDES[name]}: one after the other`;
    const lane = lanes[number];
    lane.run = await ask(server, { ...what, ...own }, signal, (run) => {
      others ||= replies.running.some((reply) => reply.name !== run.name);
      follow(lane, run);
    });
    await seen(lane.run.name);
    follow(lane, lane.run);
  }
  asked.add(askedName(what));
  tell(isKnown, others);
}

/** Wait until the end of a reply has come with the events too: it has a stream of its own. */
async function seen(name) {
  const until = performance.now() + SEEN_MS;
  while (performance.now() < until && replies.all.get(name)?.state === RUNNING)
    await new Promise((done) => setTimeout(done, 20));
}

function clearLane(lane) {
  lane.run = null;
  lane.painter.show(null);
  lane.box.querySelector(".lane-figures").textContent = "";
  lane.box.querySelector(".rail i").style.width = "0";
}

function follow(lane, run) {
  const reply = replies.all.get(run.name);
  show(run.name);
  if (reply) {
    if (lane.painter.reply !== reply) lane.painter.show(reply);
    lane.painter.paint();
  } else lane.box.querySelector(".text").textContent = shownText(run.text);
  lane.box.querySelector(".lane-figures").textContent = reply ? wordsOf(reply.figures) : "";
}

function wordsOf(figures) {
  const words = [`${figures.tokens} tokens`, `${figure(figures.tps, 1)} tokens/s`];
  return [...words, ...(figures.rounds ? [`${percent(figures.guessed)} guessed`] : [])].join(" · ");
}

function tell(isKnown, others) {
  const [drafted, plain] = lanes.map((lane) => lane.run);
  const verdict = verdictOf(drafted, plain, replies);
  by("race-state").textContent = speedsOf(drafted, plain);
  by("verdict").textContent = verdict.words;
  by("verdict").className = verdict.is ? "same" : "differs";
  const notes = ["Greedy, one after the other; the reading of the prompt is left out of both speeds."];
  if (isKnown) notes.push("This prompt was asked before: the drafter may have seen the reply.");
  if (others) notes.push("Other replies were written meanwhile, so the speeds say little.");
  by("race-note").textContent = notes.join(" ");
  lanes.forEach((lane) => { lane.box.querySelector(".rail i").style.width = `${100 * shareOf(lane)}%`; });
  by("again").hidden = !lanes.every((lane) => lane.painter.reply?.isWhole);
  show(drafted.name); // the one with a tree to look at
}

/** The time of a run, as a share of the slower one. */
function shareOf(lane) {
  const times = lanes.map((each) => each.run.timings.predicted_ms);
  return lane.run.timings.predicted_ms / Math.max(...times, 1e-9);
}

/** Play both runs from the beginning, each at its own speed, on one clock. */
function playAgain(signal) {
  return new Promise((done) => {
    const begun = performance.now();
    for (const lane of lanes) lane.painter.show(lane.painter.reply);
    const step = () => {
      const seconds = (performance.now() - begun) / 1000;
      let isOver = true;
      for (const { box, painter: own, run } of lanes) {
        const { rounds, figures } = own.reply;
        const at = figures.prefillS + (signal.aborted ? Infinity : seconds);
        const count = rounds.findIndex((round) => round.at > at);
        own.paint(count < 0 ? Infinity : count);
        isOver &&= count < 0;
        const share = Math.min(1, (1000 * seconds) / run.timings.predicted_ms);
        box.querySelector(".rail i").style.width = `${100 * share * shareOf({ run })}%`;
      }
      if (!isOver) return void requestAnimationFrame(step);
      lanes.forEach((lane) => { lane.box.querySelector(".rail i").style.width = `${100 * shareOf(lane)}%`; });
      done();
    };
    step();
  });
}

// ---- the user ------------------------------------------------------------------------------

function begin() {
  document.documentElement.classList.add("alive");
  for (const input of document.querySelectorAll("[name=theme]")) {
    const use = () => { document.documentElement.dataset.theme = input.value; };
    if (input.checked) use(); // a browser may restore the choice of the last visit
    input.addEventListener("change", use);
  }
  by("ask").addEventListener("submit", (event) => { event.preventDefault(); atWork(sendPrompt); });
  by("race").addEventListener("click", () => atWork(race));
  by("key-form").addEventListener("submit", takeKey);
  by("again").addEventListener("click", () => atWork(playAgain));
  by("stop").addEventListener("click", () => asking?.abort());
  by("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      atWork(sendPrompt);
    }
  });
  watch(replies, server, say, changed, offerModels);
}

begin();

// Draws a reply: its text in colours, the draft of its last round, its figures.

const SHORT_NAME = 6;
const MOST_IN_LANE = 14;
const UNSEEN = /(?![\n\t])[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u00ad\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]/gu;
const by = (id) => document.getElementById(id);
const figure = (value, digits = 2) => (Number.isFinite(value) ? value.toFixed(digits) : "–");
const percent = (value) => `${Math.round(100 * value)}\u00a0%`;

/** Return text whose characters neither hide nor turn other text. */
const shownText = (text) => text.replace(/\r\n/g, "\n").replace(UNSEEN, "\ufffd");

function factsOfToken(token, source) {
  const facts = [token.kind, source];
  if (token.p !== null && token.p !== undefined) facts.push(`model p ${prob(token.p)}`);
  if (token.q !== null && token.q !== undefined) facts.push(`draft q ${prob(token.q)}`);
  return facts.filter(Boolean).join(" · ");
}

/** Paints the text of one reply into an element, a round at a time. */
class Painter {
  constructor(box) {
    this.box = box;
    this.show(null);
  }

  show(reply) {
    Object.assign(this, { reply, painted: 0, block: null, isOver: false });
    this.box.replaceChildren(...(reply?.isPart ? [make("span", "missing", "… ")] : []));
  }

  /** Paint the rounds that came since, up to `most` of them. */
  paint(most = Infinity) {
    const { reply } = this;
    if (!reply) return;
    const isLow = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 40;
    for (; this.painted < Math.min(most, reply.rounds.length); this.painted += 1)
      this.paintRound(reply.rounds[this.painted]);
    if (!this.isOver && reply.state !== RUNNING && this.painted === reply.rounds.length) {
      this.isOver = true;
      if (reply.rest) this.blockOf("answer").append(make("span", "token", shownText(reply.rest)));
    }
    if (isLow) this.box.scrollTop = this.box.scrollHeight;
  }

  paintRound(round) {
    const sources = new Map(round.nodes.map((node) => [node.index, node.source]));
    round.emit.forEach((token, place) => {
      const element = make("span", `token ${token.kind}`, shownText(token.text));
      element.title = factsOfToken(token, sources.get(round.path[place]));
      this.blockOf(token.channel).append(element);
    });
  }

  blockOf(channel) {
    if (this.block?.dataset.channel !== channel) {
      this.block = make("div", `channel ${channel}`);
      this.block.dataset.channel = channel;
      this.box.append(this.block);
    }
    return this.block;
  }
}

/** The last emitted token before a round: the root of its tree. */
function rootOf(reply, round) {
  const before = reply.rounds[reply.rounds.indexOf(round) - 1];
  return before?.emit.length ? before.emit[before.emit.length - 1].text : "";
}

function outcomeOf(round) {
  if (!round.nodes.length) return "nothing drafted";
  const own = round.emit.length - round.path.length;
  return `${round.nodes.length} drafted · kept ${round.path.length}${own > 0 ? ` +${own}` : ""}`;
}

/** Draw the last draft of a running reply in one line: what was kept, what was rejected, the model's own. */
function drawLane(line, reply) {
  const round = reply.rounds[reply.rounds.length - 1];
  if (!round || reply.state !== RUNNING) return line.replaceChildren();
  const rows = treeRows(round, "").slice(1);
  const own = rows.filter((row) => !["accepted", "rejected", "skipped"].includes(row.mark));
  const guesses = rows.filter((row) => !own.includes(row));
  const order = { accepted: 0, rejected: 1, skipped: 2 };
  guesses.sort((a, b) => order[a.mark] - order[b.mark]);
  const kept = guesses.filter((row) => row.mark === "accepted");
  const lost = guesses.slice(kept.length, Math.max(kept.length, MOST_IN_LANE - own.length));
  const more = guesses.length - kept.length - lost.length;
  const chips = [...kept, ...own, ...lost].map((row) => {
    const chip = make("span", `chip ${row.mark}`, make("span", "sign", SIGNS[row.mark] || ""),
      make("bdi", "", label(row.text)));
    chip.title = factsOfToken({ ...row, kind: row.mark }, row.source);
    return chip;
  });
  return line.replaceChildren(make("span", "round-name", `round ${round.r}`), ...chips,
    ...(more > 0 ? [make("span", "more", `and ${more} more`)] : []));
}

function drawTreeOf(reply) {
  const { rounds } = reply || { rounds: [] };
  // A round without a draft has no tree: the last one that has one stays, so that it can be read.
  const round = rounds.findLast((one) => one.nodes.length);
  by("card").hidden = !round;
  if (!round) return;
  by("card-title").textContent = `Draft tree of round ${round.r}`;
  by("card-outcome").textContent = outcomeOf(round);
  drawTree(by("tree"), round, rootOf(reply, round) || "(start)");
}

function drawFigures(reply) {
  const figures = reply?.figures;
  const has = Boolean(figures?.tokens), drafts = Boolean(figures?.rounds);
  by("speed").textContent = has ? figure(figures.tps, 1) : "–";
  by("guessed").textContent = drafts ? percent(figures.guessed) : "–";
  by("per-forward").textContent = has ? figure(figures.perForward) : "–";
}

const WHY = { stop: "ended", length: "ended at its most tokens", cancelled: "stopped",
  context: "ended: the context is full", repeating: "stopped: it repeated itself" };

function stateOf(reply) {
  if (reply.state === FAILED) return `failed: ${reply.why}`;
  if (reply.state === ENDED) return WHY[reply.why] || "ended";
  if (reply.rounds.length) return "being written";
  return reply.prompt ? `reading the prompt: ${reply.read} of ${reply.prompt} tokens` : "begun";
}

function drawHead(reply) {
  by("title").textContent = reply ? `Reply ${reply.name.slice(0, SHORT_NAME)}` : "No reply yet";
  const facts = reply ? [reply.drafter ? `${reply.model} ◂ ${reply.drafter}` : reply.model,
    `${reply.figures.tokens} tokens`] : [];
  if (reply?.isPart) facts.push("seen from the middle on");
  if (reply?.lost) facts.push(`${reply.lost} events of the server were lost`);
  by("about").textContent = facts.join(" · ");
  by("end").textContent = reply ? stateOf(reply) : "";
}

/** Draw the rows of the list, the newest first; keep the focus where it is. */
function drawList(replies, choose) {
  const rows = [...replies.all.values()].reverse().map((reply) => {
    const sign = { [RUNNING]: "●", [ENDED]: "✓", [FAILED]: "✗" }[reply.state];
    const button = make("button", `row ${reply.state}`, make("span", "sign", sign),
      make("span", "name", reply.name.slice(0, SHORT_NAME)), make("bdi", "model", shownText(reply.model)),
      make("span", "count", `${reply.figures.tokens} tok`),
      make("span", "count", `${figure(reply.figures.tps, 1)} tok/s`));
    button.type = "button";
    button.dataset.name = reply.name;
    button.title = stateOf(reply);
    button.setAttribute("aria-pressed", String(reply === replies.shown));
    button.addEventListener("click", () => choose(reply));
    return make("li", "", button);
  });
  const focused = document.activeElement?.dataset?.name;
  by("replies").replaceChildren(...rows);
  by("none").hidden = rows.length > 0;
  if (focused) by("replies").querySelector(`[data-name="${CSS.escape(focused)}"]`)?.focus();
}

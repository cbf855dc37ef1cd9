// The replies that the server tells of: read from its stream of events, and counted.

const MOST_REPLIES = 24;
const RETRY_MS = 2000;
const RUNNING = "running", ENDED = "ended", FAILED = "failed";

/** Yield {name, data} of every server-sent event of a response. */
async function* serverEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = { name: "", data: "" };
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) event.name = line.slice(7);
        else if (line.startsWith("data: ")) event.data += line.slice(6);
      }
      if (event.data) yield event;
    }
  }
}

/** The figures of a reply, counted from its rounds as the library counts them. */
class Figures {
  constructor() {
    Object.assign(this, { rounds: 0, plain: 0, accepted: 0, tokens: 0 });
    Object.assign(this, { prefillS: 0, nowS: 0 });
  }

  add(round) {
    const guesses = round.nodes.filter((node) => node.source !== "forced");
    const kept = guesses.filter((node) => round.path.includes(node.index));
    if (guesses.length) this.rounds += 1;
    else this.plain += round.forwards;
    this.accepted += kept.length;
    this.tokens += round.emit.length;
    this.nowS = round.at;
  }

  get tps() { return this.nowS > this.prefillS ? this.tokens / (this.nowS - this.prefillS) : 0; }
  get guessed() { return this.tokens ? this.accepted / this.tokens : 0; }
  get perForward() {
    const forwards = this.rounds + this.plain;
    return forwards ? this.tokens / forwards : 0;
  }
}

/** One reply: its rounds so far, and what is known of it. */
class LiveReply {
  constructor(name, model) {
    Object.assign(this, { name, model, drafter: "", rounds: [], rest: "", draft: null });
    Object.assign(this, { state: RUNNING, why: "", read: 0, prompt: 0, isPart: false, lost: 0 });
    this.figures = new Figures();
  }

  add(event) {
    switch (event.t) {
      case "meta":
        this.drafter = event.drafter;
        break;
      case "prefill":
        [this.read, this.prompt, this.figures.prefillS] = [event.done, event.total, event.ts];
        break;
      case "draft":
        this.draft = event;
        break;
      case "verify": case "plain":
        this.addRound(event);
        break;
      case "end":
        [this.state, this.why, this.rest, this.figures.nowS] = [ENDED, event.reason, event.text, event.ts];
        break;
      case "failed":
        [this.state, this.why] = [FAILED, event.message];
        break;
    }
  }

  addRound(event) {
    const draft = this.draft && this.draft.r === event.r && event.t === "verify" ? this.draft : null;
    this.draft = null;
    if (!this.rounds.length && event.r > 1) { // seen from the middle on
      this.isPart = true;
      this.figures.prefillS = event.ts;
    }
    const round = {
      r: event.r, at: event.ts, nodes: draft ? draft.nodes.map(asNode) : [],
      path: draft ? event.path : [], forwards: event.forwards ?? 1,
      emit: event.emit.map(([token, text, kind, p, q, channel]) =>
        ({ token, text, kind, p, q, channel: channel || "answer" })),
    };
    this.rounds.push(round);
    this.figures.add(round);
  }

  get tokens() { return this.rounds.flatMap((round) => round.emit.map((one) => one.token)); }
  get isWhole() { return !this.isPart && !this.lost; }
}

/** All replies that were seen, the newest last, and which of them is shown. */
class LiveReplies {
  constructor() {
    this.all = new Map();
    this.shown = null;
    this.lost = 0;
  }

  add({ model, reply: name, event }) {
    let reply = this.all.get(name);
    const isSeenAgain = event.t === "meta"; // after the stream was cut off
    if (!reply || (reply.state !== RUNNING && isSeenAgain)) {
      reply = new LiveReply(name, model);
      this.all.set(name, reply);
      this.drop();
      if (!this.shown || this.shown.state !== RUNNING) this.shown = reply;
    }
    reply.add(event);
    return reply;
  }

  drop() {
    for (const [name, reply] of this.all) {
      if (this.all.size <= MOST_REPLIES) return;
      if (reply.state !== RUNNING && reply !== this.shown) this.all.delete(name);
    }
  }

  /** Note that events were lost: of which replies, nobody knows. */
  lose(count) {
    this.lost += count;
    for (const reply of this.running) reply.lost += count;
  }

  /** The stream has been cut off: what was running is out of sight. */
  leave() {
    for (const reply of this.running) [reply.state, reply.why] = [FAILED, "out of sight: the stream was cut off"];
  }

  get running() { return [...this.all.values()].filter((reply) => reply.state === RUNNING); }
}

/**
 * Read the events of the server for ever; say how that goes, and call `changed` after each.
 * `meet` is called whenever the server is there, for the first time or again.
 */
async function watch(replies, server, say, changed, meet) {
  for (;;) {
    try {
      const response = await server.get("/v1/events");
      await meet();
      say("watching", true);
      for await (const { name, data } of serverEvents(response)) {
        if (name === "reply") replies.add(JSON.parse(data));
        else if (name === "lost") replies.lose(JSON.parse(data).num_lost);
        changed();
      }
      say("the server ended the stream; trying again …", false);
    } catch (error) {
      say(`${error.message}; trying again …`, false);
    }
    replies.leave();
    changed();
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
}

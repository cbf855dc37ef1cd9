// The inspector: the facts about one token, beside the token.

const WROTE = {
  accepted: (node) => `drafted by ${node.source || "the drafter"}, and the model agreed`,
  corrected: () => "the model's own, where every draft was wrong",
  bonus: () => "the model's own, after a fully kept draft",
  plain: () => "the model's own; nothing was drafted",
};

/** The facts of a token element: its round, its token, the accepted node and rejected siblings. */
function factsOf(element, rounds) {
  const holder = element.closest("[data-round]");
  const round = holder && rounds[Number(holder.dataset.round)];
  const place = Number(element.dataset.place);
  const token = round && round.emit[place];
  if (!token) return null;
  const index = place < round.path.length ? round.path[place] : null;
  const parent = place === 0 ? 0 : round.path[place - 1];
  const reached = place <= round.path.length;
  return {
    number: Number(holder.dataset.round), round, place, token,
    node: round.nodes.find((node) => node.index === index) || {},
    losers: reached
      ? round.nodes.filter((node) => node.parent === parent && node.index !== index) : [],
  };
}

function gauge(name, value, kind) {
  if (value === null || value === undefined) return "";
  const bar = make("i", kind);
  bar.style.setProperty("--share", value);
  return make("div", "gauge", make("span", "", name), make("span", "rail", bar),
    make("b", "", value.toFixed(3).replace(/^0(?=\.)/, "")));
}

function losersOf(facts) {
  if (!facts.losers.length) return "";
  const shown = [...facts.losers].sort((a, b) => (b.q || 0) - (a.q || 0)).slice(0, 5);
  const items = shown.map((node) => make("li", "", make("span", "sign", "✗"),
    make("bdi", "", label(node.text)), make("small", "", `q ${prob(node.q)} ${node.source || ""}`)));
  const more = facts.losers.length - shown.length;
  const title = facts.token.kind === "accepted" ? "not taken here" : "in place of";
  return make("div", "losers", make("p", "", title),
    make("ul", "", ...items, ...(more > 0 ? [make("li", "", `and ${more} more`)] : [])));
}

/** Fill the inspector with the facts of a token and show it next to the token. */
function inspect(inspector, element, facts) {
  const { token, round, node, place } = facts;
  const depth = token.kind === "plain" ? "" : ` · depth ${place + 1}`;
  inspector.className = token.kind;
  inspector.replaceChildren(
    make("p", "word", make("span", "sign", SIGNS[token.kind]), make("bdi", "", label(token.text)),
      make("small", "", `token ${token.token}`)),
    make("p", "wrote", make("b", "", token.kind), ` ${WROTE[token.kind](node)}`),
    gauge("model p", token.p, "p"), gauge("draft q", token.q, "q"), losersOf(facts),
    make("p", "origin", `reply ${round.reply} · round ${round.r}${depth}`),
  );
  inspector.hidden = false;
  beside(inspector, element.getClientRects()[0] || element.getBoundingClientRect());
}

function beside(inspector, box) {
  const width = inspector.offsetWidth, height = inspector.offsetHeight, gap = 10;
  const floor = window.innerHeight - document.getElementById("dock").offsetHeight - gap;
  const left = Math.min(Math.max(gap, box.left - 24), window.innerWidth - width - gap);
  const fits = box.bottom + gap + height < floor;
  inspector.style.left = `${left}px`;
  inspector.style.top = `${Math.max(gap, fits ? box.bottom + gap : box.top - gap - height)}px`;
}

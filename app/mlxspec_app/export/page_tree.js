// Reads the rounds from the embedded trace, and draws the tree of one of them.

const SIGNS = { accepted: "✓", rejected: "✗", skipped: "·", corrected: "→", bonus: "+", plain: "" };
const MOST_NODES = 512;
const LANE = 15, ROW = 26, BEND = 7;

/** Return an element with a class and children; strings become text, never markup. */
function make(tag, name = "", ...children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...children);
  return element;
}

function drawn(tag, attributes) {
  const shape = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
  return shape;
}

/** Return a token on one line, with visible signs for characters that hide or reverse text. */
function label(text) {
  if (!text) return "…";
  if (!/[^ \n\t]/.test(text))
    return text.replace(/ /g, "␣").replace(/\n/g, "↵").replace(/\t/g, "⇥");
  return text.replace(/\n/g, "↵").replace(/\t/g, "⇥")
    .replace(/[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]|(?!\u200d)\p{Cf}/gu, "\ufffd").replace(/^ | $/g, "");
}

function prob(value) {
  if (value === null || value === undefined) return "";
  return value.toFixed(2).replace(/^0(?=\.)/, "");
}

const asNode = ([index, parent, token, text, q, source]) =>
  ({ index, parent, token, text, q, source });
const asToken = ([token, text, kind, p, q]) => ({ token, text, kind, p, q });

/** Return all rounds of the recording in order, each with its time since the recording began. */
function readRounds(lines) {
  const rounds = [];
  let reply = 0, draft = null, start = 0, now = 0;
  for (const line of lines) {
    const event = JSON.parse(line);
    if (event.t === "meta") {
      reply += 1;
      start = now + (rounds.length ? 1 : 0);
    } else if (event.t === "draft") {
      draft = event;
    } else if (event.t === "verify" || event.t === "plain") {
      const fits = event.t === "verify" && draft !== null && draft.r === event.r;
      now = Math.max(now, start + event.ts);
      rounds.push({
        reply, r: event.r, at: now, ms: event.ms, draftMs: fits ? draft.ms : null,
        root: fits ? draft.root : null,
        nodes: fits ? draft.nodes.map(asNode) : [],
        path: event.path || [],
        emit: event.emit.map(asToken),
        rollback: event.rollback || 0,
      });
      draft = null;
    }
  }
  return rounds;
}

/** Return the index of the last accepted node, or 0, the root, if none was accepted. */
const lastKept = (round) => (round.path.length ? round.path[round.path.length - 1] : 0);

function childrenOf(round) {
  const children = new Map();
  for (const node of round.nodes.slice(0, MOST_NODES)) {
    if (!children.has(node.parent)) children.set(node.parent, []);
    children.get(node.parent).push(node);
  }
  for (const siblings of children.values()) siblings.sort((a, b) => (b.q || 0) - (a.q || 0));
  return children;
}

/** Return the rows of a tree: rejected siblings branch off, the accepted path goes straight on. */
function treeRows(round, rootText) {
  const children = childrenOf(round);
  const last = lastKept(round);
  const rows = [{ text: rootText, mark: "root", lane: 0, above: -1 }];
  const grow = (parent, above, lane) => {
    const onPath = parent === 0 || round.path.includes(parent);
    const below = children.get(parent) || [];
    const own = parent === last ? round.emit.filter((token) => token.kind !== "accepted") : [];
    const kept = below.find((node) => round.path.includes(node.index));
    const main = kept || (own.length || onPath ? null : below[0]);
    for (const node of below.filter((other) => other !== main)) {
      rows.push({ ...node, mark: onPath ? "rejected" : "skipped", lane: lane + 1, above });
      grow(node.index, rows.length - 1, lane + 1);
    }
    if (main) {
      const place = round.path.indexOf(main.index);
      const p = place >= 0 && place < round.emit.length ? round.emit[place].p : null;
      rows.push({ ...main, p, mark: kept ? "accepted" : "skipped", lane, above });
      grow(main.index, rows.length - 1, lane);
    }
    for (const token of own) rows.push({ ...token, mark: token.kind, lane, above });
  };
  grow(0, 0, 0);
  return rows;
}

function edge(row, number, above) {
  const x = (lane) => 9 + lane * LANE, y = (place) => ROW / 2 + place * ROW;
  const from = `M${x(above.lane)} ${y(row.above)}`;
  const bend = `Q${x(above.lane)} ${y(number)} ${x(above.lane) + BEND} ${y(number)}`;
  const d = row.lane === above.lane
    ? `${from}V${y(number)}`
    : `${from}V${y(number) - BEND}${bend}H${x(row.lane)}`;
  return drawn("path", { d, class: `edge ${row.mark}` });
}

function rowItem(row) {
  const text = make("bdi", "label", label(row.text));
  const item = make(
    "li", row.mark,
    make("span", "sign", SIGNS[row.mark] || ""), text,
    make("span", "q", prob(row.q)), make("span", "p", prob(row.p)),
  );
  item.style.setProperty("--lane", row.lane);
  item.style.setProperty("--q", row.q || 0);
  item.title = [row.mark, row.source].filter(Boolean).join(", ");
  return item;
}

/** Draw the tree of a round into a list. */
function drawTree(list, round, rootText) {
  const rows = treeRows(round, rootText);
  const lines = drawn("svg", { width: 24 + LANE * 8, height: rows.length * ROW, "aria-hidden": "true" });
  const lost = (row) => row.mark === "rejected" || row.mark === "skipped";
  const order = rows.map((row, number) => [row, number]).slice(1);
  order.sort((a, b) => lost(b[0]) - lost(a[0]));
  for (const [row, number] of order) lines.append(edge(row, number, rows[row.above]));
  rows.forEach((row, number) => lines.append(drawn("circle", {
    cx: 9 + row.lane * LANE, cy: ROW / 2 + number * ROW, r: lost(row) ? 2.5 : 4, class: row.mark,
  })));
  list.replaceChildren(make("li", "heads", make("span", "label", "after the last token"),
    make("span", "q", "draft q"), make("span", "p", "model p")), ...rows.map(rowItem));
  list.append(make("li", "lines", lines));
}

// Asks the server: its key, a streamed reply, and the two runs of a race.

const KEY = "mlxspec-key";
const RACED = [["drafted", {}], ["plain", { num_draft_tokens: 0 }]];
const SIDES = { drafted: "with guesses", plain: "model alone" };

/** Talks to the server, with its key once that is known. */
class Server {
  constructor(askKey) {
    this.askKey = askKey;
    this.key = sessionStorage.getItem(KEY) || "";
  }

  useKey(key) {
    this.key = key;
    sessionStorage.setItem(KEY, key);
  }

  get(path) { return this.send(path, {}); }

  post(path, body, signal) {
    const headers = { "Content-Type": "application/json" };
    return this.send(path, { method: "POST", body: JSON.stringify(body), headers, signal });
  }

  async send(path, how) {
    for (;;) {
      const used = this.key;
      const own = used ? { Authorization: `Bearer ${used}` } : {};
      const response = await fetch(path, { ...how, headers: { ...how.headers, ...own } })
        .catch((error) => { throw how.signal?.aborted ? error : new Error("the server does not answer"); });
      if (response.ok) return response;
      if (response.status !== 401) throw new Error(await messageOf(response));
      if (this.key === used) await this.askKey(used ? "this key is not the one of the server" : "");
    }
  }
}

async function messageOf(response) {
  const body = await response.json().catch(() => null);
  return body?.error?.message || `the server answered with status ${response.status}`;
}

/** Write one reply; call `said` with its name and text so far. Return {name, text, timings}. */
async function ask(server, fields, signal, said) {
  const { prompt, ...settings } = fields;
  const body = {
    messages: [{ role: "user", content: prompt }], stream: true,
    stream_options: { include_usage: true }, ...settings,
  };
  const response = await server.post("/v1/chat/completions", body, signal);
  const reply = { name: "", text: "", timings: null, tokens: 0 };
  for await (const { data } of serverEvents(response)) {
    if (data === "[DONE]") break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    reply.name = `${chunk.id.replace("chatcmpl-", "")}-0`; // as the events name it
    reply.text += chunk.choices[0]?.delta.content || "";
    reply.text += chunk.choices[0]?.delta.reasoning_content || "";
    if (chunk.timings) [reply.timings, reply.tokens] = [chunk.timings, chunk.timings.predicted_n];
    said(reply);
  }
  if (!reply.timings) throw new Error("the reply was cut off");
  return reply;
}

/** Return what two runs of a race have in common, in words. */
function verdictOf(drafted, plain, replies) {
  const [one, other] = [drafted, plain].map((run) => replies.all.get(run.name));
  const isKnown = one?.isWhole && other?.isWhole
    && one.tokens.length === drafted.tokens && other.tokens.length === plain.tokens;
  if (!isKnown) {
    const is = drafted.text === plain.text;
    return { is, words: `${is ? "identical" : "different"} texts; not all events of their tokens came` };
  }
  const [left, right] = [one.tokens, other.tokens];
  const most = Math.max(left.length, right.length);
  let same = 0;
  while (same < most && left[same] === right[same]) same += 1;
  if (same === most) return { is: true, words: `identical: ${same} of ${most} tokens` };
  return { is: false, words: `different from token ${same + 1} of ${most} on; near-ties are decided by rounding` };
}

function speedsOf(drafted, plain) {
  const [fast, slow] = [drafted, plain].map((run) => run.timings.predicted_per_second);
  const ratio = slow ? ` · ${(fast / slow).toFixed(1)}x the speed` : "";
  return `${fast.toFixed(1)} against ${slow.toFixed(1)} tokens/s${ratio}`;
}

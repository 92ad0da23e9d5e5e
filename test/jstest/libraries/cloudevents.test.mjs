// CloudEvents' own SDK publishes to a sidecar and reads what the sidecar gives out, in each mode of HTTP.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CloudEvent, emitterFor, HTTP, httpTransport, Mode } from "cloudevents";
import { listen, startSidecar } from "./sidecar.mjs";

// The SDK neither encodes nor decodes what an HTTP header cannot hold as it is, so that is in the data alone; and there is no event
// without data, which it cannot send in binary mode.
const attributes = {
  source: "/shop?x=1", type: "com.example.order", subject: "a/b", dataschema: "https://example.com/schema",
  time: "2024-05-06T07:08:09.010Z", partitionkey: "k", color: "rot", count: 7,
};
const samples = {
  "an object": { datacontenttype: "application/json", data: { n: 1.5, list: [null, true], text: "ö" } },
  "a text": { datacontenttype: "text/plain; charset=utf-8", data: "grün\n" },
};

// same compares an event with the one that was sent: extensions come back as text.
function same(got, sent, what) {
  for (const [name, value] of Object.entries({ ...attributes, id: sent.id, specversion: "1.0" })) {
    assert.equal(String(got[name]), String(value), `${what}: ${name}`);
  }
  const text = (e) => (Buffer.isBuffer(e.data) || e.data instanceof Uint8Array ? Buffer.from(e.data).toString() : e.data ?? null);
  assert.deepEqual(text(got), text(sent), `${what}: data`);
  if (sent.datacontenttype) assert.equal(got.datacontenttype, sent.datacontenttype, `${what}: datacontenttype`);
}

test("what the SDK publishes, it reads as it was", { timeout: 120_000 }, async (t) => {
  const endpoint = await listen(t, () => true);
  const formats = ["cloudevents", "cloudevents-structured"];
  const { listen: address, replay } = await (await startSidecar(t, endpoint.url, formats)).start();
  for (const [kind, sample] of Object.entries(samples)) {
    for (const mode of [Mode.BINARY, Mode.STRUCTURED]) {
      for (const format of formats) {
        const what = `${kind}, ${mode} in, ${format} out`;
        const sent = new CloudEvent({ ...attributes, ...sample });
        await emitterFor(httpTransport(`http://${address}/v1/topics/${format}/events`), { mode })(sent);
        same(HTTP.toEvent(await endpoint.next()), sent, what);
        const page = await (await fetch(`http://${replay}/replay?topic=${format}&format=cloudevents`)).json();
        same(new CloudEvent(page.events.find(({ id }) => id === sent.id)), sent, `${what}, replayed`);
      }
    }
  }
  const batch = [1, 2, 3].map((n) => new CloudEvent({ ...attributes, data: n }));
  const answer = await fetch(`http://${address}/v1/topics/batch/events`, {
    method: "POST", headers: { "Content-Type": "application/cloudevents-batch+json" }, body: JSON.stringify(batch),
  });
  assert.equal(answer.status, 200);
  const exported = await fetch(`http://${replay}/export?topic=batch&ndjson=0&format=cloudevents`);
  const back = HTTP.toEvent({ headers: { "content-type": "application/cloudevents-batch+json" }, body: await exported.text() });
  assert.deepEqual(back.map(({ data }) => data).sort(), [1, 2, 3]);
});

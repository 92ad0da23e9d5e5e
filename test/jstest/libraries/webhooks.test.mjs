// Standard Webhooks' own library verifies what a sidecar pushes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Webhook, WebhookVerificationError } from "standardwebhooks";
import { listen, startSidecar } from "./sidecar.mjs";

const secretOf = (letter) => `whsec_${Buffer.from(letter.repeat(32)).toString("base64")}`;
const [first, second, other] = ["a", "b", "c"].map(secretOf);
const formats = ["event", "cloudevents", "cloudevents-structured", "payload"];

test("the library verifies pushed events, through a rotation of secrets", { timeout: 120_000 }, async (t) => {
  let secret = first; // of the endpoint
  const endpoint = await listen(t, ({ body, headers }) => {
    try {
      return new Webhook(secret).verify(body, headers) !== undefined;
    } catch {
      return false;
    }
  });
  const sidecar = await startSidecar(t, endpoint.url, formats, ", secret_file: secret");
  sidecar.secrets(first);
  const { listen: address } = await sidecar.start();
  const publish = async (topic) => {
    const answer = await fetch(`http://${address}/v1/topics/${topic}/events`, {
      method: "POST", body: `{"n":1.50,"text":"ö"}`, headers: { "Content-Type": "application/json" },
    });
    assert.equal(answer.status, 201, await answer.text());
    return endpoint.next();
  };

  for (const format of formats) {
    const { body, headers } = await publish(format);
    const verify = (key, text, changed) => new Webhook(key).verify(text, { ...headers, ...changed });
    verify(first, body);
    for (const [why, attempt] of Object.entries({
      "a tampered body": () => verify(first, body.replace("1.50", "2.50")),
      "another secret": () => verify(other, body),
      "another id": () => verify(first, body, { "webhook-id": "evt_x" }),
      "an old time": () => verify(first, body, { "webhook-timestamp": String(headers["webhook-timestamp"] - 3600) }),
    })) assert.throws(attempt, WebhookVerificationError, `${format}: ${why}`);
  }

  sidecar.secrets(second, first); // the endpoint still has the first
  let came = await publish("event");
  while (came.headers["webhook-signature"].split(" ").length < 2) came = await publish("event");
  new Webhook(second).verify(came.body, came.headers);
  secret = second;
  sidecar.secrets(second);
  while (came.headers["webhook-signature"].split(" ").length > 1) came = await publish("event");
  assert.throws(() => new Webhook(first).verify(came.body, came.headers), WebhookVerificationError);
});

// Standard Webhooks' own library for JavaScript verifies what a sidecar pushes. SLUICE_SIDECAR is the sidecar's program.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

const secretOf = (letter) => `whsec_${Buffer.from(letter.repeat(32)).toString("base64")}`;
const [first, second, other] = ["a", "b", "c"].map(secretOf);

// receive answers 401 until an event is signed with a secret, as an endpoint does, and returns the request.
async function receive(t) {
  const requests = [];
  const waiting = [];
  const state = { secret: first, port: 0 };
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray()).toString();
    try {
      new Webhook(state.secret).verify(body, request.headers);
    } catch {
      return response.writeHead(401).end();
    }
    response.writeHead(204).end();
    const came = { body, headers: request.headers };
    waiting.length > 0 ? waiting.shift()(came) : requests.push(came);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.closeAllConnections() ?? server.close());
  state.port = server.address().port;
  state.next = () => requests.shift() ?? new Promise((resolve) => waiting.push(resolve));
  return state;
}

test("the library verifies pushed events, through a rotation of secrets", { timeout: 120_000 }, async (t) => {
  const dir = mkdtempSync(join(tmpdir(), "sluice-webhooks-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const endpoint = await receive(t);
  const secrets = (...list) => writeFileSync(join(dir, "secret"), list.join("\n"), { mode: 0o600 });
  secrets(first);
  writeFileSync(join(dir, "policies.yaml"), `[{name: "*", delivery: {max_attempts: 1000, backoff: {min: 10ms, max: 100ms}}}]`);
  const formats = ["event", "cloudevents", "cloudevents-structured", "payload"];
  writeFileSync(join(dir, "push.yaml"), formats.map((format) =>
    `- {topic: ${format}, group: g, from: earliest, format: ${format}, secret_file: secret, `
    + `url: "http://127.0.0.1:${endpoint.port}"}`).join("\n"));
  const any = ["--listen", "--replay-listen", "--ops-listen"].flatMap((flag) => [flag, "127.0.0.1:0"]);
  const child = spawn(process.env.SLUICE_SIDECAR, [...any, "--data-dir", join(dir, "data"), "--policies", join(dir, "policies.yaml"),
    "--push", join(dir, "push.yaml")], { stdio: ["ignore", "pipe", "ignore"] });
  t.after(() => new Promise((resolve) => { child.once("exit", resolve); child.kill("SIGKILL"); }));
  const line = await new Promise((resolve) => createInterface({ input: child.stdout }).once("line", resolve));
  const { listen } = JSON.parse(line);
  const publish = async (topic) => {
    const answer = await fetch(`http://${listen}/v1/topics/${topic}/events`, {
      method: "POST", body: `{"n":1.50,"text":"ö"}`, headers: { "Content-Type": "application/json" },
    });
    assert.equal(answer.status, 201, await answer.text());
    return endpoint.next();
  };

  for (const format of formats) {
    const { body, headers } = await publish(format);
    const verify = (secret, text, changed) => new Webhook(secret).verify(text, { ...headers, ...changed });
    verify(first, body);
    for (const [why, attempt] of Object.entries({
      "a tampered body": () => verify(first, body.replace("1.50", "2.50")),
      "another secret": () => verify(other, body),
      "another id": () => verify(first, body, { "webhook-id": "evt_x" }),
      "an old time": () => verify(first, body, { "webhook-timestamp": String(headers["webhook-timestamp"] - 3600) }),
    })) assert.throws(attempt, WebhookVerificationError, `${format}: ${why}`);
  }

  secrets(second, first); // the endpoint still has the first
  let came = await publish("event");
  while (came.headers["webhook-signature"].split(" ").length < 2) came = await publish("event");
  new Webhook(second).verify(came.body, came.headers);
  endpoint.secret = second;
  secrets(second);
  while (came.headers["webhook-signature"].split(" ").length > 1) came = await publish("event");
  assert.throws(() => new Webhook(first).verify(came.body, came.headers), WebhookVerificationError);
});

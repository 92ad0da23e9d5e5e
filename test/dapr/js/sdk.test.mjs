// Dapr's SDK for JavaScript, unmodified, at a sidecar: applications over HTTP and over gRPC. SLUICE_SIDECAR is the
// sidecar's program.
import assert from "node:assert/strict";
import { fork, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { CommunicationProtocolEnum, DaprClient, LogLevel } from "@dapr/dapr";

const policies = `[{name: "*", publish: {rate: 0}, connection: {rate: 0}, partitions: 1,
  delivery: {max_attempts: 3, backoff: {min: 1ms, max: 10ms}}}]`;
const logger = { level: LogLevel.Error };

// startSidecar starts a sidecar with its data in dir, and returns its addresses.
async function startSidecar(dir, ...args) {
  writeFileSync(join(dir, "policies.yaml"), policies);
  const any = ["--listen", "--replay-listen", "--ops-listen", "--dapr-grpc-listen"].flatMap((flag) => [flag, "127.0.0.1:0"]);
  const child = spawn(process.env.SLUICE_SIDECAR, [
    ...any, "--dapr-app-id", "shop", "--data-dir", join(dir, "data"), "--policies", join(dir, "policies.yaml"), ...args,
  ], { stdio: ["ignore", "pipe", process.env.VERBOSE ? "inherit" : "ignore"] });
  const ready = await new Promise((resolve, reject) => {
    child.stdout.once("data", (line) => resolve(JSON.parse(line)));
    child.once("exit", (status) => reject(new Error(`the sidecar ends with ${status}`)));
  });
  const stop = () => new Promise((resolve) => { child.once("exit", resolve); child.kill("SIGTERM"); });
  return { http: ready.listen.split(":")[1], grpc: ready.dapr_grpc.split(":")[1], stop };
}

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return String(port);
}

// Queue hands over what handlers were given.
class Queue {
  #items = [];
  #waiting = [];
  put(item) { this.#waiting.length > 0 ? this.#waiting.shift()(item) : this.#items.push(item); }
  async next() {
    if (this.#items.length > 0) return this.#items.shift();
    let timer;
    const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error("no event came")), 30_000); });
    return Promise.race([new Promise((resolve) => this.#waiting.push(resolve)), late]).finally(() => clearTimeout(timer));
  }
}

// subscribed waits until publishing to a topic reaches its handler: a group begins at the latest event.
async function subscribed(client, topic, queue) {
  for (let came = false; !came;) {
    await client.pubsub.publish("pubsub", topic, "there?");
    came = await Promise.race([queue.next().then(() => true), new Promise((resolve) => setTimeout(resolve, 300, false))]);
    if (!came) queue.put("there?"); // for the next that waits in vain
  }
  await new Promise((resolve) => setTimeout(resolve, 500));
}

for (const [name, protocol] of [["http", CommunicationProtocolEnum.HTTP], ["grpc", CommunicationProtocolEnum.GRPC]]) {
  test(`publish and subscribe over ${name}`, { timeout: 120_000 }, async (t) => {
    const dir = mkdtempSync(join(tmpdir(), "sluice-dapr-"));
    t.after(() => rmSync(dir, { recursive: true, force: true }));
    const port = await freePort();
    let sidecar = await startSidecar(dir, "--dapr-app", `${name}://127.0.0.1:${port}`);
    t.after(() => sidecar.stop());
    const options = () => ({ daprHost: "127.0.0.1", daprPort: sidecar[name], communicationProtocol: protocol, logger });
    const queues = { ready: new Queue(), orders: new Queue(), dead: new Queue(), routed: new Queue() };
    if (name === "http") queues.bulk = new Queue();
    const startApplication = async () => {
      const child = fork(new URL("application.mjs", import.meta.url), [name, port, sidecar[name]]);
      child.on("message", ({ topic, data }) => queues[topic].put(data));
      t.after(() => child.kill());
      await queues.ready.next();
      return () => new Promise((resolve) => { child.once("exit", resolve); child.kill("SIGKILL"); });
    };
    let killApplication = await startApplication();
    let client = new DaprClient(options());
    await client.start();
    const publish = async (topic, data, more) => assert.deepEqual(await client.pubsub.publish("pubsub", topic, data, more), {});
    for (const topic of Object.keys(queues)) {
      if (topic !== "ready") await subscribed(client, topic, queues[topic]);
      queues[topic] = new Queue();
    }

    await publish("orders", { n: 1, text: "ä" });
    assert.deepEqual(await queues.orders.next(), { n: 1, text: "ä" });
    await publish("orders", "text");
    assert.equal(await queues.orders.next(), "text");
    await publish("orders", "retry");
    assert.deepEqual([await queues.orders.next(), await queues.orders.next()], ["retry", "retry"]);
    await publish("orders", "drop");
    assert.equal(await queues.orders.next(), "drop");
    assert.equal(await queues.dead.next(), "drop");
    await publish("orders", "fail");
    for (let i = 0; i < 3; i++) assert.equal(await queues.orders.next(), "fail");
    assert.equal(await queues.dead.next(), "fail");
    await publish("routed", "a", { metadata: { "cloudevent.type": "big" } });
    assert.equal(await queues.routed.next(), "a");

    const sent = ["one", "two", { n: 3 }];
    assert.deepEqual(await client.pubsub.publishBulk("pubsub", "orders", sent), { failedMessages: [] });
    const got = [await queues.orders.next(), await queues.orders.next(), await queues.orders.next()];
    assert.deepEqual(got.map((data) => JSON.stringify(data)).sort(), sent.map((data) => JSON.stringify(data)).sort());
    if (name === "http") { // over gRPC the SDK leaves metadata out
      const partly = await client.pubsub.publishBulk("pubsub", "orders", [
        { entryID: "a", event: "x", contentType: "text/plain", metadata: { ttlInSeconds: "0" } },
        { entryID: "b", event: "y", contentType: "text/plain" },
      ]);
      assert.equal(await queues.orders.next(), "y");
      assert.deepEqual(partly.failedMessages.map((m) => m.message.entryID), ["a"]);
      await client.pubsub.publishBulk("pubsub", "bulk", sent);
      for (let i = 0; i < sent.length; i++) await queues.bulk.next();
      await publish("bulk", "retry");
      assert.equal(await queues.bulk.next(), "retry");
    }
    const refused = await client.pubsub.publish("pubsub", "_reserved", "x").catch((thrown) => thrown); // by gRPC
    assert.match(String(refused.error), /reserved/);
    assert.equal((await client.metadata.get()).id, "shop");
    assert.equal(await client.health.isHealthy(), true);

    await killApplication();
    await publish("orders", "while the application is away");
    killApplication = await startApplication();
    assert.equal(await queues.orders.next(), "while the application is away");
    await client.stop();
    await sidecar.stop();
    sidecar = await startSidecar(dir, "--dapr-app", `${name}://127.0.0.1:${port}`);
    client = new DaprClient(options());
    await client.start();
    await publish("orders", "after a restart of the sidecar");
    assert.equal(await queues.orders.next(), "after a restart of the sidecar");
    await client.stop();
  });
}

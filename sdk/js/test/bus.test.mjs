// The bus with a real sidecar: what an application sees of publishing, subscribing and history, and what faults do to it.
import assert from "node:assert/strict"
import {createHash} from "node:crypto"
import {test} from "node:test"
import {
  BatchError, BatchPublisher, ClosedError, ConflictError, deadLetter, hold, LostError, NotFoundError, SluiceError,
} from "@sluice-bus/sluice"
import {Proxy, Sidecar, until} from "./sidecar.mjs"

test("publish, subscribe and the history", async t => {
  const sidecar = await Sidecar.start(t)
  const bus = sidecar.bus(t)
  const receipt = await bus.publish("orders", {n: 1}, {id: "a", key: "k", headers: {h: "v"}, tags: ["eu"], caused_by: ["x"], sid: "s"})
  assert.deepEqual({...receipt, ts: 0, partition: 0}, {id: "a", ts: 0, partition: 0, seq: receipt.seq, durability: "store"})
  assert.equal((await bus.publish("orders", {n: 1}, {id: "a", key: "k", headers: {h: "v"}})).duplicate, true)
  await assert.rejects(bus.publish("orders", {n: 2}, {id: "a", key: "k"}), err => err instanceof ConflictError && err.code === "conflict")
  await bus.publish("orders", new Uint8Array([0, 200, 255]), {id: "b", key: "k", headers: {"content-type": "image/x"}})

  const seen = []
  const subscription = await bus.subscribe("orders", {group: "g", from: "earliest"}, (event, ctx) => seen.push([event, ctx.attempt]))
  await until(() => seen.length === 2)
  const [[first, attempt], [second]] = seen
  assert.deepEqual({...first, ts: 0, partition: 0, seq: 0}, {
    id: "a", ts: 0, topic: "orders", partition: 0, seq: 0, key: "k", headers: {h: "v"}, tags: ["eu"],
    caused_by: ["x"], sid: "s", payload: {n: 1},
  })
  assert.equal(attempt, 1)
  assert.deepEqual(second.payload, new Uint8Array([0, 200, 255]))
  await until(async () => (await sidecar.status("orders", "g")).lag === 0)
  await subscription.drain()

  for (const history of [bus.replay("orders", {limit: 1}), bus.exportAll("orders")]) {
    assert.deepEqual((await all(history)).map(event => event.id), ["a", "b"])
  }
  await assert.rejects(all(bus.replay("orders", {from: "afterId", afterId: "nowhere"})), NotFoundError)
})

async function all(events) {
  const list = []
  for await (const event of events) list.push(event)
  return list
}

test("one handler at a time for a key, in log order, while others run", async t => {
  const bus = (await Sidecar.start(t)).bus(t)
  const keys = ["a", "b", "c", "d"], count = 25
  await Promise.all(keys.flatMap(key => Array.from({length: count}, (_, n) => bus.publish("steps", n, {key}))))
  const reached = {}, running = new Set()
  let together = 0, handled = 0
  await bus.subscribe("steps", {group: "g", from: "earliest", concurrency: 4}, async ({key, payload}) => {
    assert.equal(running.has(key), false)
    running.add(key)
    together = Math.max(together, running.size)
    await new Promise(resolve => setImmediate(resolve))
    assert.equal(payload, reached[key] ?? 0)
    reached[key] = payload + 1
    running.delete(key)
    handled++
  })
  await until(() => handled === keys.length * count)
  assert.ok(together > 1)
})

test("a handler that fails is called again, gives back, holds and dead-letters", async t => {
  const sidecar = await Sidecar.start(t)
  const bus = sidecar.bus(t)
  const calls = {}
  await bus.subscribe("jobs", {group: "g", from: "earliest", maxAttempts: 3}, ({id}, {attempt}) => {
    (calls[id] ??= []).push(attempt)
    if (id === "never") throw new Error("out of paper")
    if (id === "dead") throw deadLetter(new Error("not a job"))
    if (id === "later" && calls[id].length === 1) throw hold(10, "not yet")
  })
  await Promise.all(["never", "dead", "later"].map(id => bus.publish("jobs", id, {id})))
  const dead = []
  await bus.subscribe("jobs.dlq", {from: "earliest"}, ({headers}) => dead.push(headers))
  await until(() => dead.length === 2 && calls.later?.length === 2)
  assert.deepEqual(calls, {never: [1, 2, 3], dead: [1], later: [1, 1]})
  assert.deepEqual(dead.map(h => `${h["sluice-dlq-id"]}: ${h["sluice-dlq-reason"]}`).sort(), ["dead: not a job", "never: out of paper"])

  let failures = 0 // in hand: the attempt stays
  const attempts = []
  await bus.subscribe("jobs", {group: "in-hand"}, (_, {attempt}) => {
    attempts.push(attempt)
    if (failures++ < 2) throw new Error("for a moment")
  })
  await bus.publish("jobs", "again")
  await until(() => attempts.length === 3)
  assert.deepEqual(attempts, [1, 1, 1])
})

test("events() acks what the loop has finished, and gives back what it left", async t => {
  const sidecar = await Sidecar.start(t)
  const bus = sidecar.bus(t)
  for (const id of ["a", "b", "c"]) await bus.publish("orders", id, {id, key: "k"})
  const read = async (most, from) => {
    const ids = []
    for await (const event of bus.events("orders", {group: "g", from})) {
      ids.push(event.id)
      if (ids.length === most) break
    }
    return ids
  }
  assert.deepEqual(await read(2, "earliest"), ["a", "b"])
  assert.deepEqual(await read(2), ["b", "c"])
  const {members} = await sidecar.status("orders", "g")
  assert.deepEqual(members, [])
  const end = new AbortController()
  const reading = (async () => {
    for await (const _ of bus.events("orders", {group: "g", signal: end.signal})) end.abort(new Error("enough"))
  })()
  await assert.rejects(reading, /enough/)
})

test("ack by hand: of the context, and of the bus", async t => {
  const sidecar = await Sidecar.start(t)
  const bus = sidecar.bus(t)
  const seen = []
  await bus.subscribe("orders", {group: "g", from: "earliest", manualAck: true}, (event, ctx) => seen.push({event, ctx}))
  for (const id of ["a", "b", "c"]) await bus.publish("orders", id, {id})
  await until(() => seen.length === 3)
  assert.equal((await sidecar.status("orders", "g")).inflight ?? 3, 3)
  await seen.find(({event}) => event.id === "a").ctx.ack()
  await bus.ack("orders", "g", "b")
  await bus.ack("orders", "g", "nowhere")
  await assert.rejects(bus.ack("orders", "other", "b"), {code: "not_subscribed"})
  await seen.find(({event}) => event.id === "c").ctx.nack({delay_ms: 0})
  await until(() => seen.length === 4)
  assert.deepEqual([seen[3].event.id, seen[3].ctx.attempt], ["c", 2])
})

test("killed and started again: nothing is lost, no key is out of order, no event is handled twice while it is in hand", async t => {
  const sidecar = await Sidecar.start(t)
  const bus = sidecar.bus(t)
  const keys = ["a", "b", "c"], count = 60
  const reached = {}
  let repeated = 0
  await bus.subscribe("steps", {group: "g", from: "earliest", concurrency: 3}, async ({key, payload}) => {
    const before = reached[key] ?? 0
    if (payload < before) return void repeated++ // its ack was lost with the sidecar
    assert.equal(payload, before)
    reached[key] = payload + 1
    await new Promise(resolve => setTimeout(resolve, 1))
  })
  const receipts = keys.flatMap(key => Array.from({length: count}, (_, n) => bus.publish("steps", n, {key})))
  for (let round = 0; round < 3; round++) {
    await new Promise(resolve => setTimeout(resolve, 30))
    await sidecar.kill()
    await sidecar.up()
  }
  for (const receipt of await Promise.all(receipts)) assert.notEqual(receipt.duplicate, true)
  await until(() => keys.every(key => reached[key] === count))
  const stored = await all(bus.exportAll("steps"))
  assert.equal(stored.length, keys.length * count)
  t.diagnostic(`${repeated} repeated`)
})

test("connections cut, and answers late", async t => {
  const sidecar = await Sidecar.start(t)
  const proxy = await Proxy.start(t, sidecar.url)
  const changes = []
  const bus = sidecar.bus(t, {url: proxy.url, onConnection: change => changes.push(change)})
  let handled = 0
  const ids = new Set()
  await bus.subscribe("orders", {group: "g", from: "earliest"}, async ({id}) => {
    ids.add(id)
    handled++
  })
  const receipts = []
  for (let round = 0; round < 10; round++) {
    const go = proxy.hold()
    for (let n = 0; n < 10; n++) receipts.push(bus.publish("orders", n, {key: `k${n}`}))
    await new Promise(resolve => setTimeout(resolve, 10))
    if (round % 2 === 0) proxy.cut()
    go()
    await new Promise(resolve => setTimeout(resolve, 10))
  }
  await Promise.all(receipts)
  await until(() => ids.size === 100)
  const ofOrders = changes.filter(change => change.topic === "orders")
  assert.ok(ofOrders.some(change => change.error) && ofOrders.some(change => !change.error))
  await until(async () => (await sidecar.status("orders", "g")).lag === 0)
  t.diagnostic(`${handled - 100} repeated`)
})

test("a handler whose connection broke is told, its event is not handled twice, and its result still counts", async t => {
  const sidecar = await Sidecar.start(t)
  const proxy = await Proxy.start(t, sidecar.url)
  const bus = sidecar.bus(t, {url: proxy.url})
  let calls = 0, go
  const began = new Promise(resolve => bus.subscribe("orders", {group: "g", from: "earliest"}, async (_, ctx) => {
    calls++
    resolve(ctx)
    await new Promise(end => go = end)
  }))
  await bus.publish("orders", 1)
  const ctx = await began
  proxy.cut()
  await until(() => ctx.signal.aborted)
  assert.ok(ctx.signal.reason instanceof LostError)
  await until(async () => (await sidecar.status("orders", "g")).members?.length === 1)
  await new Promise(resolve => setTimeout(resolve, 50))
  go()
  await until(async () => (await sidecar.status("orders", "g")).lag === 0)
  assert.equal(calls, 1)
})

test("without a group: every event once, also across a lost connection", async t => {
  const sidecar = await Sidecar.start(t)
  const proxy = await Proxy.start(t, sidecar.url)
  const reader = sidecar.bus(t, {url: proxy.url}), bus = sidecar.bus(t)
  const seen = []
  await reader.subscribe("orders", {from: "latest"}, ({payload}) => seen.push(payload))
  for (let n = 0; n < 100; n++) {
    await bus.publish("orders", n)
    if (n % 20 === 10) proxy.cut()
  }
  await until(() => seen.length >= 100)
  assert.deepEqual(seen.toSorted((a, b) => a - b), Array.from({length: 100}, (_, n) => n))
})

test("a publish that waits ends with its signal, and a bus that is closed says so", async t => {
  const sidecar = await Sidecar.start(t)
  const bus = sidecar.bus(t)
  await bus.publish("orders", 1)
  await sidecar.kill()
  const controller = new AbortController()
  const waiting = bus.publish("orders", 2, {signal: controller.signal})
  const pending = bus.publish("orders", 3)
  pending.catch(() => {})
  controller.abort(new Error("too late"))
  await assert.rejects(waiting, /too late/)
  await assert.rejects(bus.subscribe("orders", {group: "g", signal: AbortSignal.timeout(50)}, () => {}), {name: "TimeoutError"})
  await bus.close()
  await assert.rejects(pending, ClosedError)
  await assert.rejects(bus.publish("orders", 4), ClosedError)
  await assert.rejects(bus.subscribe("orders", {}, () => {}), ClosedError)
})

test("a token is asked for each connection; one that is refused fails what waits, and a later one is good", async t => {
  const sha256 = createHash("sha256").update("good").digest("hex")
  const rights = `publish: ["*"], subscribe: ["*"], replay: ["*"]`
  const sidecar = await Sidecar.start(t, {auth: `tokens: [{name: shop, sha256: ${sha256}, ${rights}}]\n`})
  let token = "bad"
  const bus = sidecar.bus(t, {token: async () => token})
  await assert.rejects(bus.publish("orders", 1), {name: "UnauthorizedError", code: "unauthorized"})
  await assert.rejects(bus.subscribe("orders", {group: "g"}, () => {}), {code: "unauthorized"})
  await assert.rejects(all(bus.replay("orders")), {code: "unauthorized"})
  token = "good"
  await until(() => bus.publish("orders", 1).then(() => true, () => false))
  assert.ok((await all(bus.replay("orders"))).length > 0)
})

test("BatchPublisher flushes, and says what was refused", async t => {
  const sidecar = await Sidecar.start(t)
  const bus = sidecar.bus(t, {maxPending: 50})
  const batch = new BatchPublisher(bus)
  for (let n = 0; n < 500; n++) await batch.publish("orders", n, {key: `k${n % 7}`})
  await batch.flush()
  assert.equal((await all(bus.exportAll("orders"))).length, 500)
  await batch.publish("orders", 1)
  await batch.publish("orders.dlq", 2, {id: "x"})
  await assert.rejects(batch.flush(), err => {
    const [{options, error}] = err.failed
    return err instanceof BatchError && err.count === 1 && options.id === "x" && error.code === "bad_request"
  })
  await batch[Symbol.asyncDispose]()
})

test("limits are waited for, and refusals that are for good are not", async t => {
  const policy = "- name: \"*\"\n  publish: {rate: 50, burst: 10}\n- name: stopped\n  paused: true\n"
  const bus = (await Sidecar.start(t, {policy})).bus(t)
  const receipts = await Promise.all(Array.from({length: 30}, (_, n) => bus.publish("orders", n)))
  assert.equal(new Set(receipts.map(receipt => receipt.id)).size, 30)
  await assert.rejects(bus.publish("stopped", 1), {code: "topic_paused", name: "TopicPausedError"})
  await assert.rejects(bus.publish("orders", "x".repeat(2 << 20)), {code: "payload_too_large"})
  await assert.rejects(bus.publish("orders", "x".repeat(20 << 20)), {code: "payload_too_large"})
  await assert.rejects(bus.publish("orders", undefined), {code: "bad_request"})
  const misspelt = bus.subscribe("orders", {group: "g", maxInFlight: 1}, () => {})
  await assert.rejects(misspelt, err => err instanceof SluiceError && /maxInflight/.test(err.message))
})

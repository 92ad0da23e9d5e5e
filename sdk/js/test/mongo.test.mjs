// What the package has for MongoDB, on the server of MONGODB_URI, a replica set.
import assert from "node:assert/strict"
import {randomUUID} from "node:crypto"
import {test} from "node:test"
import {MongoClient} from "mongodb"
import {subscribeExactlyOnce} from "@sluice-bus/sluice"
import {MongoDedupe, MongoPartitions, MongoSnapshots, Outbox} from "@sluice-bus/sluice/mongo"
import {startFrom, subscribePartitioned} from "@sluice-bus/sluice/state"
import {Sidecar, until} from "./sidecar.mjs"

const uri = process.env.MONGODB_URI
const needsServer = {skip: uri ? false : "MONGODB_URI is not set"}

async function database(t) {
  const client = new MongoClient(uri)
  await client.connect()
  const db = client.db("js-" + randomUUID())
  t.after(async () => {
    await db.dropDatabase()
    await client.close()
  })
  return {client, db}
}

test("Outbox: published if and only if the transaction is committed, each key in order", needsServer, async t => {
  const {client, db} = await database(t)
  const outbox = new Outbox(db)
  await outbox.prepare()
  await outbox.prepare()
  const target = uri.replace(/^(mongodb(?:\+srv)?:\/\/[^/?]+)[^?]*/, `$1/${db.databaseName}`) // of several hosts, so no URL
  const sidecar = await Sidecar.start(t, {args: ["--outbox", `${target}#outbox`]})
  const seen = {}
  await sidecar.bus(t).subscribe("orders", {group: "g", from: "earliest"}, event => (seen[event.key] ??= []).push(event))

  const insert = (events, fail = false, options) => client.withSession(session => session.withTransaction(async () => {
    await db.collection("orders").insertOne({}, {session})
    await outbox.insert(session, events, options)
    if (fail) throw new Error("declined")
  }))
  const whole = {
    id: "first", topic: "orders", key: "a", headers: {h: "v"}, tags: ["t"], caused_by: ["c"], sid: "s", ttl_ms: 3600_000, payload: 0,
  }
  await insert(whole)
  await Promise.all([1, 2, 3].map(n => insert([{topic: "orders", payload: n, key: "a"}, {topic: "orders", payload: [n], key: "a"}])))
  await insert({topic: "orders", payload: new Uint8Array([255]), key: "bytes"})
  await insert({topic: "orders", payload: "soon", key: "soon"}, false, {deliverAt: new Date(Date.now() + 100)})
  await assert.rejects(insert({topic: "orders", payload: "never", key: "never"}, true), /declined/)
  await until(() => seen.a?.length === 7 && seen.bytes && seen.soon)
  const [{ts, partition, seq, ...first}, ...rest] = seen.a
  assert.deepEqual(first, whole)
  for (let i = 0; i < rest.length; i += 2) assert.deepEqual(rest[i + 1].payload, [rest[i].payload])
  assert.deepEqual(seen.bytes[0].payload, new Uint8Array([255]))
  assert.equal(seen.never, undefined)

  await client.withSession(session => assert.rejects(outbox.insert(session, {topic: "orders", payload: 1}), /transaction/))
  for (const bad of [
    {topic: "a/b"}, {topic: "a.dlq"}, {id: "with space"}, {key: "k".repeat(513)}, {payload: "x".repeat(2 << 20)},
    {headers: {h: "x".repeat(20_000)}},
  ]) {
    await assert.rejects(insert({topic: "orders", payload: 1, ...bad}), {code: "bad_request"})
  }
})

test("subscribeExactlyOnce: what the store has seen is acked and not handled, also after a seek", needsServer, async t => {
  const {db} = await database(t)
  const sidecar = await Sidecar.start(t)
  const bus = sidecar.bus(t)
  const store = new MongoDedupe(db)
  const handled = []
  let fails = true
  const subscription = await subscribeExactlyOnce(bus, "orders", "g", store, ({id}) => {
    handled.push(id)
    if (id === "b" && fails) {
      fails = false
      throw new Error("for a moment")
    }
  }, {from: "earliest", ttlMs: 60_000})
  for (const id of ["a", "b", "c"]) await bus.publish("orders", id, {id, key: "k"})
  await until(async () => (await sidecar.status("orders", "g")).lag === 0)
  assert.deepEqual(handled, ["a", "b", "b", "c"])
  const answer = await fetch(`${sidecar.url}/v1/topics/orders/groups/g/cursor`, {method: "PUT", body: '{"from":"earliest"}'})
  assert.equal(answer.status, 204)
  await bus.publish("orders", "d", {id: "d", key: "k"})
  await until(() => handled.includes("d"))
  assert.deepEqual(handled, ["a", "b", "b", "c", "d"])
  await subscription.drain()
  await store.mark("orders", "g", "past", -1)
  const seen = await Promise.all([["g", "past"], ["g", "a"], ["h", "a"]].map(([group, id]) => store.seen("orders", group, id)))
  assert.deepEqual(seen, [false, true, false])
})

test("snapshots: a consumer that is killed at any time has each event once", needsServer, async t => {
  const {db} = await database(t)
  const sidecar = await Sidecar.start(t)
  const bus = sidecar.bus(t)
  const store = new MongoSnapshots(db, "totals")
  const options = {initial: () => ({count: 0, sum: 0}), apply: ({count, sum}, {payload}) => ({count: count + 1, sum: sum + payload})}
  let applied = 0
  for (let round = 0; round < 4; round++) {
    const life = sidecar.bus(t)
    const consumer = await startFrom(life, "orders", store, {...options, apply: (state, event) => (applied++, options.apply(state, event))})
    for (let n = 0; n < 20; n++) await bus.publish("orders", n)
    await until(() => consumer.state.count === 20 * (round + 1))
    assert.equal(consumer.state.sum, 190 * (round + 1))
    if (round % 2 === 0) await consumer.close()
    else await life.close() // as a kill would: no snapshot
  }
  assert.equal(applied, 20 + 20 + 40 + 20 + 0)
})

test("partitions: each has its state, which has each event once, and moves with it", needsServer, async t => {
  const {db} = await database(t)
  const sidecar = await Sidecar.start(t)
  const bus = sidecar.bus(t)
  const keys = Array.from({length: 20}, (_, n) => `k${n}`)
  const publish = from => Promise.all(keys.flatMap(key => [0, 1, 2].map(n => bus.publish("orders", from + n, {key}))))
  const consumer = async () => {
    const life = sidecar.bus(t)
    await subscribePartitioned(life, "orders", "g", new MongoPartitions(db, "orders/g"), (state, {key, payload}) => {
      assert.equal(payload, state[key] ?? 0)
      return {...state, [key]: payload + 1}
    }, {initial: () => ({}), from: "earliest"})
    return life
  }
  const reached = async count => until(async () => {
    const states = await db.collection("partitions").find().toArray()
    const all = Object.assign({}, ...states.map(({state}) => state))
    return keys.every(key => all[key] === count)
  })
  const first = await consumer()
  await publish(0)
  await reached(3)
  const second = await consumer()
  await publish(3)
  await reached(6)
  await first.close()
  await publish(6)
  await reached(9)
  await until(async () => (await sidecar.status("orders", "g")).lag === 0)
  await second.close()
  const store = new MongoPartitions(db, "orders/g")
  const state = await store.load(0)
  await assert.rejects(store.save(0, state), /another consumer/)
})

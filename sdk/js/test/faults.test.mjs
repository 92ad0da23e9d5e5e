// Faults at random, while everything that the package has for consuming is in use: connections are cut and held up, the sidecar is
// killed, consumers leave and come back. Nothing is lost, and what must not be repeated is not.
import assert from "node:assert/strict"
import {test} from "node:test"
import {startFrom, subscribePartitioned} from "@sluice-bus/sluice/state"
import {Proxy, Sidecar, until} from "./sidecar.mjs"

const keys = ["a", "b", "c", "d", "e"], count = 60
const total = keys.length * count
const random = n => Math.floor(Math.random() * n)
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

// next is the state of a key after an event, which has to be the next of its key.
function next(state, {key, payload}) {
  assert.equal(payload, state[key] ?? 0, `the order of ${key}`)
  return {...state, [key]: payload + 1}
}

/** A store of snapshots, and of partitions, that forgets nothing and takes a moment. */
class Store {
  snapshot
  partitions = new Map()

  async load(partition) {
    await sleep(random(5))
    return structuredClone(partition === undefined ? this.snapshot : this.partitions.get(partition))
  }

  async save(first, state) {
    await sleep(random(5))
    if (state === undefined) return void (this.snapshot = structuredClone(first))
    if ((this.partitions.get(first)?.version ?? 0) !== state.version - 1) throw new Error("another consumer has saved it")
    this.partitions.set(first, structuredClone(state))
  }

  get states() {
    return Object.assign({}, ...[...this.partitions.values()].map(({state}) => state))
  }
}

test("random faults", {timeout: 120_000}, async t => {
  const sidecar = await Sidecar.start(t)
  const proxies = await Promise.all(Array.from({length: 4}, () => Proxy.start(t, sidecar.url)))
  const [publisher, first, second, alone] = proxies.map(({url}) => sidecar.bus(t, {url, maxPending: 40}))
  const store = new Store()
  let handled = {}, repeated = 0

  // Each of these may leave and come back.
  const group = () => second.subscribe("t", {group: "g", from: "earliest", concurrency: 3}, async event => {
    if (event.payload < (handled[event.key] ?? 0)) return void repeated++ // another consumer of the group had it
    const after = next(handled, event)
    await sleep(random(5))
    if (random(30) === 0) throw new Error("for a moment")
    handled = {...handled, [event.key]: after[event.key]}
  })
  const partitions = bus => subscribePartitioned(bus, "t", "p", store, next, {initial: () => ({}), from: "earliest"})
  const snapshots = () => startFrom(alone, "t", store, {initial: () => ({}), apply: next, everyMs: 50})

  const lone = []
  await alone.subscribe("t", {from: "earliest"}, ({key, payload}) => lone.push(`${key}${payload}`))
  await partitions(first)
  let member = await group(), divided = await partitions(second), consumer = await snapshots()
  let over = false
  const faults = (async () => {
    while (!over) {
      await sleep(random(60))
      const proxy = proxies[random(proxies.length)]
      const fault = [
        async () => {
          await member.stop()
          member = await group()
        },
        async () => {
          await divided.stop()
          divided = await partitions(second)
        },
        async () => {
          await consumer.close()
          consumer = await snapshots()
        },
        async () => {
          await sidecar.kill()
          await sidecar.up()
        },
        async () => {
          const go = proxy.hold()
          await sleep(random(30))
          go()
        },
      ][random(10)]
      if (fault) await fault()
      else proxy.cut()
    }
  })()

  const receipts = []
  for (let n = 0; n < count; n++) {
    receipts.push(...keys.map(key => publisher.publish("t", n, {key})))
    await sleep(random(10))
  }
  for (const {duplicate} of await Promise.all(receipts)) assert.equal(duplicate, undefined)
  over = true
  await faults
  const whole = Object.fromEntries(keys.map(key => [key, count]))
  for (const state of [() => handled, () => store.states, () => consumer.state]) {
    await until(() => keys.every(key => state()[key] === count))
    assert.deepEqual(state(), whole)
  }
  await until(() => lone.length >= total)
  assert.equal(new Set(lone).size, lone.length)
  t.diagnostic(`${repeated} repeated`)
})

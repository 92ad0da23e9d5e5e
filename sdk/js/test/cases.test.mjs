// The cases that all SDKs run: sdk/testdata/cases says what the steps mean.
import assert from "node:assert/strict"
import {readFileSync} from "node:fs"
import {createServer} from "node:http"
import {join} from "node:path"
import {test} from "node:test"
import {WebSocketServer} from "ws"
import {ClosedError, deadLetter, hold, LostError, retryIn, RevokedError} from "@sluice-bus/sluice"
import {busOf} from "./sidecar.mjs"

const patienceMs = 30_000
const quietMs = 30

/** What has come and was not asked for yet; take waits for the next. */
class Inbox {
  items = []
  #wake = () => {}

  put(item) {
    this.items.push(item)
    this.#wake()
  }

  async take() {
    for (const end = Date.now() + patienceMs; this.items.length === 0;) {
      if (Date.now() > end) throw new Error("nothing came")
      await new Promise(resolve => {
        this.#wake = resolve
        setTimeout(resolve, patienceMs).unref()
      })
    }
    return this.items.shift()
  }
}

/** A server that leaves every answer but those to PING and AUTH to the case. */
class Server {
  frames = new Inbox()
  connections = new Set()
  last // the frame that came last
  // The last SUBSCRIBE and PUBLISH, with their connections.
  subscribe
  publish
  url

  static async start(t) {
    const server = new Server()
    const http = createServer()
    const sockets = new WebSocketServer({server: http, path: "/ws"})
    sockets.on("connection", socket => {
      server.connections.add(socket)
      socket.on("message", data => server.#receive(socket, JSON.parse(data)))
    })
    await new Promise(resolve => http.listen(0, "127.0.0.1", resolve))
    server.url = `http://127.0.0.1:${http.address().port}`
    t.after(() => {
      for (const socket of server.connections) socket.terminate()
      http.close()
    })
    return server
  }

  #receive(socket, frame) {
    if (frame.op === "AUTH" || frame.op === "PING") {
      if (!socket.mute) socket.send(JSON.stringify({op: "OK", corr: frame.corr}))
      return
    }
    this.frames.put({socket, frame: normal(frame)})
  }

  async receive() {
    this.last = await this.frames.take()
    const {op} = this.last.frame
    if (op === "SUBSCRIBE" || op === "PUBLISH") this[op.toLowerCase()] = this.last
    return this.last.frame
  }
}

function normal({id, ...frame}) {
  if (frame.op !== "PUBLISH") return id === undefined ? frame : {...frame, ids: [id]}
  const {op, corr, topic, events = [frame]} = frame
  return {op, corr, events: events.map(event => ({topic: event.topic ?? topic, payload: event.payload, ...event.opts}))}
}

class Run {
  calls = new Inbox()
  handlers = new Map()
  results = {}
  names = {}

  constructor(bus, server) {
    this.bus = bus
    this.server = server
  }

  handler = (event, ctx) => new Promise((resolve, reject) => {
    this.handlers.set(event.id, {resolve, reject, ...ctx})
    this.calls.put({id: event.id, attempt: ctx.attempt})
  })

  steps = {
    publish: ({as, topic, payload, ...options}) => {
      this.results[as] = this.bus.publish(topic, payload, options).then(receipt => ({receipt}), error => ({error}))
    },
    subscribe: ({topic, rebalance, ...options}) => {
      const hooks = rebalance ? {onAssigned: () => {}} : {}
      this.subscription = this.bus.subscribe(topic, {...options, ...hooks}, this.handler)
      this.subscription.catch(() => {})
    },
    return: id => this.handlers.get(id).resolve(),
    throw: ({id, error, retryInMs, holdMs, deadLetter: dead}) => {
      let err = new Error(error)
      if (retryInMs !== undefined) err = retryIn(retryInMs, err)
      if (holdMs !== undefined) err = hold(holdMs, err)
      if (dead) err = deadLetter(err)
      this.handlers.get(id).reject(err)
    },
    ack: ({as, id}) => {
      this.results[as] = this.handlers.get(id).ack().then(() => ({}), error => ({error}))
    },
    acked: async ({ids, stale = []}) => {
      const left = new Set(ids)
      while (left.size > 0) {
        const {op, ids} = await this.server.receive()
        assert.equal(op, "ACK")
        for (const id of ids) assert(left.delete(id), id)
        const lost = ids.filter(id => stale.includes(id))
        this.steps.reply(lost.length > 0 ? {op: "ERR", code: "stale_lease", msg: "lost", ids: lost} : {})
      }
    },
    pause: async () => (await this.subscription).pause(),
    resume: async () => (await this.subscription).resume(),
    stop: async () => void (await this.subscription).stop(),
    drain: async () => void (await this.subscription).drain(),
    receive: async want => this.match(await this.server.receive(), want),
    reply: members => {
      const {socket, frame} = this.server.last
      socket.send(JSON.stringify({op: "OK", corr: frame.corr, ...this.filled(members)}))
    },
    deliver: events => {
      const {socket, frame: {topic, group}} = this.server.subscribe
      const deliveries = events.map(({attempt = 1, ack_deadline_ms = 30_000, ...event}) => (
        {event: {ts: 1, topic, partition: 0, payload: 1, ...event}, ctx: {attempt, ack_deadline_ms}}
      ))
      const [first, ...others] = deliveries
      const frame = others.length > 0 ? {op: "EVENTS", topic, group, events: deliveries} : {op: "EVENT", topic, group, ...first}
      socket.send(JSON.stringify(frame))
    },
    send: frame => this.server.subscribe.socket.send(JSON.stringify(frame)),
    cut: of => this.server[of].socket.terminate(),
    close: ({of, code}) => this.server[of].socket.close(code),
    mute: () => this.server.connections.forEach(socket => socket.mute = true),
    handled: async want => this.match(await this.calls.take(), want),
    aborted: async ({id, cause}) => {
      const {signal} = this.handlers.get(id)
      if (!signal.aborted) await new Promise(resolve => signal.addEventListener("abort", resolve))
      const kind = {lost: LostError, revoked: RevokedError, closed: ClosedError}[cause]
      assert.equal(signal.reason.constructor, kind)
    },
    result: async ({of, code, receipt}) => {
      const {receipt: got, error} = await this.results[of]
      if (code || !receipt) assert.equal(error?.code, code)
      else this.match(got ?? error, receipt)
    },
    ended: async ({code}) => assert.equal((await (await this.subscription).closed)?.code, code),
    quiet: async () => {
      await new Promise(resolve => setTimeout(resolve, quietMs))
      this.nothingIsLeft()
    },
  }

  nothingIsLeft() {
    assert.deepEqual([this.server.frames.items.map(({frame}) => frame), this.calls.items], [[], []])
  }

  /** The members with the names of $ in place. */
  filled(members) {
    return Object.fromEntries(Object.entries(members).map(([name, value]) => [name, this.names[value] ?? value]))
  }

  match(got, want, at = "") {
    if (want === null) return assert.equal(got, undefined, at)
    if (typeof want === "string" && want.startsWith("$")) return assert.equal(got, this.names[want] ??= got, at)
    if (typeof want !== "object") return assert.equal(got, want, at)
    if (Array.isArray(want)) assert.equal(got?.length, want.length, at)
    for (const [name, value] of Object.entries(want)) this.match(got?.[name], value, `${at}/${name}`)
  }
}

for (const file of ["publish", "consume"]) {
  for (const {name, options, steps} of JSON.parse(readFileSync(join(import.meta.dirname, `../../testdata/cases/${file}.json`), "utf8"))) {
    test(`${file}: ${name}`, async t => {
      const server = await Server.start(t)
      const run = new Run(busOf(t, {url: server.url, ...options}), server)
      for (const [i, step] of steps.entries()) {
        const [[verb, argument]] = Object.entries(step)
        try {
          await run.steps[verb](argument)
        } catch (err) {
          err.message = `step ${i + 1}, ${JSON.stringify(step)}: ${err.message}`
          throw err
        }
      }
      run.nothingIsLeft()
      for (const {resolve} of run.handlers.values()) resolve()
    })
  }
}

test("acks that follow one another share a frame", async t => {
  const server = await Server.start(t)
  const run = new Run(busOf(t, {url: server.url}), server)
  run.handler = () => {}
  run.steps.subscribe({topic: "t", group: "g"})
  await server.receive()
  run.steps.reply({})
  run.steps.deliver(Array.from({length: 200}, (_, i) => ({id: `e${i}`, seq: i + 1})))
  assert.deepEqual([(await server.receive()).ids.length, (await server.receive()).ids.length], [128, 72])
})

// What an application needs to talk to its sidecar over WebSocket: requests that find their answers, publishes and
// subscriptions that outlive a broken connection. Copy it, and make it yours.
import {randomUUID} from "node:crypto"

// Node.js has one of its own since version 22.
const WebSocket = globalThis.WebSocket ?? (await import("ws")).default

const shortestPause = 50, longestPause = 5000 // ms between two attempts to connect

export class Sluice {
  #url
  #socket
  #pause = shortestPause
  #closing = false
  #corr = 0
  #waiting = new Map() // requests without an answer, in the order in which they were made: corr → {frame, again, resolve, reject}
  #subscriptions = []

  constructor(url) {
    this.#url = url
    this.#connect()
  }

  // publish resolves to the receipt once the event is durable. Do not wait for one before the next: they are answered as
  // they become durable. What has no answer when the connection breaks is sent again, in order; the id makes that harmless.
  publish(topic, payload, opts = {}) {
    return this.#request({op: "PUBLISH", topic, payload, opts: {id: randomUUID(), ...opts}}, true)
  }

  // subscribe calls handle(event, ctx) for each event of the topic, for as long as this lives. What handle returns from is
  // acked. What it throws at is delivered again, and in the end moved to the topic's dead letters.
  subscribe(topic, group, opts, handle) {
    const subscription = {topic, group, opts, handle}
    this.#subscriptions.push(subscription)
    if (this.#socket.readyState === WebSocket.OPEN) this.#join(subscription)
  }

  // cut breaks the connection, to show that it comes back.
  cut() {
    this.#socket.close()
  }

  close() {
    this.#closing = true
    this.#socket.close()
  }

  #connect() {
    const socket = this.#socket = new WebSocket(this.#url)
    socket.addEventListener("open", () => {
      this.#pause = shortestPause
      for (const [corr, {frame}] of this.#waiting) this.#send(corr, frame)
      for (const subscription of this.#subscriptions) this.#join(subscription)
    })
    socket.addEventListener("message", ({data}) => this.#receive(JSON.parse(data)))
    socket.addEventListener("error", () => {}) // close follows
    socket.addEventListener("close", () => this.#lost())
  }

  #lost() {
    for (const [corr, {again, reject}] of this.#waiting) {
      if (again && !this.#closing) continue
      this.#waiting.delete(corr)
      reject(new Error("the connection is closed"))
    }
    if (this.#closing) return
    setTimeout(() => this.#connect(), this.#pause * (0.5 + Math.random()))
    this.#pause = Math.min(2 * this.#pause, longestPause)
  }

  #request(frame, again = false) {
    return new Promise((resolve, reject) => {
      const corr = String(++this.#corr)
      this.#waiting.set(corr, {frame, again, resolve, reject})
      if (this.#socket.readyState === WebSocket.OPEN) return this.#send(corr, frame)
      if (again && !this.#closing) return // it is sent once there is a connection
      this.#waiting.delete(corr)
      reject(new Error("the connection is closed"))
    })
  }

  #send(corr, frame) {
    this.#socket.send(JSON.stringify({...frame, corr}))
  }

  #receive(message) {
    switch (message.op) {
    case "EVENT":
      return this.#handle(message)
    case "OK":
    case "ERR": {
      const request = this.#waiting.get(message.corr)
      this.#waiting.delete(message.corr)
      if (message.op === "OK") request?.resolve(message)
      else request?.reject(Object.assign(new Error(message.msg), {code: message.code, retryAfter: message.retry_after_ms}))
    }
    }
  }

  // An answer that gets lost is no harm: the next connection subscribes anew, and what was not acked comes again.
  #join({topic, group, opts}) {
    this.#request({op: "SUBSCRIBE", topic, group, opts}).catch(err => console.error(`subscribe to ${topic}:`, err.message))
  }

  async #handle({topic, group, event, ctx}) {
    const subscription = this.#subscriptions.find(s => s.topic === topic && s.group === group)
    let settle = {op: "ACK", topic, group, id: event.id}
    try {
      await subscription.handle(event, ctx)
    } catch (err) {
      settle = {...settle, op: "NACK", reason: err.message}
    }
    await this.#request(settle).catch(() => {})
  }
}

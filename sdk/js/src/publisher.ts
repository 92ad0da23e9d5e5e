import {Connection, resultError, type Result} from "./connection.js"
import {encodeEvent, newId} from "./encoding.js"
import {ClosedError, refusal, refused, retryAfter, SluiceError} from "./errors.js"
import {keep} from "./link.js"
import {bad, type Settings} from "./settings.js"
import {deferred, type Deferred} from "./time.js"
import {traced} from "./tracing.js"
import type {EventOptions, PublishOptions, Receipt} from "./types.js"

const batchEvents = 100 // the most of one request; it fits the burst that a connection has by default
const batchSize = 1 << 20 // in characters; the event that crosses it is the last of its batch
const maxRequests = 64 // on their way at a time

/** One event on its way to its result. */
interface Entry extends Deferred<Receipt> {
  queue: TopicQueue
  id: string
  key: string
  text: string
  fresh: boolean // the id was made here
  state: "ready" | "behind" | "sent" | "done" // behind another event of its key
  abandoned: boolean // nobody waits for it any more
  alone: boolean // it was sent while nothing else was on its way
  uncertain: boolean // it was sent, and its outcome is unknown
  refusal?: SluiceError
}

/** What becomes of an event: accepted resolves once there is room for it, done with its receipt. */
export interface Offered {
  accepted: Promise<void>
  done: Promise<Receipt>
}

/** An event that waits for room. */
interface Turn {
  size: number
  enter(): void
  fail(err: unknown): void
}

/** The events of one topic. Of each key at most one is ready or on its way; the others are behind it. */
class TopicQueue {
  ready: Entry[] = []
  behind = new Map<string, Entry[]>()
  // After a refusal that asks for time the topic is on hold until then, and goes on with few requests at a time.
  until = 0
  width = maxRequests
  most = batchEvents
  requests = 0
  left = 0

  constructor(readonly name: string) {}
}

/**
 * Publishes without waiting for each: many events are on their way at a time. An event has an id before it is sent, so sending it
 * again, after a broken connection or when the sidecar asks for time, stores nothing twice. The next event of a (topic, key) is
 * sent when the one before has its result.
 */
export class Publisher {
  readonly #settings: Settings
  readonly #stop = new AbortController()
  readonly #topics = new Map<string, TopicQueue>()
  readonly #room: Turn[] = [] // who waits for room, the first first
  readonly #idle: Deferred<void>[] = []
  #running?: Promise<void>
  #conn?: Connection
  #timer?: ReturnType<typeof setTimeout>
  #scheduled = false
  #until = 0 // the connection is on hold
  #requests = 0
  #solo = false // one event at a time, to find the one that ends connections
  #count = 0 // events without a result
  #size = 0

  readonly #closed: () => void

  /** closed is called once it is closed. */
  constructor(settings: Settings, closed: () => void) {
    this.#settings = settings
    this.#closed = closed
  }

  /** Takes one event. */
  offer(topic: string, payload: unknown, {signal, ...opts}: PublishOptions): Offered {
    const entry = this.#entry(topic, payload, opts)
    const accepted = deferred<void>()
    const offered = {accepted: accepted.promise, done: entry.promise}
    const fail = (err: unknown) => {
      accepted.reject(err)
      entry.reject(err)
      return offered
    }
    if (this.#stop.signal.aborted) return fail(new ClosedError())
    if (signal?.aborted) return fail(signal.reason)
    const turn: Turn = {
      size: entry.text.length,
      enter: () => {
        this.#add(entry)
        accepted.resolve()
      },
      fail,
    }
    const aborted = () => {
      const at = this.#room.indexOf(turn)
      if (at >= 0) this.#room.splice(at, 1)
      fail(signal?.reason)
      if (at < 0) this.#abandon(entry)
    }
    signal?.addEventListener("abort", aborted)
    entry.promise.finally(() => signal?.removeEventListener("abort", aborted)).catch(() => {})
    if (this.#room.length === 0 && this.#fits(turn)) turn.enter()
    else this.#room.push(turn)
    return offered
  }

  #fits({size}: Turn): boolean {
    const {maxPending, maxPendingBytes} = this.#settings
    return this.#count === 0 || this.#count < maxPending && this.#size + size <= maxPendingBytes
  }

  #entry(topic: string, payload: unknown, opts: EventOptions): Entry {
    if (typeof topic !== "string") bad(`the topic is ${typeof topic}; a text is needed`)
    const id = opts.id ?? newId()
    const headers = traced(opts.headers)
    const text = encodeEvent(payload, {...opts, id, headers})
    const queue = this.#topics.get(topic) ?? new TopicQueue(topic)
    return {
      ...deferred<Receipt>(), queue, id, key: opts.key ?? "", text, fresh: opts.id === undefined,
      state: "ready", abandoned: false, alone: false, uncertain: false,
    }
  }

  #add(entry: Entry): void {
    const queue = this.#topics.get(entry.queue.name) ?? entry.queue
    this.#topics.set(queue.name, queue)
    entry.queue = queue
    this.#count++
    this.#size += entry.text.length
    queue.left++
    const behind = entry.key === "" ? undefined : queue.behind.get(entry.key)
    if (behind) {
      entry.state = "behind"
      behind.push(entry)
    } else {
      if (entry.key !== "") queue.behind.set(entry.key, [])
      queue.ready.push(entry)
    }
    this.#running ??= keep(this.#settings, {
      name: "publishing", change: {}, serve: (conn, up) => this.#serve(conn, up), failed: err => this.#refused(err),
    }, this.#stop.signal)
    this.#schedule()
  }

  /** Resolves once every event that was taken has its result. */
  flush(): Promise<void> {
    if (this.#count === 0 && this.#room.length === 0) return Promise.resolve()
    const idle = deferred<void>()
    this.#idle.push(idle)
    return idle.promise
  }

  /** Ends the publisher: events without a result fail. */
  async close(): Promise<void> {
    this.#stop.abort()
    clearTimeout(this.#timer)
    this.#conn?.close()
    await this.#running
    this.#failAll(new ClosedError())
    this.#closed()
  }

  /** Fails what waits for a connection that is refused for good, because of its token for example. A later publish tries again. */
  #refused(err: Error): boolean {
    if (retryAfter(err) === undefined) this.#failAll(err)
    return false
  }

  #failAll(err: Error): void {
    for (const turn of this.#room.splice(0)) turn.fail(err)
    for (const queue of [...this.#topics.values()]) {
      for (const entry of [...queue.ready, ...[...queue.behind.values()].flat()]) this.#finish(entry, err)
    }
  }

  async #serve(conn: Connection, up: () => void): Promise<void> {
    up()
    this.#conn = conn
    if (this.#stop.signal.aborted) conn.close()
    this.#send()
    await conn.ended
    this.#conn = undefined
    await Promise.resolve() // until here the failed requests have been put back
  }

  /** Sends what may be sent, once what runs now has ended: it may publish more. */
  #schedule(): void {
    if (this.#scheduled) return
    this.#scheduled = true
    queueMicrotask(() => {
      this.#scheduled = false
      this.#send()
    })
  }

  #send(): void {
    clearTimeout(this.#timer)
    for (const conn = this.#conn; conn && !conn.cause;) {
      const {batch, wait} = this.#next(Date.now())
      if (batch) {
        void this.#request(conn, batch)
        continue
      }
      if (wait < Infinity) this.#timer = setTimeout(() => this.#send(), wait)
      return
    }
  }

  /** Takes the next batch, of the topic whose turn it is; where there is none, how long to wait unless something happens. */
  #next(now: number): {batch?: Entry[], wait: number} {
    if (this.#requests >= maxRequests || this.#solo && this.#requests > 0) return {wait: Infinity}
    if (this.#until > now) return {wait: this.#until - now}
    let wait = Infinity
    for (const queue of this.#topics.values()) {
      if (queue.ready.length === 0 || queue.requests >= queue.width) continue
      if (queue.until > now) {
        wait = Math.min(wait, queue.until - now)
        continue
      }
      this.#topics.delete(queue.name) // the others' turns come before its next one
      this.#topics.set(queue.name, queue)
      return {batch: this.#take(queue), wait: 0}
    }
    return {wait}
  }

  #take(queue: TopicQueue): Entry[] {
    const most = this.#solo ? 1 : queue.most
    let count = 0
    for (let size = 0; count < Math.min(most, queue.ready.length) && size < batchSize; count++) size += queue.ready[count]!.text.length
    const batch = queue.ready.splice(0, count)
    for (const entry of batch) {
      entry.state = "sent"
      entry.alone = this.#solo
    }
    queue.requests++
    this.#requests++
    return batch
  }

  async #request(conn: Connection, batch: Entry[]): Promise<void> {
    const queue = batch[0]!.queue
    const topic = `"topic":${JSON.stringify(queue.name)}`
    const events = () => `"events":[${batch.map(entry => `{${entry.text}}`).join()}]`
    const members = `${topic},${batch.length === 1 ? batch[0]!.text : events()}`
    let results: Result[] = []
    let failed: unknown
    try {
      const reply = await conn.request("PUBLISH", members)
      results = batch.length === 1 ? [reply as Result] : reply.results ?? []
      const whole = results.length === batch.length
      if (!whole) failed = refusal("internal", `the sidecar gave ${results.length} results for a batch of ${batch.length}`)
    } catch (err) {
      failed = err
    }
    queue.requests--
    this.#requests--
    if (failed instanceof ClosedError) this.#lost(batch, failed)
    else if (batch.length > 1 && /^(bad_request|payload_too_large)$/.test(refused(failed)?.code ?? "")) {
      queue.most = Math.max(1, Math.min(queue.most, batch.length >> 1)) // for a burst, say: which event is not known
      this.#putBack(batch)
    } else this.#answered(queue, batch, results, refused(failed))
    this.#schedule()
  }

  /** Takes the answer to a batch: its results, or the refusal of all. */
  #answered(queue: TopicQueue, batch: Entry[], results: Result[], refusal: SluiceError | undefined): void {
    const again: Entry[] = []
    batch.forEach((entry, i) => {
      const result = results[i]
      const error = refusal ?? (result?.code === undefined ? undefined : resultError(result))
      if (!error) return this.#finish(entry, result as Receipt)
      entry.refusal = error
      const after = retryAfter(error)
      if (after === undefined || entry.abandoned) return this.#finish(entry, error)
      const until = Date.now() + after
      if (error.details.scope === "connection") this.#until = Math.max(this.#until, until)
      queue.until = Math.max(queue.until, until)
      queue.width = 1
      again.push(entry)
    })
    if (again.length === 0) queue.width = Math.min(2 * queue.width, maxRequests)
    this.#putBack(again)
  }

  /** Takes back a batch whose connection ended before the answer. */
  #lost(batch: Entry[], cause: ClosedError): void {
    if (cause.closeCode === 1009 || cause.closeCode === 1007) { // too big, or not UTF-8
      if (batch[0]!.alone) {
        this.#solo = false
        return this.#finish(batch[0]!, refusal(cause.closeCode === 1009 ? "payload_too_large" : "bad_request", cause.message))
      }
      this.#solo = true // to find out which event it was
    }
    for (const entry of batch) entry.uncertain = true
    this.#putBack(batch.filter(entry => !entry.abandoned || void this.#finish(entry, cause)))
  }

  /** Makes the events of a batch ready again, before all others. */
  #putBack(batch: Entry[]): void {
    for (const entry of batch) entry.state = "ready"
    batch[0]?.queue.ready.unshift(...batch)
  }

  /** Ends a publish whose caller waits no longer. If it is on its way, its outcome stays unknown. */
  #abandon(entry: Entry): void {
    if (entry.state === "sent") entry.abandoned = true
    else this.#finish(entry, entry.refusal ?? new ClosedError())
  }

  /** Gives an event its result, and lets the next one of its key go. */
  #finish(entry: Entry, result: Receipt | Error): void {
    const {queue, key, state} = entry
    if (state === "done") return
    entry.state = "done"
    const behind = queue.behind.get(key)
    if (state === "behind") behind!.splice(behind!.indexOf(entry), 1)
    if (state === "ready") queue.ready.splice(queue.ready.indexOf(entry), 1)
    if (state !== "behind" && behind) {
      const next = behind.shift()
      if (next) {
        next.state = "ready"
        queue.ready.push(next)
      } else queue.behind.delete(key)
    }
    if (--queue.left === 0) this.#topics.delete(queue.name)
    this.#count--
    this.#size -= entry.text.length
    if (result instanceof Error) entry.reject(result)
    else {
      const {durability, ...place} = result
      if (entry.uncertain && entry.fresh) delete place.duplicate // of its own first try alone
      entry.resolve({...place, durability})
    }
    while (this.#room[0] && this.#fits(this.#room[0])) this.#room.shift()!.enter()
    if (this.#count === 0) {
      this.#solo = false
      for (const idle of this.#idle.splice(0)) idle.resolve()
    }
  }
}

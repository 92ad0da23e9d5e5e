import {ClosedError, SluiceError} from "./errors.js"
import {History, type ExportOptions, type ReplayOptions} from "./history.js"
import {Publisher} from "./publisher.js"
import {settingsOf, type Settings} from "./settings.js"
import {Subscription} from "./subscription.js"
import {orAborted} from "./time.js"
import type {BusOptions, EventRecord, Handler, PublishOptions, Receipt, SubscribeOptions} from "./types.js"

const disposeTimeoutMs = 30_000

/**
 * Publishes to one sidecar, subscribes to it and reads its history. It connects when it is needed, and again when a connection
 * breaks. `close`, `drain` or `await using` ends it; until then its connections keep the process running.
 */
export class EventBus implements AsyncDisposable {
  readonly #settings: Settings
  readonly #history: History
  readonly #publishers = new Set<Publisher>()
  readonly #publisher: Publisher
  readonly #subscriptions = new Set<Subscription>()
  #closed = false

  constructor(options: BusOptions = {}) {
    this.#settings = settingsOf(options)
    this.#history = new History(this.#settings)
    this.#publisher = this.publisher()
  }

  /** Publishes one event. Resolves once it is durable; do not wait for one before the next: many are sent together. */
  async publish(topic: string, payload: unknown, options: PublishOptions = {}): Promise<Receipt> {
    return this.#publisher.offer(topic, payload, options).done
  }

  /** A publisher of its own, with its own connection and bounds; see BatchPublisher. */
  publisher(): Publisher {
    if (this.#closed) throw new ClosedError()
    const publisher = new Publisher(this.#settings, () => this.#publishers.delete(publisher))
    this.#publishers.add(publisher)
    return publisher
  }

  /** Calls the handler for the events of a topic. Resolves once the sidecar has subscribed it. */
  subscribe<T = unknown>(topic: string, group: string, handler: Handler<T>, options?: SubscribeOptions): Promise<Subscription>
  subscribe<T = unknown>(topic: string, options: SubscribeOptions, handler: Handler<T>): Promise<Subscription>
  async subscribe<T>(
    topic: string, second: string | SubscribeOptions, handler: Handler<T>, more: SubscribeOptions = {},
  ): Promise<Subscription> {
    const options = typeof second === "string" ? {...more, group: second} : second
    if (this.#closed) throw new ClosedError()
    const subscription = new Subscription(this.#settings, topic, options.group ?? "", options, handler as Handler)
    this.#subscriptions.add(subscription)
    void subscription.closed.then(() => this.#subscriptions.delete(subscription))
    await subscription.start(options.signal)
    return subscription
  }

  /**
   * The events of a topic, one at a time. An event is acked when the loop asks for the next one. A loop that is left gives the event
   * in hand back, which then comes again.
   */
  async *events<T = unknown>(topic: string, options: SubscribeOptions = {}): AsyncGenerator<EventRecord<T>, void, void> {
    const waiting: {event: EventRecord<T>, done(): void}[] = []
    let wake = () => {}
    const handler: Handler<T> = (event, {signal}) => new Promise<void>((done, failed) => {
      const next = {event, done}
      waiting.push(next)
      signal.addEventListener("abort", () => {
        waiting.splice(waiting.indexOf(next) >>> 0, 1) // where the loop has it, nothing is removed
        failed(signal.reason)
      })
      wake()
    })
    const subscription = await this.subscribe<T>(topic, {...options, concurrency: 1}, handler)
    let ended = false
    void subscription.closed.then(() => {
      ended = true
      wake()
    })
    try {
      while (!ended) {
        const next = waiting.shift()
        if (!next) {
          await new Promise<void>(resolve => wake = resolve)
          continue
        }
        yield next.event
        next.done()
      }
    } finally {
      await subscription.stop()
    }
    options.signal?.throwIfAborted()
    throw subscription.error ?? new ClosedError()
  }

  /** Acks an event that a subscription with `manualAck` has in hand. Resolves once that is durable. */
  async ack(topic: string, group: string, id: string): Promise<void> {
    const subscriptions = [...this.#subscriptions].filter(s => s.topic === topic && s.group === group)
    if (subscriptions.length === 0) {
      throw new SluiceError("not_subscribed", `this bus is not subscribed to topic "${topic}" with group "${group}"`)
    }
    for (const subscription of subscriptions) if (await subscription.settle(id, "ack")) return
  }

  /** The history of a topic, page by page; nothing is held open between two pages. */
  replay<T = unknown>(topic: string, options: ReplayOptions = {}): AsyncGenerator<EventRecord<T>, void, void> {
    return this.#history.replay<T>(topic, options)
  }

  /** The history of a topic as one stream, which is faster than replay. It ends whole, or throws. */
  exportAll<T = unknown>(topic: string, options: ExportOptions = {}): AsyncGenerator<EventRecord<T>, void, void> {
    return this.#history.export<T>(topic, options)
  }

  /** Ends the bus at once: subscriptions stop, publishes without a receipt fail. Resolves when no handler runs any more. */
  async close(): Promise<void> {
    this.#closed = true
    const ends = [...this.#subscriptions].map(subscription => subscription.stop())
    await Promise.all([...ends, ...[...this.#publishers].map(publisher => publisher.close())])
  }

  /** Ends the bus in order: what was delivered is settled, what was published has its result. Where the signal aborts, close follows. */
  async drain({signal}: {signal?: AbortSignal} = {}): Promise<void> {
    try {
      await orAborted(Promise.all([...this.#subscriptions].map(subscription => subscription.drain())), signal)
      await orAborted(Promise.all([...this.#publishers].map(publisher => publisher.flush())), signal)
    } finally {
      await this.close()
    }
  }

  /** Drains, for 30 s at most. */
  async [Symbol.asyncDispose](): Promise<void> {
    const over = new AbortController()
    const timer = setTimeout(() => over.abort(new ClosedError(`the bus had not drained after ${disposeTimeoutMs} ms`)), disposeTimeoutMs)
    try {
      await this.drain({signal: over.signal})
    } finally {
      clearTimeout(timer)
    }
  }
}

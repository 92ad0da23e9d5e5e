import type {Connection, Delivery} from "./connection.js"
import {Dispatcher} from "./dispatcher.js"
import {Division} from "./division.js"
import {ClosedError, LostError, messageOf, nackOf, OutOfRangeError, refused, RevokedError} from "./errors.js"
import {Item, type Settlement} from "./item.js"
import {Leases} from "./leases.js"
import {keep, reach} from "./link.js"
import {optionsOf, type Options} from "./options.js"
import {longestAwayMs, Position} from "./position.js"
import {bad, type Settings} from "./settings.js"
import {orAborted, sleep} from "./time.js"
import {tracing} from "./tracing.js"
import type {Context, Handler, SubscribeOptions} from "./types.js"

const leaveTimeoutMs = 2000 // to give events back; the end of the connection does so, too, but counts an attempt
const confirmedForMs = 1000 // how long no handler has to ask whether an item is still this subscription's
const maxReasonLength = 1000 // in characters, of at most 4 bytes
const loneWindow = 1000 // events that a subscription without a group holds before the sidecar pauses

const ended = () => new ClosedError("the subscription has ended")

/**
 * Handles the events of one (topic, group), and makes its connection again when that breaks. Handlers that run go on meanwhile: when
 * one of their events comes again it is not handled twice, but settled as that handler says. So an event is rarely handled twice
 * here; another consumer of the group may have got it, too.
 */
export class Subscription implements AsyncDisposable {
  /** Resolves once it has ended and no handler runs: with why it ended by itself, or undefined. */
  readonly closed: Promise<Error | undefined>

  readonly #settings: Settings
  readonly #options: Options
  readonly #handler: Handler
  readonly #dispatcher: Dispatcher
  readonly #division: Division
  readonly #position = new Position()
  readonly #leases: Leases
  readonly #life = new AbortController() // aborts when there is nothing more to do than to leave
  readonly #running = new Set<Item>() // with a handler
  #conn?: Connection
  #size = 0
  #paused = false
  #toldPaused = false
  #draining = false
  #stopping = false
  #error?: Error
  #close!: (err: Error | undefined) => void

  /** Use `bus.subscribe`. */
  constructor(settings: Settings, readonly topic: string, readonly group: string, options: SubscribeOptions, handler: Handler) {
    this.#settings = settings
    this.#options = optionsOf(options)
    this.#handler = handler
    if (typeof handler !== "function") bad("the handler is missing")
    this.#dispatcher = new Dispatcher(group === "" && this.#options.concurrency === 1)
    this.#division = new Division(options, items => this.#open(items), err => this.#fail(err as Error))
    this.#leases = new Leases({
      names: this.#names(), maxExtensionMs: this.#options.maxExtensionMs, logger: settings.logger,
      conn: () => this.#stopping ? undefined : this.#conn,
      decided: item => this.#endPostponed(item),
      forgotten: item => {
        this.#endPostponed(item)
        this.#checkDrained()
      },
      revoked: id => this.#abandon(item => item.event.id === id, new RevokedError()),
    })
    this.closed = new Promise(resolve => this.#close = resolve)
  }

  /** Subscribes for the first time, and keeps the subscription going from then on. */
  async start(signal?: AbortSignal): Promise<void> {
    const life = this.#life.signal
    const aborted = () => this.#end(signal?.reason)
    if (signal?.aborted) aborted()
    signal?.addEventListener("abort", aborted, {signal: life})
    try {
      const conn = await reach(this.#settings, life, conn => orAborted(this.#join(conn), life))
      void this.#run(conn)
    } catch (err) {
      this.#end(err)
      this.#close(undefined)
      throw err
    }
  }

  async #run(conn: Connection): Promise<void> {
    await keep(this.#settings, {
      name: `topic ${this.topic}, group "${this.group}"`, change: {topic: this.topic, group: this.group},
      serve: (conn, up) => this.#serve(conn, up), failed: () => this.#error !== undefined,
    }, this.#life.signal, conn)
    this.#stopping = true
    this.#lost()
    this.#leases.end()
    this.#giveUp(this.#dispatcher.drop(() => true))
    for (const item of this.#leases.held.values()) if (!item.handler) this.#leases.forget(item, new LostError())
    this.#end(this.#error ?? ended())
    await Promise.all([...this.#running].map(item => item.handled))
    await this.#division.told()
    this.#close(this.#error)
  }

  /** Subscribes on a connection. */
  async #join(conn: Connection): Promise<void> {
    this.#conn = conn
    conn.onDeliveries = (deliveries, size) => this.#deliver(conn, deliveries, size / deliveries.length)
    conn.onDivision = (op, partitions) => this.#divide(conn, op, partitions)
    try {
      await this.#subscribe(conn)
    } catch (err) {
      this.#lost(conn)
      if (this.#options.endOnGap || !this.#position.misplaced(err)) throw err
      this.#settings.logger.warn(`sluice: a subscription to ${this.topic} cannot go on right where it was:`, messageOf(err))
      throw new ClosedError("the position no longer exists", {cause: err})
    }
    this.#toldPaused = false
    this.#tellPaused()
  }

  async #subscribe(conn: Connection): Promise<void> {
    if (this.#options.endOnGap && this.#position.awayMs() > longestAwayMs) {
      throw new OutOfRangeError("out_of_range", "the subscription had no connection for too long: deletions of keys are kept for a day")
    }
    const opts = this.group ? this.#options.wire : this.#position.from(this.#options.wire)
    const {positions} = await conn.request("SUBSCRIBE", {...this.#names(), opts})
    if (!this.group) this.#position.started(positions)
  }

  async #serve(conn: Connection, up: () => void): Promise<void> {
    if (this.#conn !== conn) {
      try {
        await orAborted(this.#join(conn), this.#life.signal)
      } catch (err) {
        this.#refused(err)
        throw err
      }
    }
    up()
    await orAborted(conn.ended, this.#life.signal).catch(() => this.#leave(conn))
    this.#lost(conn)
  }

  /** Gives the events that are not settled back, without counting an attempt. */
  async #leave(conn: Connection): Promise<void> {
    this.#stopping = true
    const left = new AbortController()
    conn.request("UNSUBSCRIBE", this.#names()).catch(() => {}).finally(() => left.abort())
    await sleep(leaveTimeoutMs, left.signal)
  }

  #names(): {topic: string, group: string | undefined} {
    return {topic: this.topic, group: this.group || undefined}
  }

  /** Notes a refusal that another try would not change. A token that is refused may be followed by another. */
  #refused(err: unknown): void {
    const refusal = refused(err)
    if (!refusal || !/^(bad_request|forbidden|not_found|out_of_range)$/.test(refusal.code)) return
    this.#error = refusal
    this.#settings.logger.error(`sluice: a subscription to ${this.topic} has ended: the sidecar refuses it:`, refusal.message)
  }

  #fail(err: Error): void {
    this.#error ??= err
    this.#end(err)
  }

  /** Why it ended by itself: the refusal of the sidecar, or the error of onAssigned or onRevoked. */
  get error(): Error | undefined {
    return this.#error
  }

  /** Lets no further handler start until resume. Those that run go on; deadlines are extended. */
  pause(): void {
    if (this.#draining) return
    this.#paused = true
    this.#tellPaused()
  }

  resume(): void {
    this.#paused = false
    this.#tellPaused()
    this.#spawn()
  }

  /** Ends it at once: the signals of handlers abort, unsettled events go back without counting an attempt. Resolves as closed does. */
  async stop(): Promise<void> {
    this.#end(ended())
    await this.closed
  }

  #end(cause: unknown): void {
    this.#stopping = true
    for (const {handler} of this.#running) handler?.abort(cause)
    this.#life.abort(cause)
  }

  /** Ends it in order: what was delivered is handled and settled, and nothing more is taken. Resolves as closed does. */
  async drain(): Promise<void> {
    if (!this.#draining && !this.#stopping) {
      this.#draining = true
      this.#paused = false
      this.#giveUp(this.#dispatcher.drop(item => this.#dispatcher.isPostponed(item) && item.failedAt !== undefined))
      this.#tellPaused()
      this.#spawn()
      this.#checkDrained()
    }
    await this.closed
  }

  /** Drains. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.drain()
  }

  #checkDrained(): void {
    const left = this.#running.size + this.#dispatcher.waiting + this.#leases.held.size
    if (this.#draining && left === 0) this.#life.abort(ended())
  }

  /** Pauses the sidecar while it is paused here, drains, or has no room; a new connection is told when it joins. */
  #tellPaused(): void {
    const full = this.#size > this.#options.maxBytes || !this.group && this.#dispatcher.waiting >= loneWindow
    const below = this.#size <= this.#options.maxBytes / 2 && this.#dispatcher.waiting < loneWindow / 2
    const paused = this.#paused || this.#draining || full || this.#toldPaused && !below
    if (paused === this.#toldPaused || !this.#conn) return
    this.#toldPaused = paused
    this.#conn.request(paused ? "PAUSE" : "RESUME", this.#names()).catch(() => {}) // a lost connection is another's matter
  }

  #deliver(conn: Connection, deliveries: Delivery[], size: number): void {
    if (this.#conn !== conn) return
    for (const delivery of deliveries) this.#receive(new Item(conn, delivery, size))
    this.#spawn()
    this.#tellPaused()
  }

  #receive(item: Item): void {
    const {id} = item.event
    if (!this.group) {
      if (this.#position.pass(item.event) && !this.#draining && !this.#stopping) this.#accept(item)
      return
    }
    const before = this.#leases.held.get(id)
    this.#leases.delivered(item)
    if (before && this.#comesAgain(before, item)) return
    if (this.#leases.ackAgain(item) || this.#draining || this.#stopping) return // what is not taken goes back when this leaves
    this.#leases.hold(item)
    this.#accept(item)
  }

  /** Takes the new delivery of an event that is in hand; false where it is to be handled anew. */
  #comesAgain(before: Item, item: Item): boolean {
    if (before.settlement !== undefined && before.settlement !== "ack") { // it was given back, and is here before the answer
      this.#leases.forget(before)
      return false
    }
    const left = before.returned && !before.settlement && Date.now() - before.since >= this.#options.maxExtensionMs
    if (left) { // by manualAck: it is handled again, as it would be elsewhere
      this.#leases.forget(before, new LostError())
      return false
    }
    before.conn = item.conn
    before.confirmed = Date.now()
    before.extendAt = item.extendAt
    this.#leases.tendBy(item.extendAt)
    if (before.settlement) this.#leases.send(before)
    return true
  }

  #accept(item: Item): void {
    this.#size += item.size
    if (!this.#division.shuts(item)) this.#dispatcher.place(item)
  }

  #open(items: Item[]): void {
    for (const item of items) this.#dispatcher.place(item)
    this.#spawn()
    this.#checkDrained()
  }

  /** Starts as many handlers as may run. */
  #spawn(): void {
    while (this.#running.size < this.#options.concurrency && !this.#paused && !this.#stopping) {
      const item = this.#dispatcher.next()
      if (!item) return
      if (this.#confirmFirst(item)) continue
      this.#running.add(item)
      item.handled = this.#handle(item)
      this.#division.running(item.event.partition, item.handled)
    }
  }

  async #handle(item: Item): Promise<void> {
    const handler = item.handler = new AbortController()
    const ctx: Context = {
      attempt: item.attempt, signal: handler.signal,
      ack: () => this.#settle(item, "ack"),
      nack: options => this.#settle(item, options ?? {}),
      extend: ms => this.#extendBy(item, ms),
    }
    if (item.leaseMs !== undefined) Object.assign(ctx, {ack_deadline_ms: item.leaseMs})
    try {
      await tracing(item.event.headers, async () => this.#handler(item.event, ctx))
      this.#handled(item)
    } catch (err) {
      this.#handled(item, {err})
    }
    this.#running.delete(item)
    this.#spawn()
    this.#tellPaused()
    this.#checkDrained()
  }

  /** Settles an event as its handler said. */
  #handled(item: Item, failed?: {err: unknown}): void {
    item.handler = undefined
    if (failed && this.#retryInHand(item, failed.err)) return
    item.returned = true
    this.#size -= item.size
    this.#dispatcher.release(item)
    if (!this.group) {
      const {logger} = this.#settings
      if (failed) logger.error(`sluice: a handler of ${this.topic} failed at ${item.event.id}, which is not repeated:`, failed.err)
    } else if (!failed && this.#options.manualAck) {
      if (!item.conn && !item.settlement) this.#leases.forget(item, new LostError())
    } else if (!failed) this.#leases.decide(item, "ack")
    else if (this.#draining && !nackOf(failed.err) && !item.settlement) {
      this.#leases.forget(item, new LostError()) // it goes back when the subscription leaves, which counts no attempt
    } else this.#leases.decide(item, {...nackOf(failed.err), reason: messageOf(failed.err).slice(0, maxReasonLength)})
  }

  /**
   * Calls an event's handler again after a pause, unless the error decides about the event, or the handler has failed for too long.
   * The event stays here meanwhile: no attempt is counted, its deadline is extended, its key waits.
   */
  #retryInHand(item: Item, err: unknown): boolean {
    if (!this.group || nackOf(err) || item.settlement || item.gone || !item.conn || this.#draining || this.#stopping) return false
    const first = item.failedAt === undefined
    item.failedAt ??= Date.now()
    const wait = item.retries.next()
    if (Date.now() - item.failedAt + wait > this.#options.retryForMs) return false
    if (first) this.#settings.logger.warn(`sluice: a handler of ${this.topic} failed at ${item.event.id}, and is called again:`, err)
    this.#dispatcher.postpone(item, setTimeout(() => this.#confirm(item), wait))
    return true
  }

  /** Postpones an item that waited long for its handler until the sidecar has said that it is still this subscription's. */
  #confirmFirst(item: Item): boolean {
    if (!this.group || this.#leases.leaseMs === 0 || Date.now() - item.confirmed < confirmedForMs) return false
    this.#dispatcher.postpone(item)
    this.#confirm(item)
    return true
  }

  #confirm(item: Item): void {
    const resume = () => this.#dispatcher.resume(item) && this.#spawn()
    if (!this.#dispatcher.isPostponed(item)) return
    if (this.#leases.leaseMs === 0 || !item.conn) return void resume()
    item.extendAt = Date.now() + this.#leases.leaseMs / 2
    void this.#leases.extend(item.conn, [item.event.id], resume)
  }

  async #extendBy(item: Item, ms: number): Promise<void> {
    if (!this.group) bad("without a group nothing is delivered again")
    await this.#leases.extendBy(item, ms)
  }

  /** Settles an event in hand by its id. */
  async settle(id: string, settlement: Settlement): Promise<boolean> {
    const item = this.#leases.held.get(id)
    if (!item) return false
    await this.#settle(item, settlement)
    return true
  }

  async #settle(item: Item, settlement: Settlement): Promise<void> {
    if (this.group) {
      this.#leases.decide(item, settlement)
      await item.settled.promise
    } else if (settlement !== "ack") bad("without a group nothing is delivered again")
  }

  /** Calls no handler for a postponed item any more. */
  #endPostponed(item: Item): void {
    if (!this.#dispatcher.cancelPostponed(item)) return
    this.#size -= item.size
    this.#spawn()
  }

  #giveUp(items: Item[]): void {
    for (const item of items) {
      this.#size -= item.size
      this.#leases.forget(item, new LostError())
    }
  }

  /** Notes that a connection is gone, and with it the leases of its events. */
  #lost(conn = this.#conn): void {
    if (!conn || this.#conn !== conn) return
    this.#conn = undefined
    if (!this.group) return this.#position.left() // what was received is to be handled all the same
    this.#giveUp(this.#division.revokeAll().items)
    this.#abandon(() => true, new LostError())
  }

  /** Ends this subscription's part in items that are delivered again, maybe elsewhere: nothing of them is settled any more. */
  #abandon(which: (item: Item) => boolean, cause: Error): void {
    this.#giveUp(this.#dispatcher.drop(which))
    for (const item of [...this.#leases.held.values()].filter(which)) {
      if (item.handler) {
        item.conn = undefined
        item.handler.abort(cause)
      }
      if (item.settlement) this.#leases.forgetUncertain(item)
      else if (!item.handler) this.#leases.forget(item, cause) // it waits for a settlement by hand
    }
  }

  #divide(conn: Connection, op: string, partitions: number[]): void {
    if (this.#conn !== conn) return
    if (op === "ASSIGNED") return this.#division.assign(partitions)
    const {lost, items} = this.#division.revoke(partitions)
    this.#giveUp(items)
    if (lost.length > 0) this.#abandon(item => lost.includes(item.event.partition), new RevokedError())
  }


}

import type {Connection} from "./connection.js"
import {LostError, refused, retryAfter} from "./errors.js"
import type {Item, Settlement} from "./item.js"
import type {Settings} from "./settings.js"

const uncertainForMs = 120_000 // how long an ack that may not have arrived is remembered
const maxUncertain = 10_000
const maxSettleIds = 10_000

/** What the leases need of their subscription. */
interface Owner {
  readonly names: object
  readonly maxExtensionMs: number
  readonly logger: Settings["logger"]
  /** The connection whose leases are good; undefined while there is none, or nothing more is settled. */
  conn(): Connection | undefined
  decided(item: Item): void
  forgotten(item: Item): void
  /** The event is another consumer's. */
  revoked(id: string): void
}

/** The events that a subscription with a group has in hand: extends their deadlines, and settles them. */
export class Leases {
  /** By id: in hand and not settled. */
  readonly held = new Map<string, Item>()
  /** The longest time that was left to settle; 0: there are no deadlines. */
  leaseMs = 0

  readonly #owner: Owner
  readonly #uncertain = new Map<string, number>() // acks that may not have arrived, until when
  #tendAt = Infinity
  #timer?: ReturnType<typeof setTimeout>

  constructor(owner: Owner) {
    this.#owner = owner
  }

  /** Notes the deadline of a delivery. */
  delivered(item: Item): void {
    this.leaseMs = Math.max(this.leaseMs, item.leaseMs ?? 0)
    item.extendAt = Date.now() + this.leaseMs / 2
  }

  hold(item: Item): void {
    this.held.set(item.event.id, item)
    this.tendBy(item.extendAt)
  }

  /** Acks an event that comes again because its ack has got lost. */
  ackAgain(item: Item): boolean {
    const {id} = item.event
    const until = this.#uncertain.get(id) ?? 0
    this.#uncertain.delete(id)
    if (until < Date.now()) return false
    this.held.set(id, item)
    this.decide(item, "ack")
    return true
  }

  /** Decides how an item is settled, unless that was decided before. */
  decide(item: Item, settlement: Settlement): void {
    if (item.settlement || item.gone) return
    item.settlement = settlement
    this.#owner.decided(item)
    this.send(item)
  }

  /** Sends the settlement of an item. */
  send(item: Item): void {
    const {conn, settlement} = item
    if (!conn || conn !== this.#owner.conn()) return this.forgetUncertain(item)
    const {names} = this.#owner
    const {id} = item.event
    const sent = settlement === "ack" ? conn.ack(names, id) : conn.request("NACK", {...names, id, ...settlement})
    sent.then(() => this.forget(item), err => this.#failed(item, conn, err))
  }

  #failed(item: Item, conn: Connection, err: unknown): void {
    if (item.gone || item.conn !== conn) return
    const refusal = refused(err)
    const after = retryAfter(err)
    if (!refusal) return this.forgetUncertain(item)
    if (after !== undefined) {
      item.retryAt = Date.now() + after
      return this.tendBy(item.retryAt)
    }
    this.#owner.logger.warn(`sluice: ${item.event.id} of ${item.event.topic} could not be settled:`, refusal.message)
    this.forget(item, refusal)
  }

  /** Ends an item whose settlement may not arrive. Where it is an ack, the event is acked when it comes again, not handled twice. */
  forgetUncertain(item: Item): void {
    if (item.settlement === "ack" && this.#uncertain.size < maxUncertain) this.#uncertain.set(item.event.id, Date.now() + uncertainForMs)
    this.forget(item, new LostError())
  }

  /** Ends an item. */
  forget(item: Item, err?: Error): void {
    if (item.gone) return
    item.gone = true
    if (err) item.settled.reject(err)
    else item.settled.resolve()
    if (this.held.get(item.event.id) === item) this.held.delete(item.event.id)
    this.#owner.forgotten(item)
  }

  /** Moves the deadlines of items; calls done where none of them is lost. */
  async extend(conn: Connection, ids: string[], done?: () => void): Promise<void> {
    try {
      await conn.request("MODACK", {...this.#owner.names, ids, extend_ms: Math.max(Math.floor(this.leaseMs), 1)})
    } catch (err) {
      if (!refused(err) || this.#owner.conn() !== conn) return // a broken connection gives them back
      if (ids.length === 1) return this.#owner.revoked(ids[0]!)
      for (const id of ids) void this.extend(conn, [id]) // it names one, and the others have their new deadline
      return
    }
    if (this.#owner.conn() !== conn) return
    for (const id of ids) {
      const item = this.held.get(id)
      if (item) item.confirmed = Date.now()
    }
    done?.()
  }

  /** Moves the deadline of an item as its handler asks. */
  async extendBy(item: Item, ms: number): Promise<void> {
    if (!item.conn) throw new LostError()
    item.extendAt = Date.now() + Math.max(ms / 2, ms - this.leaseMs / 2)
    await item.conn.request("MODACK", {...this.#owner.names, id: item.event.id, extend_ms: Math.max(Math.floor(ms), 1)})
  }

  /** Looks at deadlines at that time, if not before. */
  tendBy(at: number): void {
    if (at >= this.#tendAt) return
    this.#tendAt = at
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#tend(), at - Date.now())
  }

  /** Extends deadlines and sends settlements again. What is due soon is done now, a few times in a deadline and not once for each event. */
  #tend(): void {
    this.#tendAt = Infinity
    const now = Date.now()
    const conn = this.#owner.conn()
    const extend: string[] = []
    for (const [id, item] of this.held) {
      if (!conn || item.conn !== conn) continue
      if (item.retryAt !== undefined && item.retryAt <= now) {
        item.retryAt = undefined
        this.send(item)
      } else if (item.retryAt !== undefined) this.tendBy(item.retryAt)
      if (item.gone || this.leaseMs === 0 || now - item.since >= this.#owner.maxExtensionMs) continue
      if (item.extendAt <= now + this.leaseMs / 10) {
        extend.push(id)
        item.extendAt = now + this.leaseMs / 2
      }
      this.tendBy(item.extendAt)
    }
    while (conn && extend.length > 0) void this.extend(conn, extend.splice(0, maxSettleIds))
    for (const [id, until] of this.#uncertain) if (until < now) this.#uncertain.delete(id)
  }

  /** Nothing is settled or extended any more. */
  end(): void {
    clearTimeout(this.#timer)
    this.#tendAt = -Infinity
  }
}

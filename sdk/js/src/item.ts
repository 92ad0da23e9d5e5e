import type {Connection, Delivery} from "./connection.js"
import {decodeEvent} from "./encoding.js"
import {Backoff, deferred} from "./time.js"
import type {EventRecord, NackOptions} from "./types.js"

const firstRetryPauseMs = 100
const lastRetryPauseMs = 5000

/** How an event is settled: acked, or nacked. */
export type Settlement = "ack" | NackOptions

/** One event on its way through a subscription. */
export class Item {
  readonly event: EventRecord
  readonly attempt: number
  readonly leaseMs?: number
  /** The connection that delivered it last; undefined: that is gone. */
  conn?: Connection
  /** Aborts the handler that has it; undefined: none has. */
  handler?: AbortController
  /** Resolves when that handler has returned and its result is taken. */
  handled?: Promise<void>
  /** A handler had it. */
  returned = false
  settlement?: Settlement
  /** Nothing is left to settle. */
  gone = false
  readonly settled = deferred<void>()
  /** When a handler failed for the first time. */
  failedAt?: number
  readonly retries = new Backoff(firstRetryPauseMs, lastRetryPauseMs)
  readonly since = Date.now()
  /** When it was certainly this subscription's: delivered, or its deadline extended. */
  confirmed = Date.now()
  extendAt = 0
  /** Its settlement is sent again then. */
  retryAt?: number

  constructor(conn: Connection, {event, ctx}: Delivery, readonly size: number) {
    this.conn = conn
    this.event = decodeEvent(event)
    this.attempt = ctx.attempt
    if (ctx.ack_deadline_ms !== undefined) this.leaseMs = ctx.ack_deadline_ms
  }
}

import {Connection} from "./connection.js"
import {ClosedError, messageOf, retryAfter} from "./errors.js"
import type {Settings} from "./settings.js"
import {Backoff, sleep} from "./time.js"
import type {ConnectionChange} from "./types.js"

/** Who needs a connection, and what is done with each. */
export interface Link {
  /** For the log and for onConnection. */
  name: string
  change: ConnectionChange
  /** Uses a connection until it ends or the signal aborts, and calls up once it is set up. Throws where it cannot be set up. */
  serve(conn: Connection, up: () => void): Promise<void>
  /** Told of each connection that was refused or lost; true: connect no more. */
  failed(error: Error): boolean
}

/** Connects and serves, again and again, until the signal aborts. A first connection is served in any case. */
export async function keep(settings: Settings, link: Link, signal: AbortSignal, first?: Connection): Promise<void> {
  const pauses = () => new Backoff(settings.minPauseMs, settings.maxPauseMs)
  let backoff = pauses()
  let lost = false
  const report = (error?: Error) => {
    lost = error !== undefined
    try {
      settings.onConnection?.(error ? {...link.change, error} : link.change)
    } catch (err) {
      settings.logger.error("sluice: onConnection failed:", err)
    }
  }
  for (let conn = first; conn || !signal.aborted; conn = undefined) {
    const began = Date.now()
    let error: Error
    try {
      conn ??= await Connection.open(settings, signal)
      await link.serve(conn, () => lost && report())
      error = conn.cause ?? new ClosedError("it has ended")
    } catch (err) {
      error = err instanceof Error ? err : new Error(String(err))
    } finally {
      conn?.close()
    }
    if (Date.now() - began > backoff.reached) backoff = pauses()
    if (signal.aborted) return
    report(error)
    if (link.failed(error)) return
    const wait = Math.max(backoff.next(), retryAfter(error) ?? 0)
    warn(settings, ` for ${link.name}`, wait, error)
    await sleep(wait, signal)
  }
}

/** Connects for the first time, and tries until it succeeds, the sidecar refuses for good or the signal aborts. */
export async function reach(settings: Settings, signal: AbortSignal, then: (conn: Connection) => Promise<void>): Promise<Connection> {
  const backoff = new Backoff(settings.minPauseMs, settings.maxPauseMs)
  for (;;) {
    let conn: Connection | undefined
    try {
      conn = await Connection.open(settings, signal)
      await then(conn)
      return conn
    } catch (err) {
      conn?.close()
      signal.throwIfAborted()
      const after = retryAfter(err)
      if (after === undefined) throw err
      const wait = Math.max(backoff.next(), after)
      warn(settings, "", wait, err)
      await sleep(wait, signal)
      signal.throwIfAborted()
    }
  }
}

function warn({logger, url}: Settings, what: string, wait: number, err: unknown): void {
  logger.warn(`sluice: no connection to ${url}${what}; the next attempt is in ${Math.round(wait)} ms:`, messageOf(err))
}

import type {WireEvent} from "./encoding.js"
import {ClosedError, refusal, refused, SluiceError} from "./errors.js"
import type {Settings} from "./settings.js"
import {soon} from "./time.js"
import type {Positions, Receipt, WebSocketLike} from "./types.js"

/** One event on its way to a subscription. */
export interface Delivery {
  event: WireEvent
  ctx: {attempt: number, ack_deadline_ms?: number}
}

/** The result of one event of a batch: a receipt, or a refusal. */
export type Result = Receipt & {code?: undefined} | {code: string, msg: string}

/** A frame of the sidecar. Which members it has depends on its op. */
interface Frame {
  op: string
  corr?: string
  code?: string
  msg?: string
  event?: WireEvent
  ctx?: Delivery["ctx"]
  events?: Delivery[]
  partitions?: number[]
}

/** The members of an OK that the client reads. */
export interface Reply {
  results?: Result[]
  positions?: Positions
}

interface Call {
  resolve(reply: Reply): void
  reject(err: Error): void
}

/** The call of one ack. */
interface Ack {
  id: string
  resolve(): void
  reject(err: unknown): void
}

const dialTimeoutMs = 10_000
const maxAckIds = 128 // of a frame

/** One WebSocket: requests that find their answers, and the deliveries of one subscription. It does not come back. */
export class Connection {
  /** Called with deliveries, and how many characters their frame had. */
  onDeliveries: (deliveries: Delivery[], size: number) => void = () => {}
  onDivision: (op: string, partitions: number[]) => void = () => {}
  /** Why it has ended; undefined while it is open. */
  cause?: ClosedError
  /** Resolves with the cause. */
  readonly ended: Promise<ClosedError>

  readonly #socket: WebSocketLike
  readonly #calls = new Map<string, Call>()
  #acks: Ack[] = [] // that are not sent yet
  #subscription = {}
  #lastCorr = 0
  #heard = false
  #pinged = false
  #heartbeat?: ReturnType<typeof setInterval>
  #end!: (cause: ClosedError) => void

  private constructor(socket: WebSocketLike) {
    this.#socket = socket
    this.ended = new Promise(resolve => this.#end = resolve)
    socket.onmessage = ({data}: {data: unknown}) => this.#receive(data)
    const ended = (why: string, options?: {closeCode: number}) => this.abort(new ClosedError(`the connection ended: ${why}`, options))
    // After an error nothing else comes; where it is one of connecting, Node.js 20 does not close either.
    socket.onerror = ({message}: {message?: string}) => ended(message || "no reason given")
    socket.onclose = ({code: closeCode, reason}: {code: number, reason: string}) => {
      ended(`${reason || "no reason given"} (${closeCode})`, {closeCode})
    }
  }

  /** Connects and authenticates. */
  static async open(settings: Settings, signal: AbortSignal): Promise<Connection> {
    const socket = new (await settings.socketClass())(settings.url.replace(/^http/, "ws") + "/ws")
    const conn = new Connection(socket)
    const timer = setTimeout(() => conn.abort(new ClosedError("no connection in time")), dialTimeoutMs)
    const aborted = () => conn.abort(new ClosedError("it was given up", {cause: signal.reason}))
    signal.addEventListener("abort", aborted)
    if (signal.aborted) aborted()
    try {
      const opened = new Promise<void>(resolve => socket.onopen = () => resolve())
      const failed = conn.ended.then(cause => Promise.reject(cause))
      await Promise.race([opened, failed])
      const token = await settings.token()
      if (token !== undefined) await conn.request("AUTH", {token})
    } catch (err) {
      conn.abort(err instanceof ClosedError ? err : new ClosedError("it was refused", {cause: err}))
      throw err
    } finally {
      clearTimeout(timer)
      signal.removeEventListener("abort", aborted)
    }
    conn.#heartbeat = setInterval(() => conn.#beat(), settings.heartbeatMs)
    return conn
  }

  /** Sends a request, whose members may be JSON already, and resolves with its OK. */
  request(op: string, members: object | string): Promise<Reply> {
    if (this.cause) return Promise.reject(this.cause)
    this.#sendAcks()
    return this.#send(op, members)
  }

  #send(op: string, members: object | string): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const corr = String(++this.#lastCorr)
      this.#calls.set(corr, {resolve, reject})
      const text = typeof members === "string" ? members : JSON.stringify(members).slice(1, -1)
      this.#socket.send(`{"op":"${op}","corr":"${corr}"${text && ","}${text}}`)
    })
  }

  /** Acks an event of the subscription, of which a connection has one. Acks that follow one another share a frame. */
  ack(subscription: object, id: string): Promise<void> {
    if (this.cause) return Promise.reject(this.cause)
    return new Promise((resolve, reject) => {
      this.#subscription = subscription
      if (this.#acks.push({id, resolve, reject}) === 1) soon(() => this.#sendAcks())
      if (this.#acks.length === maxAckIds) this.#sendAcks()
    })
  }

  /** Sends the acks that wait. A stale_lease is the answer of those that it names. */
  #sendAcks(): void {
    if (this.#acks.length === 0) return
    const acks = this.#acks
    this.#acks = []
    this.#send("ACK", {...this.#subscription, ids: acks.map(({id}) => id)}).then(() => {
      for (const {resolve} of acks) resolve()
    }, (err: unknown) => {
      const lost = refused(err)?.details.ids
      for (const {id, resolve, reject} of acks) {
        if (Array.isArray(lost) && !lost.includes(id)) resolve()
        else reject(err)
      }
    })
  }

  /** Ends the connection in order. */
  close(): void {
    this.#finish(new ClosedError())
    this.#socket.close()
  }

  /** Ends the connection at once. */
  abort(cause: ClosedError): void {
    if (!this.#finish(cause)) return
    if (this.#socket.terminate) this.#socket.terminate()
    else this.#socket.close()
  }

  #finish(cause: ClosedError): boolean {
    if (this.cause) return false
    this.cause = cause
    clearInterval(this.#heartbeat)
    for (const {reject} of this.#acks.splice(0)) reject(cause)
    const calls = [...this.#calls.values()].reverse() // what is put back in front ends in the order in which it was sent
    this.#calls.clear()
    for (const call of calls) call.reject(cause)
    this.#end(cause)
    return true
  }

  #receive(data: unknown): void {
    if (this.cause) return
    this.#heard = true
    let frame: Frame
    try {
      frame = JSON.parse(String(data)) as Frame
    } catch (err) {
      return this.abort(new ClosedError("the sidecar sent what is not JSON", {cause: err}))
    }
    switch (frame.op) {
    case "EVENT":
      return this.onDeliveries([frame as Delivery], String(data).length)
    case "EVENTS":
      return this.onDeliveries(frame.events ?? [], String(data).length)
    case "ASSIGNED":
    case "REVOKED":
      return this.onDivision(frame.op, frame.partitions ?? [])
    case "OK":
    case "ERR":
      return this.#answer(frame)
    }
  }

  #answer(frame: Frame): void {
    const {op, corr = "", code = "internal", msg = "", ...rest} = frame
    const err = op === "ERR" ? refusal(code, msg, rest) : undefined
    const call = this.#calls.get(corr)
    if (!call) {
      const what = err ? "refused a frame without saying which" : "answered a request that was not made"
      return this.abort(new ClosedError(`the sidecar ${what}`, {cause: err}))
    }
    this.#calls.delete(corr)
    if (err) call.reject(err)
    else call.resolve(rest as Reply)
  }

  /** Pings after a silence. It counts its own calls and not the time, so that a process that was busy for long ends nothing. */
  #beat(): void {
    if (this.#heard) {
      this.#heard = this.#pinged = false
    } else if (this.#pinged) {
      this.abort(new ClosedError("no sign of life"))
    } else {
      this.#pinged = true
      this.request("PING", "").catch(() => {}) // any sign of life will do
    }
  }
}

/** The error that the sidecar gave for one event of a batch. */
export function resultError({code, msg, ...details}: {code: string, msg: string}): SluiceError {
  return refusal(code, msg, details)
}

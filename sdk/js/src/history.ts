import {decodeEvent, type WireEvent} from "./encoding.js"
import {ClosedError, refusal, TruncatedError} from "./errors.js"
import type {Settings} from "./settings.js"
import type {EventRecord} from "./types.js"

/** Which events to replay: all that match every member that is set, ascending by (ts, id) unless `order` says otherwise. */
export interface ReplayOptions {
  from?: "earliest" | "ts" | "afterId"
  /** Inclusive. */
  ts?: number
  /** Exclusive. */
  afterId?: string
  order?: "asc" | "desc"
  key?: string
  /** `fleet`: all stores and spools that the sidecar knows. */
  scope?: "store" | "fleet"
  /** Events of a page, 1 to 10,000 (1000). */
  limit?: number
  signal?: AbortSignal
}

/** Which events to export; both bounds are inclusive. */
export interface ExportOptions {
  fromTs?: number
  toTs?: number
  key?: string
  scope?: "store" | "fleet"
  signal?: AbortSignal
}

/** Asks the sidecar's replay API. */
export class History {
  readonly #settings: Settings
  #url?: Promise<string>

  constructor(settings: Settings) {
    this.#settings = settings
  }

  async *replay<T>(topic: string, {signal, ...options}: ReplayOptions): AsyncGenerator<EventRecord<T>, void, void> {
    for (let query: object = {topic, ...options};;) {
      const answer = await this.#get("/replay", query, signal)
      const {events, next} = await answer.json() as {events: WireEvent[], next?: string}
      for (const event of events) yield decodeEvent<T>(event)
      if (!next) return
      query = {cursor: next, limit: options.limit}
    }
  }

  async *export<T>(topic: string, {signal, ...options}: ExportOptions): AsyncGenerator<EventRecord<T>, void, void> {
    const answer = await this.#get("/export", {topic, ndjson: 1, ...options}, signal)
    for await (const line of lines(answer, signal)) yield decodeEvent<T>(JSON.parse(line) as WireEvent)
  }

  async #get(path: string, query: object, signal?: AbortSignal): Promise<Response> {
    const given = Object.entries(query).filter(([, value]) => value !== undefined)
    const parameters = new URLSearchParams(given.map(([name, value]) => [name, String(value)]))
    return this.#fetch(`${await this.#base(signal)}${path}?${parameters}`, signal)
  }

  /** The replay API's address, which the app listener knows; a failure is asked again. */
  #base(signal?: AbortSignal): Promise<string> {
    const {replayUrl, url} = this.#settings
    if (replayUrl) return Promise.resolve(replayUrl)
    this.#url ??= this.#fetch(url + "/", signal).then(async answer => {
      const {listeners} = await answer.json() as {listeners?: {replay?: string}}
      const port = listeners?.replay?.split(":").pop()
      if (!port) throw refusal("unauthorized", "the sidecar says where its replay API is to those with a valid token alone")
      const at = new URL(url)
      at.port = port
      return at.origin
    }).catch((err: unknown) => {
      this.#url = undefined
      throw err
    })
    return this.#url
  }

  async #fetch(url: string, signal?: AbortSignal): Promise<Response> {
    const token = await this.#settings.token()
    const headers: HeadersInit = token === undefined ? {} : {authorization: `Bearer ${token}`}
    const answer = await this.#settings.fetch(url, {headers, signal: signal ?? null}).catch((err: unknown) => {
      signal?.throwIfAborted()
      throw new ClosedError(`no answer from ${url}`, {cause: err})
    })
    if (answer.ok) return answer
    const refused = await answer.json().catch(() => ({})) as {code?: string, error?: string}
    const {code = "internal", error = `the status is ${answer.status}`, ...details} = refused
    throw refusal(code, error, details)
  }
}

/** The lines of a body, each of which ends with a line feed. */
async function* lines(answer: Response, signal?: AbortSignal): AsyncGenerator<string, void, void> {
  const body = answer.body!.getReader()
  const text = new TextDecoder()
  let rest = ""
  try {
    for (;;) {
      const {value, done} = await body.read()
      if (done) break
      const parts = (rest + text.decode(value, {stream: true})).split("\n")
      rest = parts.pop()!
      yield* parts
    }
  } catch (err) {
    signal?.throwIfAborted()
    throw new TruncatedError(err)
  } finally {
    await body.cancel().catch(() => {}) // it has ended, or nobody reads on
  }
  if (rest) throw new TruncatedError(undefined)
}

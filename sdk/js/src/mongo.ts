import {BadRequestError, newId, type DedupeStore, type EventOptions} from "@sluice-bus/sluice"
import type {PartitionState, PartitionStore, Snapshot, SnapshotStore} from "@sluice-bus/sluice/state"

/** The parts of the package mongodb that are used here; its Db, from version 6 on, is one. */
export interface Db {
  collection(name: string, options?: object): Collection
  createCollection(name: string, options?: object): Promise<unknown>
}

interface Collection {
  findOne(filter: object, options?: object): Promise<unknown>
  findOneAndUpdate(filter: object, update: object, options: object): Promise<unknown>
  insertMany(documents: object[], options?: object): Promise<unknown>
  updateOne(filter: object, update: object, options?: object): Promise<unknown>
  replaceOne(filter: object, document: object, options?: object): Promise<unknown>
  createIndex(keys: Record<string, 1>, options: object): Promise<unknown>
}

/** Its ClientSession. */
export interface ClientSession {
  inTransaction(): boolean
}

const majority = {writeConcern: {w: "majority"}, readConcern: {level: "majority"}, readPreference: "primary"} as const
const duplicateKey = 11000
const namespaceExists = 48

const hasCode = (err: unknown, code: number) => (err as {code?: unknown}).code === code

/** A DedupeStore in a collection, whose documents the server removes when their time is over. */
export class MongoDedupe implements DedupeStore {
  readonly #marks: Collection
  #indexed?: Promise<unknown>

  constructor(db: Db, name = "dedupe") {
    this.#marks = db.collection(name, majority)
  }

  async seen(topic: string, group: string, id: string): Promise<boolean> {
    return await this.#marks.findOne({_id: markKey(topic, group, id), expireAt: {$gt: new Date()}}) !== null
  }

  async mark(topic: string, group: string, id: string, ttlMs = 7 * 24 * 3600_000): Promise<void> {
    await (this.#indexed ??= this.#marks.createIndex({expireAt: 1}, {expireAfterSeconds: 0}).catch((err: unknown) => {
      this.#indexed = undefined // the next mark tries again
      throw err
    }))
    await this.#marks.updateOne({_id: markKey(topic, group, id)}, {$set: {expireAt: new Date(Date.now() + ttlMs)}}, {upsert: true})
  }
}

/** Topics and groups have no `/`, so no two events share a key. */
const markKey = (topic: string, group: string, id: string) => `${topic}/${group}/${id}`

/** Keeps the last snapshot of a consumer as one document: a state may come to 16 MB. */
export class MongoSnapshots<S> implements SnapshotStore<S> {
  readonly #snapshots: Collection
  readonly #name: string

  constructor(db: Db, name: string, collection = "snapshots") {
    this.#snapshots = db.collection(collection, majority)
    this.#name = name
  }

  async save(snapshot: Snapshot<S>): Promise<void> {
    await this.#snapshots.replaceOne({_id: this.#name}, snapshot, {upsert: true})
  }

  async load(): Promise<Snapshot<S> | undefined> {
    return await this.#snapshots.findOne({_id: this.#name}, {projection: {_id: 0}}) as Snapshot<S> | null ?? undefined
  }
}

/** Keeps the states of a group's partitions, each as one document. */
export class MongoPartitions<S> implements PartitionStore<S> {
  readonly #states: Collection
  readonly #name: string

  /** Of each (topic, group) with a name of its own. */
  constructor(db: Db, name: string, collection = "partitions") {
    this.#states = db.collection(collection, majority)
    this.#name = name
  }

  async load(partition: number): Promise<PartitionState<S> | undefined> {
    return await this.#states.findOne({_id: this.#id(partition)}, {projection: {_id: 0}}) as PartitionState<S> | null ?? undefined
  }

  async save(partition: number, state: PartitionState<S>): Promise<void> {
    try {
      await this.#states.replaceOne({_id: this.#id(partition), version: state.version - 1}, state, {upsert: true})
    } catch (err) {
      if (!hasCode(err, duplicateKey)) throw err
      throw new Error(`another consumer has saved partition ${partition} of ${this.#name}`, {cause: err})
    }
  }

  #id(partition: number): string {
    return `${this.#name}/${partition}`
  }
}

/** An event for the outbox. The outbox sets its time. */
export interface OutboxEvent extends Omit<EventOptions, "ts" | "delay_ms" | "deliver_at"> {
  topic: string
  payload: unknown
}

const keyKeptSeconds = 30 * 24 * 3600
const limits = {key: 512, payload: 1 << 20, headers: 64, headerBytes: 16 << 10}

/** A document of <outbox>_keys: the place of the last event of one topic and key. */
interface Counter {
  n: number
  ts: Date
  last: string
}

/**
 * Inserts events into a collection in the transaction that writes the application's data, for a sidecar with `--outbox` to publish:
 * both happen, or neither does. Events of one key are published in the order in which their transactions wrote them.
 *
 *     await client.withSession(session => session.withTransaction(async () => {
 *       await orders.insertOne(order, {session})
 *       await outbox.insert(session, {topic: "orders.created", key: order.customer, payload: order})
 *     }))
 */
export class Outbox {
  readonly #db: Db
  readonly #name: string

  constructor(db: Db, name = "outbox") {
    this.#db = db
    this.#name = name
  }

  get #counters(): Collection {
    return this.#db.collection(this.#name + "_keys")
  }

  /** Makes the collections and an index, once before the first insert; any number of processes may, at any time. */
  async prepare(): Promise<void> {
    await this.#counters.createIndex({ts: 1}, {expireAfterSeconds: keyKeptSeconds, name: "ts_1"})
    await this.#db.createCollection(this.#name).catch((err: unknown) => {
      if (!hasCode(err, namespaceExists)) throw err
    })
  }

  /** Inserts events, to be published in their order; with deliverAt, which has no order, at that time and not before. */
  async insert(session: ClientSession, events: OutboxEvent | OutboxEvent[], {deliverAt}: {deliverAt?: Date} = {}): Promise<void> {
    if (!session.inTransaction()) refuse("the outbox needs a session with a running transaction, as withTransaction gives it")
    const keys = new Map<string, OutboxEvent[]>() // by the counter's _id; "": without a key
    for (const event of [events].flat()) {
      check(event)
      const name = event.key ? `${event.topic}/${event.key}` : ""
      keys.set(name, [...keys.get(name) ?? [], event])
    }
    const documents: object[] = []
    for (const [name, chain] of keys) documents.push(...await this.#documents(session, name, chain, deliverAt))
    if (documents.length > 0) await this.#db.collection(this.#name).insertMany(documents, {session})
  }

  /**
   * The documents of one key, or of the events without a key. A sidecar orders them by ts and _id, which both rise, and waits for the
   * document that `after` names. The counter keeps other transactions of the key out until this one ends.
   */
  async #documents(session: ClientSession, name: string, chain: OutboxEvent[], deliverAt: Date | undefined): Promise<object[]> {
    const now = new Date()
    const own = chain.map(() => unique())
    let before: Counter | null = null
    if (name) {
      const raise = {$inc: {n: chain.length}, $max: {ts: now}, $set: {last: own.at(-1)}}
      const options = {session, upsert: true, returnDocument: "before"}
      before = await this.#counters.findOneAndUpdate({_id: name}, raise, options) as Counter | null
    }
    const ts = before && before.ts > now ? before.ts : now
    let after = before ? place(Number(before.n), before.last) : undefined
    return chain.map(({topic, payload, key, id = newId(), ...rest}, i) => {
      const _id = place(Number(before?.n ?? 0) + i + 1, own[i]!)
      const order = name ? {key, ...after === undefined ? {} : {after}} : {}
      after = _id
      const content = payload instanceof Uint8Array ? {payload_binary: payload} : {payload_json: JSON.stringify(payload)}
      return {_id, id, topic, ts, status: "pending", ...order, ...content, ...given(rest), ...given({deliver_at: deliverAt})}
    })
  }
}

/** 12 bytes in hexadecimal. */
function unique(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), byte => byte.toString(16).padStart(2, "0")).join("")
}

/** An _id that sorts by n. */
const place = (n: number, own: string) => `${n.toString(16).padStart(16, "0")}-${own}`

function refuse(message: string): never {
  throw new BadRequestError("bad_request", message)
}

const given = (members: object) => Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined))

/** Refuses what a sidecar with the contract's limits would refuse for good: the transaction can still do something about it. */
function check({topic, payload, id = "-", key = "", headers = {}}: OutboxEvent): void {
  const bytes = (text: string) => new TextEncoder().encode(text).length
  const no = (what: string) => refuse(`an event for topic "${topic}": ${what}`)
  if (!/^[A-Za-z0-9.-][A-Za-z0-9._-]{0,254}$/.test(topic) || /^\.\.?$|\.dlq$/.test(topic)) no("the topic's name is not allowed")
  if (!/^[\x21-\x7e]{1,128}$/.test(id)) no(`the id is "${id}"; 1 to 128 visible characters are allowed`)
  if (bytes(key) > limits.key) no(`the key has more than ${limits.key} bytes`)
  const size = payload instanceof Uint8Array ? payload.length : bytes(JSON.stringify(payload) ?? no("the payload is no JSON value"))
  if (size > limits.payload) no(`the payload has ${size} bytes; ${limits.payload} are allowed`)
  const entries = Object.entries(headers)
  const tooLarge = entries.length > limits.headers || bytes(entries.flat().join("")) > limits.headerBytes
  if (tooLarge) no(`the headers are over the limit, ${limits.headers} of together ${limits.headerBytes} bytes`)
}

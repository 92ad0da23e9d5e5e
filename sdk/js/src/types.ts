/** An event, with the names of Sluice's contract. Absent fields are left out. */
export interface EventRecord<T = unknown> {
  id: string
  /** Milliseconds since the epoch. */
  ts: number
  topic: string
  partition: number
  /** Rises strictly within (topic, partition). */
  seq: number
  key?: string
  headers?: Record<string, string>
  tags?: string[]
  caused_by?: string[]
  sid?: string
  ttl_ms?: number
  /** A JSON value, or a Uint8Array where the publisher gave bytes. */
  payload: T
}

/** What a publisher may say of an event beside its topic and payload. */
export interface EventOptions {
  /** 1 to 128 visible characters, and the key of deduplication; without it the client makes a UUIDv7. */
  id?: string
  ts?: number
  /** Events of one key are logged in the order in which they were published, and reach a group in that order. */
  key?: string
  headers?: Record<string, string>
  tags?: string[]
  caused_by?: string[]
  sid?: string
  /** Groups get the event for that long after its acceptance. */
  ttl_ms?: number
  /** The event is put into the log that long after its acceptance, or at that time; not before. */
  delay_ms?: number
  deliver_at?: number
}

export interface PublishOptions extends EventOptions {
  /** Ends the wait for the receipt. The event may have been accepted: publish it again under the same id. */
  signal?: AbortSignal
}

/** The sidecar's answer for an accepted event. A spooled event has no place yet; a scheduled one has `deliver_at`. */
export interface Receipt {
  id: string
  ts?: number
  partition?: number
  seq?: number
  duplicate?: boolean
  deliver_at?: number
  durability: "store" | "spool"
}

/** Seqs by partition. */
export type Positions = Record<string, number>

export interface Filter {
  key?: string
  tag?: string
  header?: Record<string, string>
}

/** Options that the sidecar applies; without one, the topic's policy does. */
export interface SidecarOptions {
  /** Where to start; with a group, while it has no cursor. The default is `latest`. */
  from?: "latest" | "earliest" | "ts" | "afterId" | "positions"
  ts?: number
  afterId?: string
  positions?: Positions
  /** How many events may be with this subscription and not settled. */
  maxInflight?: number
  /** Without a sign of life for that long, an event is delivered to another consumer. Extended while a handler runs. */
  ackTimeoutMs?: number
  /** After that many deliveries an event becomes a dead letter. Without `retryForMs`, each error of the handler is one. */
  maxAttempts?: number
  /** false: events of one key may be with several consumers of the group at a time. */
  ordered?: boolean
  /** The sidecar remembers acked ids for `dedupeTtlMs` (7 days), and delivers none of them to the group again. */
  exactlyOnce?: boolean
  dedupeTtlMs?: number
  filter?: Filter
}

export interface SubscribeOptions extends SidecarOptions {
  /** Consumers with the same group share the events. Without one this subscription gets every event, once. */
  group?: string
  /** How many handlers run at a time (1). Those of one key run one after the other. */
  concurrency?: number
  /** The most events of one frame (100). */
  batchSize?: number
  /** For how long a handler that fails is called again before the event is given back (5 min; 0 with `maxAttempts`). */
  retryForMs?: number
  /** For how long the deadline of an event is extended (1 h). */
  maxExtensionMs?: number
  /** The size of the events that wait for handlers (64 MiB); the sidecar sends no more until there is room. */
  maxBytes?: number
  /** Nothing is acked when a handler returns: `ctx.ack` or `bus.ack` does it, then or later. */
  manualAck?: boolean
  /** Ends a subscription without a group that cannot go on right behind the last event that it got (`out_of_range`). */
  endOnGap?: boolean
  /** Called when partitions become this subscription's own, before any event of them is handled. */
  onAssigned?(partitions: number[]): unknown
  /** Called when they are not any more, after the last handler of an event of them has returned. */
  onRevoked?(partitions: number[]): unknown
  /** Ends the subscribing, and the subscription as `stop` does. */
  signal?: AbortSignal
}

export interface NackOptions {
  reason?: string
  /** When it is delivered again: 0 is at once; without it, after the policy's backoff. */
  delay_ms?: number
  /** It goes to the dead letters at once. */
  dead_letter?: boolean
  /** It comes again after `delay_ms` without counting an attempt, and its key waits. */
  hold?: boolean
}

/** What a handler gets with an event. */
export interface Context {
  /** Counts the deliveries of the event, from 1. */
  readonly attempt: number
  /** The time that was left to settle the event when it came, in ms. */
  readonly ack_deadline_ms?: number
  /** Aborts when the subscription stops, and with a LostError when the event is delivered again elsewhere. */
  readonly signal: AbortSignal
  /** Settles the event; resolves once that is durable. The first settlement counts. */
  ack(): Promise<void>
  nack(options?: NackOptions): Promise<void>
  /** Moves the deadline to `ms` from now. The client does so itself while a handler runs. */
  extend(ms: number): Promise<void>
}

/** Handles an event. Returning acks it; throwing lets it be handled again, see SubscribeOptions. */
export type Handler<T = unknown> = (event: EventRecord<T>, ctx: Context) => unknown

/** The loss (`error`) or the return (no `error`) of a connection: each subscription has one, and each publisher. */
export interface ConnectionChange {
  topic?: string
  group?: string
  error?: Error
}

/** The part of WebSocket that the client uses: the platform's own has it, and so has the package ws. */
export interface WebSocketLike {
  onopen: ((event: never) => void) | null
  onmessage: ((event: never) => void) | null
  onerror: ((event: never) => void) | null
  onclose: ((event: never) => void) | null
  send(text: string): void
  close(): void
  /** ws has it: ends the connection without a closing handshake. */
  terminate?(): void
}

export interface BusOptions {
  /** The sidecar's app listener; SLUICE_URL, or http://127.0.0.1:7070. */
  url?: string
  /** Its replay listener; SLUICE_REPLAY_URL, or what the app listener says. */
  replayUrl?: string
  /** Sent with each connection and request; a function is asked each time, for tokens that expire. */
  token?: string | (() => string | Promise<string>)
  /** The platform's WebSocket, where it has one; else the package ws. */
  WebSocket?: new (url: string) => WebSocketLike
  fetch?: typeof fetch
  /** Told of lost connections and failing handlers; console, unless given. */
  logger?: Pick<Console, "warn" | "error">
  /** Bounds of the pause between two attempts to connect (50 to 5000). */
  minPauseMs?: number
  maxPauseMs?: number
  /** A connection on which nothing comes for that long is pinged, and replaced after as long again (15 000). */
  heartbeatMs?: number
  /** Publishes that have no receipt yet: at the bound, publish waits (10 000 events, 32 MiB). */
  maxPending?: number
  maxPendingBytes?: number
  onConnection?(change: ConnectionChange): void
}

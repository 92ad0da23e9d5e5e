/** What the sidecar says beside code and sentence: `scope`, `pointer`, `seq`, `missing` and so on. */
export type ErrorDetails = Readonly<Record<string, unknown>>

/** A refusal by the sidecar, or a failure of the client; `code` says which. */
export class SluiceError extends Error {
  readonly code: string
  /** After which time to try again, where the sidecar says so. */
  readonly retryAfterMs?: number
  readonly details: ErrorDetails

  constructor(code: string, message: string, details: ErrorDetails = {}, options?: ErrorOptions) {
    super(message, options)
    this.name = new.target.name
    this.code = code
    this.details = details
    if (typeof details.retry_after_ms === "number") this.retryAfterMs = details.retry_after_ms
  }
}

export class BadRequestError extends SluiceError {}
export class UnauthorizedError extends SluiceError {}
export class ForbiddenError extends SluiceError {}
export class NotFoundError extends SluiceError {}
/** The topic holds another event with this id. */
export class ConflictError extends SluiceError {}
/** Retention has passed the positions. */
export class OutOfRangeError extends SluiceError {}
export class PayloadTooLargeError extends SluiceError {}
/** The topic's schema refuses the payload: `details.pointer` says where. */
export class SchemaViolationError extends SluiceError {}
export class TopicPausedError extends SluiceError {}
/** The bus waits and tries again after these three. A caller gets them where its signal aborted meanwhile, and from HTTP. */
export class RateLimitedError extends SluiceError {}
export class OverloadedError extends SluiceError {}
export class StoreUnavailableError extends SluiceError {}

/** The bus, the subscription or the connection is closed. */
export class ClosedError extends SluiceError {
  /** The status code of the WebSocket's end, where the sidecar closed it. */
  readonly closeCode?: number

  constructor(message = "the bus is closed", options?: ErrorOptions & {closeCode?: number}) {
    super("closed", message, {}, options)
    if (options?.closeCode) this.closeCode = options.closeCode
  }
}

/** The connection of an event broke before it was settled: it is delivered again, unless the settlement had arrived. */
export class LostError extends ClosedError {
  constructor(message = "the event is delivered again") {
    super(message)
  }
}

/** The event's partition is another consumer's by now. */
export class RevokedError extends LostError {
  constructor() {
    super("the event's partition was revoked: it is delivered again")
  }
}

/** An export broke off: events are missing. */
export class TruncatedError extends SluiceError {
  constructor(cause: unknown) {
    super("truncated", "the export broke off before its end", {}, {cause})
  }
}

const classes: Record<string, typeof BadRequestError> = {
  bad_request: BadRequestError, unauthorized: UnauthorizedError, forbidden: ForbiddenError, not_found: NotFoundError,
  conflict: ConflictError, out_of_range: OutOfRangeError, payload_too_large: PayloadTooLargeError,
  schema_violation: SchemaViolationError, topic_paused: TopicPausedError, rate_limited: RateLimitedError,
  overloaded: OverloadedError, store_unavailable: StoreUnavailableError,
}

/** A refusal with the class of its code. */
export function refusal(code: string, message: string, details?: ErrorDetails): SluiceError {
  return new (classes[code] ?? SluiceError)(code, message, details)
}

/** The error as a refusal of the sidecar; undefined where it is anything else, such as a lost connection. */
export function refused(err: unknown): SluiceError | undefined {
  return err instanceof SluiceError && !(err instanceof ClosedError) && !(err instanceof TruncatedError) ? err : undefined
}

const defaultRetryAfterMs = 50 // for a refusal that asks for time and names none

/** After which time the same request can succeed: 0 where there was no answer, undefined where it never will. */
export function retryAfter(err: unknown): number | undefined {
  const refusal = refused(err)
  if (!refusal) return 0
  return /^(rate_limited|overloaded|store_unavailable)$/.test(refusal.code) ? refusal.retryAfterMs || defaultRetryAfterMs : undefined
}

/** How an error of a handler is nacked. */
class NackError extends Error {
  readonly nack: {delay_ms?: number, hold?: boolean, dead_letter?: boolean}

  constructor(nack: NackError["nack"], cause: unknown) {
    super(messageOf(cause), {cause})
    this.nack = nack
  }
}

/** An error of a handler whose event is delivered again after `ms`, instead of after the policy's backoff. */
export const retryIn = (ms: number, cause: unknown): Error => new NackError({delay_ms: ms}, cause)

/** An error of a handler that cannot handle its event yet: it comes again after `ms`, counts no attempt, and its key waits. */
export const hold = (ms: number, cause: unknown): Error => new NackError({delay_ms: ms, hold: true}, cause)

/** An error of a handler that no other attempt would change: its event goes to the dead letters at once. */
export const deadLetter = (cause: unknown): Error => new NackError({dead_letter: true}, cause)

/** How the error asks to be nacked; undefined where it leaves that to the subscription. */
export const nackOf = (err: unknown): NackError["nack"] | undefined => err instanceof NackError ? err.nack : undefined

export function messageOf(err: unknown): string {
  return err instanceof Error ? err.message : String(err)
}

export {BatchError, BatchPublisher, type FailedEvent} from "./batch.js"
export {EventBus} from "./bus.js"
export {
  BadRequestError, ClosedError, ConflictError, deadLetter, ForbiddenError, hold, LostError, NotFoundError, OutOfRangeError, OverloadedError,
  PayloadTooLargeError, RateLimitedError, retryIn, RevokedError, SchemaViolationError, SluiceError, StoreUnavailableError, TopicPausedError,
  TruncatedError, UnauthorizedError, type ErrorDetails,
} from "./errors.js"
export {MemoryDedupe, subscribeExactlyOnce, type DedupeStore, type ExactlyOnceOptions} from "./exactlyonce.js"
export type {ExportOptions, ReplayOptions} from "./history.js"
export {newId} from "./encoding.js"
export type {Subscription} from "./subscription.js"
export type * from "./types.js"

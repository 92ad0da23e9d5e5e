import {atLeast, bad} from "./settings.js"
import type {SidecarOptions, SubscribeOptions} from "./types.js"

/** The options of a subscription, checked and with their defaults. */
export interface Options {
  concurrency: number
  maxExtensionMs: number
  maxBytes: number
  retryForMs: number
  manualAck: boolean
  endOnGap: boolean
  /** The opts of SUBSCRIBE. */
  wire: SidecarOptions & {maxBatch: number, rebalance: true | undefined}
}

const mostBatchSize = 1000

export function optionsOf(options: SubscribeOptions): Options {
  const {
    group, concurrency = 1, batchSize = 100, maxExtensionMs = 3600_000, maxBytes = 64 << 20, manualAck = false, endOnGap = false,
    onAssigned, onRevoked, signal: _, retryForMs = options.maxAttempts === undefined ? 300_000 : 0, ...wire
  } = options
  const hooks = onAssigned ?? onRevoked
  for (const [name, value] of Object.entries({concurrency, maxBytes, batchSize})) atLeast(1, name, value)
  for (const [name, value] of Object.entries({maxExtensionMs, retryForMs})) atLeast(0, name, value)
  if (!group && manualAck) bad("manualAck needs a group: without one there is nothing to ack")
  if (!group && hooks) bad("onAssigned and onRevoked need a group: without one there are no partitions to assign")
  if (group && endOnGap) bad("endOnGap is for subscriptions without a group: the sidecar keeps the cursor of a group")
  return {
    concurrency, maxExtensionMs, maxBytes, retryForMs, manualAck, endOnGap,
    wire: {...wire, maxBatch: Math.min(batchSize, mostBatchSize), rebalance: hooks && true},
  }
}

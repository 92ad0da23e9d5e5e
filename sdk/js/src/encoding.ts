import {BadRequestError} from "./errors.js"
import type {EventOptions, EventRecord} from "./types.js"

/** An event as it travels: bytes are base64. */
export type WireEvent = Omit<EventRecord, "payload"> & {payload?: unknown, payload_base64?: string}

/** The event that a handler gets. */
export function decodeEvent<T>({payload_base64, ...event}: WireEvent): EventRecord<T> {
  if (payload_base64 !== undefined) event.payload = Uint8Array.from(atob(payload_base64), c => c.charCodeAt(0))
  return event as EventRecord<T>
}

/** The members `payload` and `opts` of a publish, as JSON without the braces. */
export function encodeEvent(payload: unknown, opts: {[member in keyof EventOptions]: unknown}): string {
  const bytes = payload instanceof Uint8Array
  const text = bytes ? JSON.stringify(base64(payload)) : JSON.stringify(payload)
  if (text === undefined) throw new BadRequestError("bad_request", `the payload is ${typeof payload}, which is no JSON value`)
  return `"payload${bytes ? "_base64" : ""}":${text},"opts":${JSON.stringify(opts)}`
}

function base64(bytes: Uint8Array): string {
  let binary = ""
  for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000))
  return btoa(binary)
}

/** A UUIDv7: its first 48 bits are the time, so that ids of one process sort as they were made, by milliseconds. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  const now = Date.now()
  for (let i = 0; i < 6; i++) bytes[i] = Math.floor(now / 2 ** (40 - 8 * i)) & 0xff
  bytes[6] = bytes[6]! & 0x0f | 0x70
  bytes[8] = bytes[8]! & 0x3f | 0x80
  const hex = Array.from(bytes, b => b.toString(16).padStart(2, "0")).join("")
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-")
}

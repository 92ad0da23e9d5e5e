import {BadRequestError, SluiceError} from "./errors.js"
import type {BusOptions, WebSocketLike} from "./types.js"

type SocketClass = new (url: string) => WebSocketLike

/** The options of a bus, checked and with their defaults. */
export interface Settings extends Omit<BusOptions, "url" | "token"> {
  url: string
  token(): Promise<string | undefined>
  socketClass(): Promise<SocketClass>
  fetch: typeof fetch
  logger: Pick<Console, "warn" | "error">
  minPauseMs: number
  maxPauseMs: number
  heartbeatMs: number
  maxPending: number
  maxPendingBytes: number
}

export function settingsOf(options: BusOptions): Settings {
  const {url = environment("SLUICE_URL") ?? "http://127.0.0.1:7070", token, WebSocket} = options
  const replayUrl = options.replayUrl ?? (options.url === undefined ? environment("SLUICE_REPLAY_URL") : undefined)
  const settings: Settings = {
    minPauseMs: 50, maxPauseMs: 5000, heartbeatMs: 15_000, maxPending: 10_000, maxPendingBytes: 32 << 20, logger: console,
    // A browser's fetch must be called as a function of its window.
    fetch: (input, init) => fetch(input, init),
    ...Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)),
    url: url.replace(/\/+$/, ""),
    token: async () => typeof token === "function" ? token() : token,
    socketClass: async () => WebSocket ?? (globalThis.WebSocket as SocketClass | undefined) ?? packageWs(),
  }
  if (replayUrl) settings.replayUrl = replayUrl.replace(/\/+$/, "")
  if (!/^https?:\/\/[^/?#]+$/.test(settings.url)) bad(`url is "${url}"; http://host:port and https://host:port are allowed`)
  for (const name of ["minPauseMs", "maxPauseMs", "heartbeatMs", "maxPending", "maxPendingBytes"] as const) atLeast(1, name, settings[name])
  if (settings.maxPauseMs < settings.minPauseMs) bad(`maxPauseMs is ${settings.maxPauseMs}, less than minPauseMs, ${settings.minPauseMs}`)
  return settings
}

export function atLeast(least: number, name: string, value: number): void {
  if (!(value >= least)) bad(`${name} is ${value}; ${least} or more is allowed`)
}

export function bad(message: string): never {
  throw new BadRequestError("bad_request", message)
}

function environment(name: string): string | undefined {
  return (globalThis as {process?: {env?: Record<string, string | undefined>}}).process?.env?.[name] || undefined
}

/** Node.js before version 22 has no WebSocket of its own. */
async function packageWs(): Promise<SocketClass> {
  try {
    return (await import("ws")).default
  } catch (err) {
    const message = "this platform has no WebSocket, as Node.js before version 22: install the package ws"
    throw new SluiceError("no_websocket", message, {}, {cause: err})
  }
}

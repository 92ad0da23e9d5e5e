// The client of the control plane's REST API.

const tokenKey = 'sluice-token';
const userKey = 'sluice-user';

// sessionStorage: a token should not outlive the tab that it was given to.
export const session = {
  get token() { return sessionStorage.getItem(tokenKey) ?? ''; },
  set token(value) { keep(tokenKey, value); },
  get user() { return sessionStorage.getItem(userKey) ?? ''; },
  set user(value) { keep(userKey, value); },
};

function keep(key, value) {
  if (value) sessionStorage.setItem(key, value);
  else sessionStorage.removeItem(key);
}

// ServerError has the control plane's error message; status 0 says that no
// answer came.
export class ServerError extends Error {
  constructor(status, body) {
    super(body.error ?? `the control plane answered with status ${status}`);
    this.status = status;
    this.code = body.code ?? '';
    // Some calls send the policy in a list: its position there means nothing here.
    this.fields = (body.fields ?? []).map(f => ({...f, field: f.field.replace(/^policies\[\d+\]\.?/, '')}));
  }
}

const patience = 10_000; // ms without an answer
const quiet = 45_000; // ms without a line of a stream: the server sends one every 15 s at least

// clock is the server's time minus this machine's, as far as the Date header
// tells: "3 s ago" must not depend on how well two clocks agree.
let clock = 0;
export const now = () => Date.now() + clock;

let onUnauthorized = () => {};
export function whenUnauthorized(f) { onUnauthorized = f; }

function noteClock(response) {
  const date = Date.parse(response.headers.get('Date'));
  // The header has whole seconds, so smaller differences mean nothing.
  if (!Number.isNaN(date)) clock = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0;
}

// exchange sends a request and lets read take the answer. Its timer ends both; read may set it anew.
async function exchange(method, path, {body, headers = {}, signal}, read) {
  const all = {...headers};
  if (session.token) all.Authorization = 'Bearer ' + session.token;
  else if (session.user) all['Sluice-User'] = session.user;
  // The control plane takes changes only as JSON, which a form of another site cannot send.
  if (method !== 'GET') all['Content-Type'] ??= 'application/json';
  const late = new AbortController();
  let timer;
  const wait = ms => {
    clearTimeout(timer);
    timer = setTimeout(() => late.abort(), ms);
  };
  wait(patience);
  try {
    const response = await fetch(path, {
      method, headers: all, body, cache: 'no-store', redirect: 'error', credentials: 'same-origin',
      signal: signal ? AbortSignal.any([signal, late.signal]) : late.signal,
    });
    noteClock(response);
    if (!response.ok && response.status !== 304) {
      if (response.status === 401) onUnauthorized();
      throw new ServerError(response.status, parse(await response.text(), response) ?? {});
    }
    return await read(response, wait);
  } catch (err) {
    if (signal?.aborted || err instanceof ServerError) throw err;
    throw new ServerError(0, {error: late.signal.aborted ? `no answer within ${patience / 1000} s` : 'the control plane cannot be reached'});
  } finally {
    clearTimeout(timer);
  }
}

function parse(text, response, verbatim) {
  if (text === '') return null;
  try {
    return parseJSON(text, verbatim);
  } catch {
    // Probably the answer of a proxy.
    throw new ServerError(response.ok ? 502 : response.status, {});
  }
}

const request = (method, path, {body, ...options} = {}) => exchange(method, path,
  {body: body === undefined ? undefined : JSON.stringify(body), ...options}, async response => parse(await response.text(), response));

// lines reads a stream line by line, until it ends or onLine returns false.
const lines = (method, path, options, onLine) => exchange(method, path, options, async (response, wait) => {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      wait(quiet);
      const {value, done} = await reader.read();
      const all = (rest + (value ?? '')).split('\n');
      rest = done ? '' : all.pop();
      for (const line of all) if (onLine(line) === false) return;
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {}); // it has ended already
  }
});

// parseJSON keeps numbers that JavaScript would change as their text, so that a
// policy, and the schema in it, comes back as it was read. verbatim keeps all that
// JavaScript would write in another way, so that a payload is shown as it is.
export function parseJSON(text, verbatim = false) {
  const same = verbatim ? (value, source) => String(value) === source : exact;
  return JSON.parse(text, (key, value, context) =>
    typeof value === 'number' && JSON.rawJSON && context?.source && !same(value, context.source) ? JSON.rawJSON(context.source) : value);
}

// exact says whether a number has the value of its text. A double holds any 15 digits.
function exact(value, text) {
  const digits = text.replace(/e.*$/i, '').replace(/[-.]/g, '').replace(/^0+/, '');
  if (!Number.isFinite(value) || (value === 0 && digits !== '')) return false;
  return digits.replace(/0+$/, '').length <= 15 || String(value) === text.replace(/e([+-])0/, 'e$1');
}

// condition lets a change happen only to the version that its author has seen.
const condition = seen => (seen ? {'If-Match': `"${seen}"`} : {'If-None-Match': '*'});

const policyPath = name => '/v1/policies/' + encodeURIComponent(name);

// storePath is the path of a topic's events, groups and so on, which one of the store's sidecars answers.
export const storePath = (store, ...segments) => '/v1/stores/' + [store, ...segments].map(encodeURIComponent).join('/');

export const api = {
  // get reads an object or a page of a list. seen keeps the ETag: where nothing has changed since, the result is undefined.
  get: (path, {signal, seen = {}, verbatim} = {}) => exchange('GET', path, {signal, headers: seen.etag ? {'If-None-Match': seen.etag} : {}},
    async response => {
      if (response.status === 304) return undefined;
      const value = parse(await response.text(), response, verbatim);
      seen.etag = response.headers.get('ETag');
      return value;
    }),
  put: (path, body, headers) => request('PUT', path, {body, headers}),
  post: (path, body, headers) => request('POST', path, {body, headers}),
  delete: path => request('DELETE', path),

  // ndjson reads an object a line, until onObject returns false. With a body it is a POST.
  ndjson: (path, {signal, body, onObject}) => lines(body === undefined ? 'GET' : 'POST', path,
    {signal, body: body === undefined ? undefined : JSON.stringify(body)}, line => (line.trim() ? onObject(parseJSON(line, true), line) : true)),

  // publish sends an event {payload, opts}, and returns its receipt.
  async publish(store, topic, event) {
    const {results: [receipt]} = await exchange('POST', storePath(store, 'topics', topic, 'events'),
      {body: JSON.stringify(event), headers: {'Content-Type': 'application/x-ndjson'}}, response => response.json());
    if (receipt.code) throw new ServerError(422, receipt);
    return receipt;
  },

  // events reads server-sent events {event, id, data}.
  events(path, {signal, lastID, verbatim, onEvent}) {
    let at = {};
    return lines('GET', path, {signal, headers: lastID ? {'Last-Event-ID': lastID} : {}}, line => {
      const [, field, value] = line.match(/^([a-z]*): ?(.*)$/) ?? [];
      if (field) at[field] = value;
      if (line === '' && at.data !== undefined) onEvent({...at, data: parseJSON(at.data, verbatim)});
      if (line === '') at = {};
    });
  },

  whoami: () => request('GET', '/v1/whoami'),

  // policy is null for a name that has none.
  async policy(name) {
    try {
      return await request('GET', policyPath(name));
    } catch (err) {
      if (err.status === 404) return null;
      throw err;
    }
  },

  // save writes a policy on top of the version that its author has seen (null:
  // none), and fails with status 412 if that is no longer the last one.
  save: (name, doc, seen, reason) => request('PUT', policyPath(name), {
    body: {name, ...doc, reason: reason || undefined},
    headers: condition(seen),
  }),
  effects: (name, doc) => request('POST', policyPath(name) + '/effects', {body: {name, ...doc}}),
  remove: (name, seen, reason) => request('DELETE', policyPath(name) + (reason ? '?reason=' + encodeURIComponent(reason) : ''), {headers: condition(seen)}),
  forget: node => request('DELETE', '/v1/sidecars/' + encodeURIComponent(node)),
  schemas: (name, signal) => request('GET', policyPath(name) + '/schemas', {signal}),
  history: (name, signal) => request('GET', policyPath(name) + '/history', {signal}),
  // seen is the version in force that is about to be replaced, null for none.
  rollback: (name, version, seen, reason) => request('POST', policyPath(name) + '/rollback',
    {body: {version, reason: reason || undefined}, headers: condition(seen)}),
  audit: (limit, before) => request('GET', `/v1/audit?limit=${limit}` + (before ? `&before=${before}` : '')),
};

// Reading the events of a topic: from where the user wants, as far as they match, and as they come.
import {api, storePath} from './api.js';
import {contains} from './payload.js';

const enough = 50; // events that match, at a time
const mostRead = 5000; // events that are looked at for them
const pause = 2000; // ms without an event that end reading from a position

// matches says whether an event is what the user looks for: by tag, header (NAME=VALUE or NAME), cause and text.
export function matches(event, {key, tag, header, cause, text}) {
  if (key && event.key !== key) return false;
  if (tag && !event.tags?.includes(tag)) return false;
  if (cause && !event.caused_by?.includes(cause)) return false;
  if (header) {
    const [, name, , value] = header.match(/^([^=]*)(=(.*))?$/s);
    const has = Object.entries(event.headers ?? {}).find(([n]) => n.toLowerCase() === name.toLowerCase());
    if (!has || (value !== undefined && has[1] !== value)) return false;
  }
  return !text || contains(event, text);
}

export const filtered = ({tag, header, cause, text}) => Boolean(tag || header || cause || text);

// exportPath is the path of the events that the address selects; after is an event behind which it goes on.
export function exportPath(store, topic, {from, at, key}, after) {
  const query = new URLSearchParams({topic});
  if (key) query.set('key', key);
  if (!from) query.set('order', 'desc');
  if (from === 'time') query.set('fromTs', Math.max(0, Date.parse(at) || 0));
  if (after) {
    query.set('afterTs', after.ts);
    query.set('afterId', after.id);
  }
  return `${storePath(store, 'export')}?${query}`;
}

// read gives onFound the events that match, up to a bound of these and of all that it looks at. It returns how many it
// looked at, the last of them, and whether there are no more.
export async function read(store, topic, query, after, {signal, onFound}) {
  if (query.from === 'position' && !after) return readPosition(store, topic, query, {signal, onFound});
  if (query.from === 'id' && !after) {
    const {event} = await api.get(storePath(store, 'topics', topic, 'events', query.at), {signal, verbatim: true});
    if (matches(event, query)) onFound(event);
    return {looked: 1, last: event, ended: false};
  }
  let looked = 0, found = 0, last = after, ended = true;
  await api.ndjson(exportPath(store, topic, query, after), {signal, onObject: event => {
    looked++;
    last = event;
    if (matches(event, query)) {
      found++;
      onFound(event);
    }
    ended = false;
    return found < enough && looked < mostRead;
  }});
  return {looked, last, ended: ended || (found < enough && looked < mostRead)};
}

// readPosition reads a partition from a seq, "3:1042": the other partitions are left out by beginning at their ends.
async function readPosition(store, topic, query, {signal, onFound}) {
  const [partition, seq] = query.at.split(':');
  const {partitions} = await api.get(storePath(store, 'topics', topic), {signal});
  const positions = Object.fromEntries(partitions.map(p => [p.partition, p.head]));
  const end = positions[partition];
  if (end === undefined) throw new Error(`${topic} has no partition ${partition}`);
  if (Number(seq) > 1) positions[partition] = Number(seq) - 1;
  else delete positions[partition];
  const stop = new AbortController();
  let timer = setTimeout(() => stop.abort(), pause);
  let looked = 0, last;
  try {
    await api.events(`${storePath(store, 'topics', topic, 'stream')}?from=positions&positions=${encodeURIComponent(JSON.stringify(positions))}`,
      {signal: AbortSignal.any([signal, stop.signal]), verbatim: true, onEvent: ({data}) => {
        clearTimeout(timer);
        timer = setTimeout(() => stop.abort(), pause);
        if (String(data.partition) !== partition) return;
        looked++;
        last = data;
        if (matches(data, query)) onFound(data);
        if (looked >= enough || data.seq >= end) stop.abort();
      }});
  } catch (error) {
    if (!stop.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
  }
  return {looked, last, ended: true};
}

// follow gives onFound the events that match as they come.
export const follow = (store, topic, query, {signal, onFound}) => api.events(
  `${storePath(store, 'topics', topic, 'stream')}?from=latest`,
  {signal, verbatim: true, onEvent: ({data}) => matches(data, query) && onFound(data)});

// neighbour is the event of a key before (-1) or after (1) an event; undefined: none.
export async function neighbour(store, event, direction, signal) {
  let found;
  const from = direction < 0 ? '' : 'earliest';
  await api.ndjson(exportPath(store, event.topic, {key: event.key, from}, event), {signal, onObject: other => {
    found = other;
    return false;
  }});
  return found;
}

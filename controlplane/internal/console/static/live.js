// The data of a page: read when the page is shown, kept up by the watch, and read again now and then.
import {api} from './api.js';
import {watch} from './watch.js';
import {useEffect, useRef, useState} from './vendor/hooks.mjs';

const slowest = 10_000; // ms between two tries while the control plane is away
const share = 10; // an answer that takes long is asked for less often: for a tenth of the time at most

// lists are those of the watch: where their objects are in an answer, what names them, and what the watch leaves out of them.
const lists = {
  overview: {at: 'incidents', id: i => [i.kind, i.node_id, i.store, i.topic, i.group].join('\0')},
  topic: {at: 'topics', id: t => t.topic, name: t => t.topic, beside: ['history', 'by_sidecar']},
  sidecar: {at: 'sidecars', id: s => s.node_id + '\0' + s.store_id, name: s => s.node_id},
  policy: {at: 'policies', id: p => p.name},
};

// merge applies changes to an answer. Objects that are not in it are new, and belong there only if it is the whole list.
function merge(data, list, {changed, removed, totals}) {
  const {at, id, beside = []} = lists[list];
  const gone = new Set(removed.map(id));
  const come = new Map(changed.map(c => [id(c), c]));
  const kept = data[at].filter(old => !gone.has(id(old))).map(old => {
    const c = come.get(id(old));
    come.delete(id(old));
    return c ? {...Object.fromEntries(beside.map(key => [key, old[key]])), ...c} : old;
  });
  const whole = list === 'overview' || list === 'policy';
  return {...data, ...totals, [at]: whole ? [...kept, ...come.values()] : kept};
}

// Troubles are the requests that fail at the moment, for the banner.
const troubles = new Map(); // path -> {error, since, again}
const listeners = new Set();

function note(path, trouble) {
  if (!trouble && !troubles.has(path)) return;
  if (trouble) troubles.set(path, {...trouble, since: troubles.get(path)?.since ?? Date.now()});
  else troubles.delete(path);
  for (const listener of listeners) listener([...troubles.values()]);
}

// useTroubles lists the requests that got no answer.
export function useTroubles() {
  const [list, setList] = useState([...troubles.values()]);
  useEffect(() => {
    listeners.add(setList);
    return () => listeners.delete(setList);
  }, []);
  return list;
}

// useLive reads path now and every so many ms, one request at a time, and not while the page is hidden; null reads nothing.
// With list, one of the watch's, changes come in between. After a failure it keeps its data and tries again, later each time.
export function useLive(path, {every = 10_000, list, verbatim} = {}) {
  const [state, setState] = useState({});
  const read = useRef(() => {});
  useEffect(() => {
    if (!path) return undefined;
    const stop = new AbortController();
    const seen = {};
    let timer, busy = false, failures = 0;
    const next = ms => {
      clearTimeout(timer);
      if (!stop.signal.aborted && !document.hidden) timer = setTimeout(ask, ms);
    };
    async function ask() {
      if (busy) return;
      busy = true;
      const begin = Date.now();
      try {
        const data = await api.get(path, {signal: stop.signal, seen, verbatim});
        failures = 0;
        note(path, null);
        setState(s => ({path, data: data ?? s.data, at: Date.now()}));
      } catch (error) {
        if (stop.signal.aborted) return;
        failures++;
        // What the control plane refuses is shown where the data would be.
        if (!error.status || error.status >= 500) note(path, {error, again: ask});
        setState(s => (s.path === path ? {...s, error} : {path, error}));
      } finally {
        busy = false;
        const pause = failures ? Math.min(slowest, 1000 * 2 ** (failures - 1)) : (share - 1) * (Date.now() - begin);
        next(Math.max(failures ? 0 : every, pause));
      }
    }
    const shownAgain = () => next(0);
    document.addEventListener('visibilitychange', shownAgain);
    read.current = ask;
    ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', shownAgain);
      note(path, null);
    };
  }, [path, every]);
  // Another filter or page of the same list: the rows before stay until the new ones are there.
  const same = path && state.path?.split('?')[0] === path.split('?')[0];
  const mine = same ? state : {};

  const names = list && lists[list].name && mine.data?.[lists[list].at].map(lists[list].name);
  const watched = Boolean(path && list && mine.data);
  useEffect(() => watched ? watch({
    list, names,
    onChange: changes => setState(s => (s.path === path ? {...s, data: merge(s.data, list, changes)} : s)),
    onReset: () => read.current(),
  }) : undefined, [watched, path, list, names?.join('\0')]);
  return {...mine, path, loading: mine.path !== path, stale: Boolean(mine.error && mine.data), refresh: () => read.current()};
}

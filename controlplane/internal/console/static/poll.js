// Data that a page polls while it is visible.
import {api} from './api.js';
import {useEffect, useRef, useState} from './ui.js';

const slowest = 10_000; // ms between two tries while the control plane is away
const share = 10; // an answer that takes long is asked for less often: for a tenth of the time at most

// Trouble holds the requests that fail at the moment, for the banner.
const troubles = new Map(); // path -> {error, since, again}
const watchers = new Set();

function tell(path, trouble) {
  if (!trouble && !troubles.has(path)) return;
  if (trouble) troubles.set(path, {...trouble, since: troubles.get(path)?.since ?? Date.now()});
  else troubles.delete(path);
  for (const watcher of watchers) watcher([...troubles.values()]);
}

// useTroubles lists the requests that fail at the moment.
export function useTroubles() {
  const [list, setList] = useState([...troubles.values()]);
  useEffect(() => {
    watchers.add(setList);
    return () => watchers.delete(setList);
  }, []);
  return list;
}

// usePoll asks for path now and every so many ms, one request at a time, and not
// while the page is hidden; path null asks for nothing. After a failure it keeps
// its data, reports the error, and tries again with increasing delays.
export function usePoll(path, every) {
  const [state, setState] = useState({});
  const refresh = useRef(() => {});
  useEffect(() => {
    setState(s => (s.path === path ? s : {path}));
    if (!path) return undefined;
    const stop = new AbortController();
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
        const data = await api.get(path, stop.signal);
        failures = 0;
        tell(path, null);
        setState({path, data, at: Date.now()});
      } catch (error) {
        if (stop.signal.aborted) return;
        failures++;
        // The form for a token is shown already.
        if (error.status !== 401) tell(path, {error, again: ask});
        setState(s => ({...s, error}));
      } finally {
        busy = false;
        const pause = failures ? Math.min(slowest, 1000 * 2 ** (failures - 1)) : (share - 1) * (Date.now() - begin);
        next(Math.max(every, pause));
      }
    }
    const shownAgain = () => next(0);
    document.addEventListener('visibilitychange', shownAgain);
    refresh.current = ask;
    ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', shownAgain);
      tell(path, null);
    };
  }, [path, every]);
  const mine = state.path === path ? state : {};
  return {...mine, stale: Boolean(mine.error && mine.data), refresh: () => refresh.current()};
}

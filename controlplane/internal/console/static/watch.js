// The one stream of changes (GET /v1/watch) of this tab, for all that the page shows of the lists.
import {api} from './api.js';

const slowest = 10_000; // ms between two tries while the control plane is away

const watchers = new Set(); // {list, names?, onChange, onReset}
let running = null; // {path, stop}
let lastID = '';
let soon;

// watch calls onChange with the changes {changed, removed} of a list, of the objects of these names alone if there are any,
// and onReset when the list has to be read again. It returns what ends it.
export function watch(watcher) {
  watchers.add(watcher);
  later();
  return () => {
    watchers.delete(watcher);
    later();
  };
}

// later is after the page's other changes: a new page ends watches and begins others.
function later() {
  clearTimeout(soon);
  soon = setTimeout(update, 50);
}

function update() {
  const path = document.hidden ? '' : wanted();
  if (running?.path === path) return;
  running?.stop.abort();
  running = path ? {path, stop: new AbortController()} : null;
  if (running) follow(running);
}

function wanted() {
  if (watchers.size === 0) return '';
  const query = new URLSearchParams();
  for (const list of new Set([...watchers].map(w => w.list))) query.append('list', list);
  // Names select objects of every list but the overview.
  const others = [...watchers].filter(w => w.list !== 'overview');
  if (others.every(w => w.names)) for (const name of new Set(others.flatMap(w => w.names))) query.append('name', name);
  return '/v1/watch?' + query;
}

async function follow({path, stop: {signal}}) {
  for (let failures = 0; !signal.aborted; failures++) {
    try {
      await api.events(path, {signal, lastID, onEvent: e => {
        failures = 0;
        lastID = e.id;
        for (const w of watchers) {
          if (e.event === 'reset') w.onReset();
          else if (e.event === w.list) w.onChange(e.data);
        }
      }});
    } catch (error) {
      if (signal.aborted || error.status === 401) return;
      for (const w of watchers) w.onReset(); // they find out what is wrong
    }
    await new Promise(resolve => setTimeout(resolve, Math.min(slowest, 500 * 2 ** failures)));
  }
}

document.addEventListener('visibilitychange', later);

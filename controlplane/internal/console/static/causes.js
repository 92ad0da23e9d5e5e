// What led to an event, and what it led to: caused_by in both directions, drawn as a graph.
import {html, useEffect, useState} from './ui.js';
import {api, storePath} from './api.js';
import {eventLink} from './events.js';
import {exportPath} from './eventlog.js';
import {plural} from './format.js';
import {inTurns} from './polled.js';

const mostLevels = 3; // of causes
const mostNodes = 24;
const mostRead = 2000; // events of a topic that are looked at for effects
const mostTopics = 50; // others that are looked at
const most = {width: 230, height: 44, across: 290, down: 60, text: 28}; // of a node, and from one to the next

const keyOf = e => `${e.topic}\0${e.id}`;

// others are further topics of the store.
const others = async (store, topic, signal) => (await api.get(`${storePath(store, 'topics')}?limit=${mostTopics}`, {signal}))
  .topics.map(t => t.topic).filter(name => name !== topic);

const find = (store, topic, id, signal) => api.get(storePath(store, 'topics', topic, 'events', id), {signal, verbatim: true})
  .then(life => life.event, error => { if (error.status !== 404) throw error; });

// causesOf finds the causes of an event and theirs: in its topic, and in the others of topics. onFound gets each with the one that
// names it; one that is not found has its id alone.
async function causesOf(store, event, topics, signal, onFound) {
  const seen = new Set([keyOf(event)]);
  let level = [event];
  for (let depth = 1; depth <= mostLevels && level.length > 0; depth++) {
    const next = [];
    for (const effect of level) {
      for (const id of effect.caused_by ?? []) {
        let cause;
        for (const topic of [effect.topic, ...topics.filter(t => t !== effect.topic)]) {
          cause ??= await find(store, topic, id, signal);
          if (cause) break;
        }
        const known = cause && seen.has(keyOf(cause));
        onFound(cause ?? {id, topic: ''}, effect, -depth);
        if (!cause || known) continue;
        seen.add(keyOf(cause));
        next.push(cause);
        if (seen.size >= mostNodes) return;
      }
    }
    level = next;
  }
}

// effectsOf finds events of topics that name an event.
const effectsOf = (store, event, topics, signal, onFound) => inTurns(topics, async topic => {
  let looked = 0;
  await api.ndjson(exportPath(store, topic, {from: 'time', at: new Date(event.ts).toISOString()}), {signal, onObject: other => {
    if (other.caused_by?.includes(event.id)) onFound(other, event, 1);
    return ++looked < mostRead;
  }});
}, 2);

export function Causes({event, store}) {
  const [graph, setGraph] = useState({});
  const [everywhere, setEverywhere] = useState(false);
  useEffect(() => {
    const stop = new AbortController();
    const nodes = new Map([[keyOf(event), {...event, level: 0}]]), edges = new Map();
    const draw = state => stop.signal.aborted || setGraph({nodes: [...nodes.values()], edges: [...edges.values()], ...state});
    const onFound = (found, near, level) => {
      if (!nodes.has(keyOf(found)) && nodes.size < mostNodes) nodes.set(keyOf(found), {...found, level});
      const [from, to] = level < 0 ? [found, near] : [near, found];
      if (nodes.has(keyOf(found))) edges.set(`${keyOf(from)}\0\0${keyOf(to)}`, {from: keyOf(from), to: keyOf(to)});
      draw({busy: true});
    };
    const run = async () => {
      draw({busy: true});
      const more = everywhere ? await others(store, event.topic, stop.signal) : [];
      await causesOf(store, event, more, stop.signal, onFound);
      await effectsOf(store, event, [event.topic, ...more], stop.signal, onFound);
      draw({topics: more.length + 1});
    };
    run().catch(error => draw({error}));
    return () => stop.abort();
  }, [event.topic, event.id, store, everywhere]);
  const {nodes = [], edges = [], busy, error, topics} = graph;
  return html`
    <h3>Causes and effects</h3>
    ${nodes.length > 1 ? html`<${Graph} nodes=${nodes} edges=${edges} store=${store} />`
      : !busy && !error && html`<p class="muted">It names no cause, and no event ${everywhere ? 'that was looked at' : 'of its topic'} names it.</p>`}
    <p class="line" role="status"><span class="muted">${busy ? 'Looking…' : error ? `Not all is known: ${error.message}.`
      : `Looked at ${plural(topics, 'topic')}, for effects at the ${plural(mostRead, 'event')} after it.`}</span>
      ${!everywhere && html`<button type="button" onClick=${() => setEverywhere(true)}>Look in other topics, too</button>`}</p>`;
}

const cut = text => (text.length > most.text ? text.slice(0, most.text - 1) + '…' : text);

// Graph draws causes to the left and effects to the right.
function Graph({nodes, edges, store}) {
  const levels = [...new Set(nodes.map(n => n.level))].sort((a, b) => a - b);
  const columns = levels.map(level => nodes.filter(n => n.level === level));
  const rows = Math.max(...columns.map(c => c.length));
  const place = new Map(columns.flatMap((column, x) => column.map((n, y) =>
    [keyOf(n), {x: x * most.across, y: (y + (rows - column.length) / 2) * most.down + 4}])));
  const width = (levels.length - 1) * most.across + most.width + 4, height = rows * most.down;
  const middle = most.height / 2;
  return html`
    <div class="across"><svg class="causes" width=${width} height=${height} viewBox="-2 0 ${width} ${height}" role="group" aria-label="Causes and effects">
      ${edges.map(({from, to}) => {
        const a = place.get(from), b = place.get(to);
        if (!a || !b) return null;
        const x = a.x + most.width, turn = (most.across - most.width) / 2;
        return html`<path key=${from + to} class="edge" d=${`M${x},${a.y + middle}C${x + turn},${a.y + middle} ${b.x - turn},${b.y + middle} ${b.x},${b.y + middle}`} />`;
      })}
      ${nodes.map(n => {
        const {x, y} = place.get(keyOf(n));
        const box = html`<rect x=${x} y=${y} width=${most.width} height=${most.height} rx="6" />
          <text x=${x + 10} y=${y + 18} class="id">${cut(n.id)}</text><text x=${x + 10} y=${y + 35} class="of">${cut(n.topic || 'not found')}</text>`;
        const label = n.level === 0 ? `this event, ${n.id}` : `${n.level < 0 ? 'cause' : 'effect'} ${n.id} of ${n.topic || 'a topic that is not known'}`;
        return n.level === 0 || !n.topic ? html`<g key=${keyOf(n)} class=${n.level === 0 ? 'this' : 'lost'} role="img" aria-label=${label}>${box}</g>`
          : html`<a key=${keyOf(n)} href=${eventLink(n, store)} aria-label=${label}><title>${n.topic} ${n.id}</title>${box}</a>`;
      })}
    </svg></div>`;
}

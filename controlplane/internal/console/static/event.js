// One event and its life: where it was accepted, and what became of it in each group.
import {denied, Empty, html, Page, useEffect, useState, Waiting} from './ui.js';
import {storePath} from './api.js';
import {address} from './router.js';
import {duration, precise} from './format.js';
import {quote} from './copy.js';
import {Causes} from './causes.js';
import {Details, eventLink} from './events.js';
import {neighbour} from './eventlog.js';
import {useLive} from './live.js';
import {StoreChoice, useStore} from './store.js';
import {Table} from './table.js';

export function Event({topic, id, query, me}) {
  const {store, stores, live: known} = useStore(query, topic);
  const no = denied(me, 'reader');
  const path = store && !no ? storePath(store, 'topics', topic, 'events', id) : null;
  const live = useLive(path, {every: 5000, verbatim: true});
  const cli = store && `sluice trace ${quote(topic)} ${quote(id)} --store ${quote(store)}`;
  const crumbs = [['Topics', address(['topics'])], [topic, address(['topics', topic])], ['Events', address(['topics', topic, 'events'], {store: query.store})]];
  return html`
    <${Page} title=${id} code crumbs=${crumbs} poll=${live} copy=${path && {path, cli, me}}>
      <div class="toolbar"><${StoreChoice} stores=${stores} query=${{store}} /></div>
      ${no ? html`<${Empty}>${no}<//>`
        : store === '' ? html`<${Empty}>No sidecar is connected that could read events: start one.<//>`
        : !live.data ? html`<${Waiting} poll=${path ? live : known} />`
        : html`
          <${Neighbours} event=${live.data.event} store=${store} />
          <div class="columns">
            <section class="card" aria-label="Event"><${Details} event=${live.data.event} store=${store} whole /></section>
            <section class="card" aria-label="Life"><${Life} life=${live.data} store=${store} me=${me} /></section>
          </div>
          <section class="card" aria-label="Causes and effects"><${Causes} event=${live.data.event} store=${store} /></section>`}
    <//>`;
}

// Neighbours are links to the events of the same key before and after.
function Neighbours({event, store}) {
  const [found, setFound] = useState({});
  useEffect(() => {
    setFound({});
    if (!event.key) return undefined;
    const stop = new AbortController();
    const find = (name, direction) => neighbour(store, event, direction, stop.signal)
      .then(e => setFound(f => ({...f, [name]: e ?? null})), () => {}); // a link less
    find('before', -1);
    find('after', 1);
    return () => stop.abort();
  }, [event.id, store]);
  if (!event.key) return null;
  const link = (e, text) => (e ? html`<a href=${eventLink(e, store)}>${text}</a>` : html`<span class="muted">${text}</span>`);
  return html`<p class="line neighbours"><span>${link(found.before, '← previous of this key')}</span><span>${link(found.after, 'next of this key →')}</span></p>`;
}

const waits = {
  turn: 'its turn: the group has not come to it yet', member: 'a member with room', key_order: 'an earlier event of its key', same_id: 'an event of the same id',
  backoff: 'its next attempt', dead_letter: 'being moved to the dead letters', owner: 'the sidecar that has its partition',
};

// about is what there is to say of an event's state in a group.
function about(g) {
  const due = g.due_ms === undefined ? '' : `, due in ${duration(g.due_ms / 1000)}`;
  switch (g.state) {
    case 'settled': return 'acked, or not meant for this group';
    case 'acked': return 'the group remembers it';
    case 'in_flight': return `${g.member ? `with ${g.member}` : `at ${g.owner}`}${due}`;
    case 'waiting': return `for ${waits[g.waits_for] ?? g.waits_for}${due}`;
    case 'dead': return g.dead_letter?.reason || 'no reason was given';
    default: return '';
  }
}

const tones = {settled: '', acked: '', in_flight: 'warn', waiting: 'warn', dead: 'bad'};

const columns = (event, store) => [
  {title: 'Group', className: 'code', cell: g => html`<a href=${address(['topics', event.topic, 'groups', g.group], {store})}>${g.group}</a>`},
  {title: 'State', cell: g => html`<span class="badge ${tones[g.state] ?? ''}">${g.state.replace('_', ' ')}</span> ${about(g)}
    ${g.dead_letter && html` <a href=${address(['topics', event.topic, 'dead-letters'], {store, group: g.group})}>Dead letters</a>`}`},
  {title: 'Attempts', number: true, cell: g => g.attempts || '–'},
  {title: 'Sidecar', className: 'code', cell: g => g.owner || '–'},
];

function Life({life, store, me}) {
  const {event, accepted_at: accepted, stored, spooled, groups, trace_id: trace} = life;
  return html`
    <h2>Life</h2>
    <dl class="facts">
      <div><dt>Accepted</dt><dd>${precise(accepted)}</dd></div>
      ${stored && html`<div><dt>Stored</dt><dd>partition ${stored.partition}, seq ${stored.seq} <small>as <a href=${address(['fleet', stored.node_id])}>${stored.node_id}</a> says</small></dd></div>`}
      ${spooled && html`<div><dt>Waits in the spool of</dt><dd><a href=${address(['fleet', spooled.node_id])}>${spooled.node_id}</a></dd></div>`}
      ${trace && html`<div><dt>Trace</dt><dd class="code">${me.trace_url ? html`<a href=${me.trace_url.replaceAll('{trace_id}', trace)} target="_blank" rel="noreferrer">${trace}</a>` : trace}</dd></div>`}
    </dl>
    <h3>Groups</h3>
    ${groups.length === 0 ? html`<p class="muted">No group has subscribed to the topic.</p>`
      : html`<${Table} name="life" columns=${columns(event, store)} rows=${groups} id=${g => g.group} />`}
    <p><a href=${address(['topics', event.topic, 'events'], {store, cause: event.id, from: 'time', at: new Date(event.ts).toISOString()})}>Events of this topic that name it as their cause</a></p>`;
}

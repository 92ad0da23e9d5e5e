// Consumer groups: those of the fleet with the worst first, and those of one topic.
import {Empty, Filter, html, Page, topicLink, TopicTabs, Waiting} from './ui.js';
import {api, storePath} from './api.js';
import {address} from './router.js';
import {count, duration, plural} from './format.js';
import {inTurns, trend, usePolled, useReports} from './polled.js';
import {Trend} from './sparkline.js';
import {StoreChoice, useStore} from './store.js';
import {Table} from './table.js';

// reasons are why a member is sent nothing right now, as a sentence.
export const reasons = {
  caught_up: 'There is nothing to send.',
  paused: 'It is paused, by itself or by the policy.',
  max_inflight: 'It has as many unacked events as it may: it has to ack some.',
  rate: 'The delivery rate is used up.',
  key_order: 'Earlier events of the same keys are in flight, and have to be acked first.',
  backoff: 'What is left waits for its next attempt.',
  no_partition: 'Other members have all partitions.',
  slow_reader: 'It does not read from its connection.',
  not_pulling: 'It pulls over HTTP, and is not asking now.',
};

export const groupLink = (topic, group, store) => address(['topics', topic, 'groups', group], {store});

// Blocked says what holds up a group: paused, stuck, without members, or what its members say.
export function Blocked({g}) {
  if (g.paused) return html`<span class="badge warn">paused</span> by the policy`;
  if (g.members === 0 && g.lag > 0) return html`<span class="bad">No consumer is connected.</span>`;
  const holding = (g.blocked ?? []).filter(why => why !== 'caught_up' && why !== 'no_partition');
  if (holding.length > 0) return html`${holding.map(why => html`<div key=${why}>${reasons[why] ?? why}</div>`)}`;
  return html`<span class="muted">${g.lag === 0 ? 'Caught up.' : 'Nothing.'}</span>`;
}

const columns = topic => [
  {title: 'Group', className: 'code', cell: g => html`<a href=${groupLink(g.topic, g.group, g.store)}>${g.group}</a>${g.stuck && html` <span class="badge bad">stuck</span>`}`},
  ...(topic ? [] : [{title: 'Topic', className: 'code', cell: g => html`<a href=${topicLink(g.topic)}>${g.topic}</a>`}]),
  {title: 'Lag', number: true, cell: g => count(g.lag)},
  {title: 'Trend', className: 'spark', cell: g => html`<${Trend} points=${g.trend} label=${`lag of ${g.group} since this tab was opened`} />`},
  {title: 'In flight', number: true, cell: g => count(g.inflight)},
  {title: 'Oldest unacked', number: true, cell: g => (g.oldest ? duration(g.oldest) : '–')},
  {title: 'Members', number: true, cell: g => count(g.members)},
  {title: 'What holds it up', className: 'what', cell: g => html`<${Blocked} g=${g} />`},
];

const worstFirst = (a, b) => Boolean(b.stuck) - Boolean(a.stuck) || b.lag - a.lag || (a.topic + a.group < b.topic + b.group ? -1 : 1);

// sumGroups adds up the parts that sidecars have of their store's groups.
function sumGroups(sidecars, at) {
  const found = new Map();
  for (const s of sidecars) {
    for (const g of s.groups ?? []) {
      const key = [s.store_id, g.topic, g.group].join('\0');
      const all = found.get(key) ?? {key, store: s.store_id, topic: g.topic, group: g.group, lag: 0, inflight: 0, members: 0, oldest: 0, blocked: []};
      all.lag += g.lag;
      all.inflight += g.inflight;
      all.members += g.members;
      all.oldest = Math.max(all.oldest, g.oldest_unacked_s);
      all.paused ||= g.paused;
      all.stuck ||= Boolean(g.stuck_since);
      if (g.blocked_by && !all.blocked.includes(g.blocked_by)) all.blocked.push(g.blocked_by);
      found.set(key, all);
    }
  }
  return [...found.values()].map(g => ({...g, trend: trend(g.key, at, g.lag)}));
}

// AllGroups are the groups that sidecars report, the worst first.
export function AllGroups({query, me}) {
  const live = useReports();
  const {filter = ''} = query;
  const rows = live.data && sumGroups(live.data.sidecars, live.at).filter(g => `${g.topic} ${g.group}`.includes(filter)).sort(worstFirst);
  return html`
    <${Page} title="Groups" poll=${live} copy=${{path: '/v1/sidecars', cli: 'sluice fleet show NODE', me}}>
      <div class="toolbar"><${Filter} label="Topics and groups with" name="filter" query=${query} />
        <span class="muted" role="status">${rows && plural(rows.length, 'group')}${live.data?.more > 0 && `, and those of ${plural(live.data.more, 'further sidecar')}`}</span></div>
      ${!rows ? html`<${Waiting} poll=${live} />`
        : rows.length === 0 ? html`<${Empty}>${filter ? html`<p>No topic or group has <code>${filter}</code> in its name.</p>`
          : html`<p>No group has been at work yet: a consumer makes one.</p><p><code>sluice sub orders --group billing</code></p>`}<//>`
        : html`<${Table} name="groups" columns=${columns(false)} rows=${rows} id=${g => g.key} />`}
    <//>`;
}

// rowOf makes a row of the answer about one group.
export function rowOf(store, g, at) {
  const key = [store, g.topic, g.group].join('\0');
  const oldest = Math.max(0, ...g.members.map(m => m.oldest_unacked_ms)) / 1000;
  return {...g, key, store, members: g.members.length + (g.more ?? 0), oldest, trend: trend(key, at, g.lag),
    blocked: [...new Set(g.members.map(m => m.blocked_by).filter(Boolean))]};
}

const mostGroups = 100; // of a topic that are asked about

// Groups are those of one topic.
export function Groups({topic, query, me}) {
  const {store, stores, live: known} = useStore(query, topic);
  const path = store && storePath(store, 'topics', topic, 'groups');
  const live = usePolled(path, async signal => {
    const {groups} = await api.get(path, {signal});
    const found = await inTurns(groups.slice(0, mostGroups), group => api.get(`${path}/${encodeURIComponent(group)}`, {signal})
      .catch(error => { if (error.status !== 404) throw error; })); // it is gone meanwhile
    return {groups: found.filter(Boolean), more: groups.length - found.length};
  }, 5000);
  const rows = live.data?.groups.map(g => rowOf(store, g, live.at)).sort(worstFirst);
  return html`
    <${Page} title=${topic} code crumbs=${[['Topics', address(['topics'])]]} poll=${live}
      copy=${path && {path, cli: `sluice groups ${topic} --store ${store}`, me}}>
      <${TopicTabs} topic=${topic} store=${query.store} at="Groups" />
      <div class="toolbar"><${StoreChoice} stores=${stores} query=${{store}} />
        <span class="muted" role="status">${rows && plural(rows.length, 'group')}${live.data?.more > 0 && ` of ${count(rows.length + live.data.more)}`}</span></div>
      ${store === '' ? html`<${NoStore} />` : !rows ? html`<${Waiting} poll=${live.error ? live : known} />`
        : rows.length === 0 ? html`<${Empty}><p>Nobody has consumed <code>${topic}</code> in a group yet.</p><p><code>sluice sub ${topic} --group NAME</code></p><//>`
        : html`<${Table} name="groups" columns=${columns(true)} rows=${rows} id=${g => g.key} />`}
    <//>`;
}

export const NoStore = () => html`<${Empty}><p>No connected sidecar has a store, so nobody can be asked.</p><p><a href=${address(['fleet'])}>Look at the fleet</a></p><//>`;

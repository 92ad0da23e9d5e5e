// Every topic, idle ones too: its rates, its limit, and the sidecars that refuse.
import {denied, Empty, Filter, Guarded, html, Page, PausedGroups, policyLink, Refusals, topicLink, useState, Waiting} from './ui.js';
import {pausedGroups} from './policy.js';
import {bytes, count, exact, perSecond, plural} from './format.js';
import {useLive} from './live.js';
import {Sparkline} from './sparkline.js';
import {useStoredTopics} from './store.js';
import {Table} from './table.js';
import {NewTopic} from './topicdialogs.js';

const page = 50; // rows
const usual = '-allowed_per_second';

const columns = (limiting, stored) => [
  {title: 'Topic', sort: 'topic', className: 'code', cell: t => html`<a href=${topicLink(t.topic)}>${t.topic}</a>${t.paused && html` <span class="badge warn">paused</span>`}
    <${PausedGroups} names=${pausedGroups(t.topic, limiting)} />`},
  {title: 'Last minute', className: 'spark', cell: t => html`<${Sparkline} history=${t.history}
    label=${`last minute of ${t.topic}: ${perSecond(t.allowed_per_second)} accepted and ${perSecond(t.denied_per_second)} refused per second now`} />`},
  {title: 'Accepted /s', sort: 'allowed_per_second', number: true, cell: t => perSecond(t.allowed_per_second)},
  {title: 'Refused /s', sort: 'denied_per_second', number: true, cell: t => html`<span class=${t.denied_per_second > 0 ? 'bad' : 'muted'}>${perSecond(t.denied_per_second)}</span>`},
  {title: 'Limit /s', number: true, cell: t => html`${t.rate ? exact(t.rate) : 'none'}${' '}<small>${limitOf(t)}</small>`},
  {title: 'Stored', number: true, cell: t => (stored?.has(t.topic) ? html`<${Stored} ...${stored.get(t.topic)} />` : '–')},
  {title: 'Worst lag', sort: 'lag', number: true, cell: t => (t.groups ? html`${count(t.lag)} <small>${plural(t.groups, 'group')}</small>` : html`<span class="muted">no group</span>`)},
  {title: 'Dead letters', sort: 'dead_letters', number: true, cell: t => html`<span class=${t.dead_letters ? 'bad' : 'muted'}>${count(t.dead_letters)}</span>`},
  {title: 'Refused in 1 h', className: 'where', cell: t => html`<${Refusals} of=${t.refusals} />`},
  {title: 'Refused at', className: 'where', cell: t => html`<${Where} usages=${t.by_sidecar} />`},
  {title: 'Policy', className: 'code', cell: t => (t.policy ? html`<a href=${policyLink(t.policy)}>${t.policy}</a>` : html`<span class="muted">defaults</span>`)},
];

// limitOf says whose the rate of a topic is.
const limitOf = t => (t.rate ? (t.per ? 'a tenant' : t.scope === 'fleet' ? 'fleet' : 'each') : '');

const Stored = ({events, bytes: n}) => html`${bytes(n)} <small>${plural(events, 'event')}</small>`;

// common is what all names begin with.
function common(names) {
  const [first = '', ...rest] = names;
  let length = first.length;
  for (const name of rest) while (!name.startsWith(first.slice(0, length))) length--;
  return first.slice(0, length);
}

export function Topics({query, me}) {
  const [making, setMaking] = useState(false);
  const stores = useLive('/v1/stores').data?.stores;
  const no = denied(me, 'operator');
  const {prefix = '', sort = usual, cursor = ''} = query;
  const path = '/v1/topics?' + new URLSearchParams({limit: page, sort, history: 1, ...(prefix && {prefix}), ...(cursor && {cursor})});
  const live = useLive(path, {list: 'topic'});
  const known = useLive('/v1/policies', {every: 5000});
  const limiting = (known.data?.policies ?? []).filter(p => p.groups);
  const rows = live.data?.topics;
  const stored = useStoredTopics(rows && common(rows.map(t => t.topic)));
  return html`
    <${Page} title="Topics" poll=${live} copy=${{path, me}} actions=${html`
      <${Guarded} denied=${no || (stores?.length === 0 && 'No sidecar is connected.')} disabled=${!stores} onClick=${() => setMaking(true)}>New topic…<//>`}>
      <div class="toolbar">
        <${Filter} label="Topics that begin with" name="prefix" query=${query} />
        <span class="muted" role="status">${rows && plural(rows.length, 'topic') + (live.data.next || cursor ? ' on this page' : '')}</span>
      </div>
      ${!rows ? html`<${Waiting} poll=${live} />`
        : rows.length === 0 ? html`<${Empty}>${prefix ? html`<p>No topic begins with <code>${prefix}</code>.</p>`
          : html`<p>No topic exists yet: the first event makes one.</p><p><code>curl -d '{"order": 17}' http://SIDECAR:7070/v1/topics/orders/events</code></p>`}<//>`
        : html`<${Table} name="topics" columns=${columns(limiting, stored)} rows=${rows} id=${t => t.topic} query=${query} sort=${usual} next=${live.data.next} />`}
      ${making && html`<${NewTopic} stores=${stores} onMade=${name => { location.hash = topicLink(name); }} onClose=${() => setMaking(false)} />`}
    <//>`;
}

// Where names the sidecars that refuse most.
function Where({usages}) {
  const refusing = (usages ?? []).filter(u => u.denied_per_second > 0).sort((a, b) => b.denied_per_second - a.denied_per_second);
  if (refusing.length === 0) return html`<span class="muted">–</span>`;
  const rest = refusing.length - 2;
  return html`${refusing.slice(0, 2).map(u => html`<span key=${u.node_id}><span class="code">${u.node_id}</span> ${perSecond(u.denied_per_second)}</span>`)}
    ${rest > 0 && html`<span class="muted">+${rest}</span>`}`;
}

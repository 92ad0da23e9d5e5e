// The home page: what is wrong, what the fleet does, and its stores.
import {Ago, Empty, html, Page, Time, Waiting} from './ui.js';
import {address} from './router.js';
import {count, duration, perSecond, plural, secondsSince} from './format.js';
import {useLive} from './live.js';
import {Plot} from './sparkline.js';
import {Table} from './table.js';

const ranks = {critical: 0, warning: 1, info: 2};
const worstFirst = (a, b) => ranks[a.severity] - ranks[b.severity] || (a.since < b.since ? 1 : -1);

// place is the page where an incident is looked into, and the word for the link.
function place({kind, store, topic, group, node_id}) {
  if (kind === 'dead_letters') return ['Dead letters', address(['topics', topic, 'dead-letters'], {group, store})];
  if (group) return ['Group', address(['topics', topic, 'groups', group], {store})];
  if (topic) return ['Topic', address(['topics', topic])];
  if (node_id) return ['Sidecar', address(['fleet', node_id])];
  return ['Fleet', address(['fleet'])];
}

export function Overview({me}) {
  const live = useLive('/v1/overview?history=1', {every: 15_000, list: 'overview'});
  const stores = useLive('/v1/stores');
  const o = live.data;
  const versions = o?.versions ?? [];
  return html`
    <${Page} title="Overview" poll=${live} copy=${{path: '/v1/overview', me}}>
      ${!o ? html`<${Waiting} poll=${live} />` : html`
        <${Incidents} overview=${o} />
        <section aria-label="Rates of the fleet" class="plots">
          <${Rate} title="Published" of="published" o=${o} />
          <${Rate} title="Delivered" of="delivered" o=${o} />
          <${Rate} title="Refused" of="refused" o=${o} bad />
          <${Rate} title="Dead letters" of="dead" o=${o} bad />
        </section>
        <section aria-label="Stores"><h2>Stores</h2><${Stores} live=${stores} /></section>
        ${versions.length > 1 && html`
          <section aria-label="Versions"><h2>Versions</h2>
            <p>${versions.map(v => html`<span key=${v.version} class="set">${v.version} <span class="muted">${plural(v.sidecars, 'sidecar')}</span></span>`)}</p>
          </section>`}`}
    <//>`;
}

const Fleet = ({o}) => html`<a href=${address(['fleet'])}>${plural(o.sidecars.live, 'sidecar')}</a>, ${plural(o.stores, 'store')}, ${' '}<a href=${address(['topics'])}>${plural(o.topics, 'topic')}</a>`;

function Incidents({overview: o}) {
  const list = [...o.incidents].sort(worstFirst);
  if (o.sidecars.live + o.sidecars.missing === 0) {
    return html`<${Empty}><p>No sidecar has connected yet.</p><p>Start one with <code>sluice-sidecar --control-plane HOST:18000</code>.</p><//>`;
  }
  if (list.length === 0) return html`<p class="calm" role="status"><span class="dot ok"></span>All is well: <${Fleet} o=${o} />.</p>`;
  return html`
    <section aria-label="Incidents">
      <ul class="incidents" aria-live="polite">${list.map(i => html`<${Incident} key=${[i.kind, i.node_id, i.store, i.topic, i.group].join('\0')} i=${i} />`)}</ul>
      <p class="muted">${o.more > 0 && `${plural(o.more, 'further incident')}. `}<${Fleet} o=${o} />${o.sidecars.missing > 0 && `, ${count(o.sidecars.missing)} missing`}.</p>
    </section>`;
}

function Incident({i}) {
  const [word, href] = place(i);
  return html`
    <li class="incident ${i.severity}">
      <div><span class="badge ${{critical: 'bad', warning: 'warn'}[i.severity] ?? ''}">${i.severity}</span> <b>${i.text}</b></div>
      <p>${i.remedy}</p>
      <div class="muted about"><span>for ${duration(secondsSince(i.since))}, since <${Time} at=${i.since} /></span>
        ${['node_id', 'topic', 'group'].filter(key => i[key]).map(key => html`<span key=${key}>${key.replace('_id', '')} <span class="code">${i[key]}</span></span>`)}
        <a href=${href}>${word} →</a></div>
    </li>`;
}

const shortest = 300_000; // ms of a plot at least

function Rate({title, of, o, bad}) {
  const now = o[of + '_per_second'];
  const points = (o.history ?? []).map(p => ({at: Date.parse(p.at), value: p[of]}));
  // The history goes back as far as the control plane has seen it, an hour at most.
  const begin = Math.min(points[0]?.at ?? Infinity, Date.now() - shortest);
  return html`
    <figure class="card plot">
      <figcaption><span>${title}</span> <b class=${bad && now > 0 ? 'bad' : ''}>${perSecond(now)}<small>/s</small></b></figcaption>
      <${Plot} points=${points} begin=${begin} bad=${bad} label=${`${title} per second over the last hour`} />
    </figure>`;
}

const good = {ok: true, draining: true};

const storeColumns = [
  {title: 'Store', className: 'code', cell: s => html`${s.kind} <small>${s.store}</small>`},
  {title: 'State', cell: s => html`<span class="dot ${good[s.state] ? 'ok' : 'wrong'}"></span>${s.state}${s.error && html` <small class="error">${s.error}</small>`}`},
  {title: 'Since', cell: s => html`<${Ago} at=${s.since} />`},
  {title: 'Spooled', number: true, cell: s => count(s.spooled)},
  {title: 'Sidecars', className: 'code', cell: s => html`<${Names} list=${s.sidecars} />`},
];

const shown = 5; // names of sidecars

const Names = ({list}) => html`${list.slice(0, shown).map((node, i) => html`${i > 0 && ', '}<a key=${node} href=${address(['fleet', node])}>${node}</a>`)}
  ${list.length > shown && html` <span class="muted">and ${count(list.length - shown)} more</span>`}`;

function Stores({live}) {
  if (!live.data) return html`<${Waiting} poll=${live} />`;
  if (live.data.stores.length === 0) return html`<${Empty}>No connected sidecar has reported its store yet.<//>`;
  return html`<${Table} name="stores" columns=${storeColumns} rows=${live.data.stores} id=${s => s.store} />`;
}

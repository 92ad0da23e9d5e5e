// The events of a topic that are put into the log later: what is due when, and cancelling.
import {Ago, denied, Empty, Guarded, html, Page, Time, TopicTabs, useState, Waiting} from './ui.js';
import {api, storePath} from './api.js';
import {address} from './router.js';
import {Confirm} from './change.js';
import {duration, plural} from './format.js';
import {now} from './api.js';
import {NoStore} from './groups.js';
import {useLive} from './live.js';
import {StoreChoice, useStore} from './store.js';
import {Table} from './table.js';

const page = 100; // events

function Due({at}) {
  const s = (at - now()) / 1000;
  return s > 0 ? html`in ${duration(s)}` : html`<${Ago} at=${at} />`;
}

const columns = (no, onCancel) => [
  {title: 'Event', className: 'code', cell: e => e.id},
  {title: 'Key', className: 'code', cell: e => e.key ?? '–'},
  {title: 'Due', cell: e => html`<${Time} at=${e.deliver_at} />`},
  {title: 'That is', cell: e => html`<${Due} at=${e.deliver_at} />`},
  {title: 'Act', hidden: true, cell: e => html`<${Guarded} class="quiet" denied=${no} aria-label=${`Cancel ${e.id}`} onClick=${() => onCancel(e)}>Cancel…<//>`},
];

export function Scheduled({topic, query, me}) {
  const {store, stores, live: known} = useStore(query, topic);
  const [cancelling, setCancelling] = useState(null);
  const {cursor = ''} = query;
  const path = store && storePath(store, 'topics', topic, 'scheduled');
  const live = useLive(path ? `${path}?${new URLSearchParams({limit: page, ...(cursor && {cursor})})}` : null);
  const no = denied(me, 'operator', undefined, topic);
  const cancel = async () => {
    await api.delete(`${path}/${encodeURIComponent(cancelling.id)}`);
    setCancelling(null);
    live.refresh();
  };
  const rows = live.data?.scheduled;
  return html`
    <${Page} title=${topic} code crumbs=${[['Topics', address(['topics'])]]} poll=${live} copy=${path && {path, cli: `sluice scheduled list ${topic} --store ${store}`, me}}>
      <${TopicTabs} topic=${topic} store=${query.store} at="Scheduled" />
      <div class="toolbar"><${StoreChoice} stores=${stores} query=${{store}} />
        <span class="muted" role="status">${live.data && plural(live.data.total, 'scheduled event')}</span>${no && html`<span class="muted">${no}</span>`}</div>
      ${store === '' ? html`<${NoStore} />` : !rows ? html`<${Waiting} poll=${live.error ? live : known} />`
        : rows.length === 0 ? html`<${Empty}><p>Nothing is scheduled.</p><p><code>sluice pub ${topic} '{"order": 17}' --delay 1h</code></p><//>`
        : html`<${Table} name="scheduled" columns=${columns(no, setCancelling)} rows=${rows} id=${e => e.id} query=${query} next=${live.data.next} />`}
      ${cancelling && html`
        <${Confirm} title="Cancel a scheduled event" verb="Cancel the event" danger act=${cancel} onClose=${() => setCancelling(null)}>
          <p><code>${cancelling.id}</code>, due <${Time} at=${cancelling.deliver_at} />, is taken back, and its id is free again.</p>
        <//>`}
    <//>`;
}
